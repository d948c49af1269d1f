//! A policy as it was read: rules whose every word has been looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use super::hujson::Position;
use super::service::Service;
use super::verdict::Doubt;

/// A tag, as `tag:worker`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Tag(String);

/// Why a word is no tag (tailscale `tailcfg/tailcfg.go:CheckTag`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no tag: want \"tag:\", a letter, then letters, digits and dashes")]
pub struct TagError(String);

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        let name = text.strip_prefix("tag:").unwrap_or_default();
        let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if letters && name.starts_with(|char: char| char.is_ascii_alphabetic()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TagError(text.to_owned()))
        }
    }
}

impl Tag {
    /// Returns the tag with its `tag:`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The section that a rule stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// `acls`.
    Acls,
    /// `grants`.
    Grants,
}

/// Which rule: its section, its index from 0, and where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleRef {
    /// Section.
    pub section: Section,
    /// Index within the section, from 0.
    pub index: usize,
    /// Where the rule begins.
    pub at: Position,
}

impl RuleRef {
    /// Returns the rule's path in the file, as `acls[3]`.
    pub fn path(&self) -> String {
        let section = match self.section {
            Section::Acls => "acls",
            Section::Grants => "grants",
        };
        format!("{section}[{}]", self.index)
    }
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (line {})", self.path(), self.at.line)
    }
}

impl Serialize for RuleRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut out = serializer.serialize_struct("RuleRef", 3)?;
        out.serialize_field("rule", &self.path())?;
        out.serialize_field("line", &self.at.line)?;
        out.serialize_field("column", &self.at.column)?;
        out.end()
    }
}

/// A tailnet's policy, read without a mistake.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    pub(super) groups: BTreeMap<String, Group>,
    pub(super) hosts: BTreeMap<String, IpNet>,
    pub(super) tags: BTreeSet<Tag>,
    /// `None`: the file has neither `acls` nor `grants`, and what that means differs between control servers.
    pub(super) rules: Option<Vec<Rule>>,
    pub(super) approvers: AutoApprovers,
    pub(super) tests: Vec<FileTest>,
    /// What the file holds beside the rules that may change what they mean.
    pub(super) doubts: Vec<Doubt>,
    pub(super) ipv4: Ipv4,
}

/// Whether the tailnet gives out IPv4 addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Ipv4 {
    #[default]
    On,
    /// `disableIPv4`, here.
    Off(Position),
}

/// Members of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) users: BTreeSet<String>,
    /// Members that are no login names: the hosted service knows such, and how it nests them is not evaluated here.
    pub(super) others: BTreeSet<String>,
}

/// One entry of `acls` or `grants`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub(super) at: RuleRef,
    pub(super) sources: Vec<Selector>,
    pub(super) targets: Vec<Target>,
    /// Only by routers and exit nodes with one of these tags; empty: by any.
    pub(super) via: Vec<Tag>,
    /// What else must hold, that the file alone does not tell.
    pub(super) doubts: Vec<Doubt>,
}

/// A destination of a rule, and what is open there; nothing is where a grant gives capabilities only.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) selector: Selector,
    pub(super) services: Vec<Service>,
}

/// A word that stands for devices, people or addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Selector {
    /// `*`: every device of the tailnet and every approved subnet, not the Internet.
    Any,
    /// An address, a prefix, or an alias of one.
    Prefix(IpNet),
    User(String),
    Group(String),
    Tag(Tag),
    Internet,
    Member,
    Tagged,
    /// `autogroup:self`: devices of the same user.
    Own,
    /// `autogroup:danger-all`: everything, even what is outside.
    Everything,
    /// `autogroup:admin` and other roles: some users, which the file does not name.
    Role(String),
    /// `ipset:`, `svc:`, autogroups that this crate does not know: what they stand for is not evaluated.
    Opaque(String),
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::User(word) | Self::Group(word) | Self::Role(word) | Self::Opaque(word) => f.write_str(word),
            Self::Tag(tag) => tag.fmt(f),
            Self::Internet => f.write_str("autogroup:internet"),
            Self::Member => f.write_str("autogroup:member"),
            Self::Tagged => f.write_str("autogroup:tagged"),
            Self::Own => f.write_str("autogroup:self"),
            Self::Everything => f.write_str("autogroup:danger-all"),
        }
    }
}

/// Who needs nobody's approval to offer a route.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AutoApprovers {
    pub(super) exit_node: Vec<Selector>,
    pub(super) routes: BTreeMap<IpNet, Vec<Selector>>,
}

/// One entry of `tests`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileTest {
    pub(super) at: Position,
    pub(super) source: Selector,
    /// As written, for messages.
    pub(super) source_word: String,
    pub(super) protocol: Option<super::service::Protocol>,
    pub(super) accept: Vec<TestTarget>,
    pub(super) deny: Vec<TestTarget>,
}

/// One line of a test's `accept` or `deny`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TestTarget {
    pub(super) at: Position,
    pub(super) word: String,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Policy {
    /// Tells how many rules there are in `acls` and `grants`.
    pub fn rule_count(&self) -> usize {
        self.rules.as_ref().map_or(0, Vec::len)
    }

    /// Returns the tags that the policy defines, in order.
    pub fn tags(&self) -> impl Iterator<Item = &Tag> {
        self.tags.iter()
    }
}
