//! Mistakes in the environment, all of them together.

use std::fmt;

use serde::Serialize;

use crate::env;
use crate::reason::Reason;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The variable that it is about.
    pub variable: String,
    /// What is wrong, and what to do.
    pub message: String,
}

/// All the mistakes of a configuration: at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub(super) fn new(mistakes: Vec<Mistake>) -> Self {
        Self(mistakes)
    }

    /// The mistakes, in the order of the documentation's table.
    #[must_use]
    pub fn list(&self) -> &[Mistake] {
        &self.0
    }

    /// The reason word: a required exit node that nobody named has its own when nothing else is wrong.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self.0.as_slice() {
            [only] if only.variable == env::REQUIRE_EXIT_NODE && only.message.contains("names none") => {
                Reason::ExitNodeRequired
            }
            _ => Reason::ConfigInvalid,
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => write!(f, "{}: {}", only.variable, only.message),
            several => {
                write!(f, "{} mistakes in the environment", several.len())?;
                for mistake in several {
                    write!(f, "\n  {}: {}", mistake.variable, mistake.message)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Mistakes {}

/// How many letters apart two names are (Levenshtein): to guess what was meant.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_letters_to_change() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance(env::EGRESS_EXPECTED_IPS, "TS_EGRESS_EXPECTED_IP"), 1);
    }
}
