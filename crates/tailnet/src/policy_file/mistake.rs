//! What is wrong with a policy file: all of it, each with its place.

use std::fmt;

use serde::Serialize;

use super::hujson::Position;

/// How many mistakes are told of one file.
const MAX_MISTAKES: usize = 50;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// Where.
    #[serde(flatten)]
    pub at: Position,
    /// In what, as `acls[3].dst[1]`; empty for the whole file.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "{}: {}", self.at, self.message)
        } else {
            write!(f, "{}: {}: {}", self.at, self.path, self.message)
        }
    }
}

/// Every mistake of a file, in its order; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(transparent)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub(super) fn one(at: Position, message: String) -> Self {
        Self(vec![Mistake { at, path: String::new(), message }])
    }

    /// Returns them in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Mistakes while they are found.
#[derive(Debug, Default)]
pub(super) struct Found(Vec<Mistake>);

impl Found {
    pub(super) fn add(&mut self, at: Position, path: &str, message: impl Into<String>) {
        if self.0.len() < MAX_MISTAKES {
            self.0.push(Mistake { at, path: path.to_owned(), message: message.into() });
        }
    }

    /// The value if nothing was found.
    pub(super) fn or<T>(mut self, value: T) -> Result<T, Mistakes> {
        if self.0.is_empty() {
            return Ok(value);
        }
        self.0.sort_by_key(|mistake| mistake.at);
        Err(Mistakes(self.0))
    }
}
