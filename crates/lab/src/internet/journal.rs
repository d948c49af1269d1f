//! A log in bounded memory: the newest entries, and how many there ever were.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// How many entries a service keeps.
pub const KEPT: usize = 4096;

/// The newest entries of a log that others may read while it is written.
#[derive(Debug)]
pub struct Journal<T> {
    kept: usize,
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    entries: VecDeque<T>,
    total: u64,
}

/// A copy of what a [`Journal`] held at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct Excerpt<T> {
    /// How many entries were ever written.
    pub total: u64,
    /// The newest of them, oldest first.
    pub entries: Vec<T>,
}

impl<T: Clone> Journal<T> {
    /// An empty log that keeps the `kept` newest entries, at least one.
    #[must_use]
    pub fn new(kept: usize) -> Self {
        Self { kept: kept.max(1), inner: Mutex::new(Inner { entries: VecDeque::new(), total: 0 }) }
    }

    /// Appends an entry; the oldest makes room.
    pub fn write(&self, entry: T) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.entries.len() == self.kept {
            inner.entries.pop_front();
        }
        inner.entries.push_back(entry);
        inner.total += 1;
    }

    /// What it holds now.
    #[must_use]
    pub fn read(&self) -> Excerpt<T> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Excerpt { total: inner.total, entries: inner.entries.iter().cloned().collect() }
    }
}

impl<T: Clone> Default for Journal<T> {
    fn default() -> Self {
        Self::new(KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entries_stay_and_all_are_counted() {
        let journal = Journal::new(3);
        (1..=5).for_each(|entry| journal.write(entry));
        let excerpt = journal.read();
        assert_eq!((excerpt.total, excerpt.entries), (5, vec![3, 4, 5]));
    }
}
