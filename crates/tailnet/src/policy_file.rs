//! A tailnet's policy file: what it lets a tag reach, which rule says so, which is missing. Pure.
//!
//! ```
//! use sallyport_tailnet::policy_file::{self, Destination, Policy, Source, Verdict, World};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::parse(r#"{
//!     "tagOwners": { "tag:worker": [], "tag:db": [] },
//!     // Workers reach the database and nothing else.
//!     "acls": [{ "action": "accept", "src": ["tag:worker"], "dst": ["tag:db:5432"] }],
//! }"#)?;
//! let source = Source::tagged("tag:worker".parse()?);
//! let destination: Destination = "tag:db:5432".parse()?;
//! let answer = policy_file::may_reach(&policy, &World::unknown(), &source, &destination);
//! for (family, verdict) in answer.families() {
//!     match verdict {
//!         Verdict::Allowed { rule, .. } => println!("{family}: allowed by {rule}"),
//!         Verdict::Refused { why } => println!("{family}: refused: {why}"),
//!         Verdict::Indeterminate { why, .. } => println!("{family}: depends on {} things", why.len()),
//!     }
//! }
//! # assert_eq!(answer.overall(), policy_file::Overall::Allowed);
//! # Ok(())
//! # }
//! ```
//!
//! **Answers are never guesses.** Where the file alone does not tell, the verdict is [`Verdict::Indeterminate`] and
//! says on what it depends: a device posture, a user whom a device belongs to, an address that is not known, an IP set
//! or service (which are not evaluated), a field or section that this crate does not know, whether an exit node is
//! approved. A [`World`], for example of a `status`, settles some of these.
//!
//! **Readings** (sources: `tailscale.com/kb/1337`, headscale `hscontrol/policy/v2`, tailscale `wgengine/filter`):
//! - Rules only allow; without `acls` and `grants` control servers differ, so nothing is decided.
//! - A tagged device is nobody's. A [`Source`] or [`Host`] given by a tag has that tag and no other.
//! - `*` as destination is the tailnet and its approved subnets, not the Internet; that takes `autogroup:internet`.
//! - A tag does not stand for the subnets behind its devices; a prefix or alias stands for its own addresses only.
//! - An omitted protocol means TCP, UDP, ICMP and ICMPv6. A ping passes wherever any port is open.
//! - `via` binds what goes by a router or exit node, not what goes to a device.
//! - An alias of `hosts` goes before a device's name.
//! - Which node a status-fed world shows is itself the work of a policy: what it lacks is unknown, not absent.

mod evaluate;
mod file_tests;
mod fit;
mod hujson;
mod missing;
mod mistake;
mod model;
mod place;
mod ranges;
mod read;
mod selector;
mod service;
mod verdict;
mod world;

pub use evaluate::{may_reach, may_use_exit};
pub use file_tests::{Demand, Outcome, TestResult, run_tests};
pub use hujson::{MAX_BYTES, Position};
pub use mistake::{Mistake, Mistakes};
pub use model::{Policy, RuleRef, Section, Tag, TagError};
pub use service::{Lack, Protocol, ProtocolError, Service};
pub use verdict::{Answer, Approval, Doubt, Near, Overall, Refusal, Verdict};
pub use world::{Coverage, Destination, DestinationError, Device, Host, Identity, Routes, Source, World};

impl Policy {
    /// Reads a policy file of at most [`MAX_BYTES`].
    ///
    /// # Errors
    ///
    /// Every mistake of the file with line and column; a text that is no HuJSON has one.
    pub fn parse(text: &str) -> Result<Self, Mistakes> {
        let document = hujson::parse(text).map_err(|broken| Mistakes::one(broken.at, broken.why))?;
        read::read(&document)
    }

    /// Reads a policy file that may not be text at all.
    ///
    /// # Errors
    ///
    /// As [`Policy::parse`]; bytes that are no UTF-8 are one mistake, with the place of the first.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, Mistakes> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(error) => {
                let before = &bytes[..error.valid_up_to()];
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
                Err(Mistakes::one(Position { line, column }, "this is no UTF-8".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
