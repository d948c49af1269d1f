//! How a workload's Internet traffic is routed: the four postures, and the one the environment spells.

use std::fmt;

use serde::Serialize;

/// How a workload's Internet traffic is routed (`docs/guard.md`, "Postures").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Posture {
    /// The normal route: no exit node is named.
    None,
    /// An exit node is named.
    Preferred,
    /// An exit node is named, and naming none would have been an error.
    Required,
    /// An exit node is named, and the public address must be in a list.
    Pinned,
}

impl Posture {
    /// The stable word of events and of the state file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Preferred => "preferred",
            Self::Required => "required",
            Self::Pinned => "pinned",
        }
    }

    /// The posture that a configuration spells. A required node that nobody named is refused before this.
    #[must_use]
    pub(crate) fn of(exit_nodes: usize, required: bool, expected: bool) -> Self {
        match (exit_nodes, expected, required) {
            (0, _, _) => Self::None,
            (_, true, _) => Self::Pinned,
            (_, false, true) => Self::Required,
            (_, false, false) => Self::Preferred,
        }
    }
}

impl fmt::Display for Posture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_five_goals_of_the_seed_spell_their_postures() {
        assert_eq!(Posture::of(0, false, false), Posture::None);
        assert_eq!(Posture::of(1, false, false), Posture::Preferred);
        assert_eq!(Posture::of(1, true, false), Posture::Required);
        assert_eq!(Posture::of(3, true, false), Posture::Required);
        assert_eq!(Posture::of(2, true, true), Posture::Pinned);
    }

    #[test]
    fn without_an_exit_node_expected_addresses_do_not_pin() {
        assert_eq!(Posture::of(0, false, true), Posture::None);
    }
}
