//! A rule set as a value: tables, chains, rules, sets and their elements, equal when they mean the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::statement::Statement;

/// Which packets a table sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 and IPv6 (`NFPROTO_INET`).
    Inet,
    /// Frames on one device (`NFPROTO_NETDEV`).
    Netdev,
}

impl Family {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Netdev => 5,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inet => "inet",
            Self::Netdev => "netdev",
        })
    }
}

/// Tables that are applied together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// In the order in which they are made.
    pub tables: Vec<Table>,
}

impl Ruleset {
    /// The table of a family, where there is one.
    #[must_use]
    pub fn table(&self, family: Family) -> Option<&Table> {
        self.tables.iter().find(|table| table.family == family)
    }
}

/// One table. It has no owner flag: it survives the process that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its family.
    pub family: Family,
    /// Its name.
    pub name: String,
    /// Whose it is, as `nft` shows it; at most 250 bytes.
    pub comment: String,
    /// Names of counters that rules refer to.
    pub counters: BTreeSet<String>,
    /// Its sets by name.
    pub sets: BTreeMap<String, Set>,
    /// Its chains by name.
    pub chains: BTreeMap<String, Chain>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(family: Family, name: &str, comment: &str) -> Self {
        Self {
            family,
            name: name.to_string(),
            comment: comment.to_string(),
            counters: BTreeSet::new(),
            sets: BTreeMap::new(),
            chains: BTreeMap::new(),
        }
    }
}

/// The type of a chain's hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Decides.
    Filter,
    /// Translates addresses; sees the first packet of each flow.
    Nat,
    /// Decides, and routes anew when it changed the mark.
    Route,
}

/// Where a base chain sits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hook {
    /// Before routing.
    Prerouting,
    /// To this namespace.
    Input,
    /// Through this namespace.
    Forward,
    /// From this namespace.
    Output,
    /// After routing.
    Postrouting,
    /// Frames that arrive on a device (`netdev` only).
    Ingress {
        /// The device's name.
        device: String,
    },
    /// Frames that leave by a device (`netdev` only).
    Egress {
        /// The device's name.
        device: String,
    },
}

/// What becomes of a packet that no rule of a base chain decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// It goes on.
    Accept,
    /// It is dropped.
    Drop,
}

/// What makes a chain a base chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// Its type.
    pub kind: Kind,
    /// Where it sits.
    pub hook: Hook,
    /// Lower numbers are asked first.
    pub priority: i32,
    /// The last word.
    pub policy: Policy,
}

/// Rules in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// `None` for a chain that others jump to.
    pub base: Option<Base>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// One rule: statements from left to right, until one does not match or decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Its statements.
    pub statements: Vec<Statement>,
}

impl<const N: usize> From<[Statement; N]> for Rule {
    fn from(statements: [Statement; N]) -> Self {
        Self { statements: statements.into() }
    }
}

/// The type of one field of a set's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldKind {
    /// A link's name.
    Link,
    /// An IPv4 address.
    V4,
    /// An IPv6 address.
    V6,
    /// A transport protocol.
    Protocol,
    /// A port.
    Port,
    /// `NFPROTO_IPV4` or `NFPROTO_IPV6`.
    Layer3,
    /// A user id.
    User,
    /// An ethertype.
    EtherType,
}

impl FieldKind {
    /// Length of the value in bytes, without padding.
    pub(super) fn length(self) -> usize {
        match self {
            Self::Link | Self::V6 => 16,
            Self::V4 | Self::User => 4,
            Self::Protocol | Self::Layer3 => 1,
            Self::Port | Self::EtherType => 2,
        }
    }

    /// nft's own number of the type (`enum datatypes` of nftables), for whoever lists the rules.
    pub(super) fn nft_type(self) -> u32 {
        match self {
            Self::Layer3 => 2,
            Self::V4 => 7,
            Self::V6 => 8,
            Self::EtherType => 10,
            Self::Protocol => 12,
            Self::Port => 13,
            Self::User => 24,
            Self::Link => 41,
        }
    }
}

/// How a set's elements are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Each element is one key.
    Exact,
    /// Each element is a range in every field.
    Interval,
}

/// A named set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// The fields of its key.
    pub fields: Vec<FieldKind>,
    /// How they are compared.
    pub shape: Shape,
    /// Whether elements may end by themselves.
    pub timeouts: Timeouts,
    /// What is in it.
    pub elements: BTreeSet<Element>,
}

/// Whether a set's elements may carry a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeouts {
    /// They stay until removed.
    Never,
    /// They may.
    Allowed,
}

impl Set {
    /// An empty set.
    #[must_use]
    pub fn new(shape: Shape, fields: impl Into<Vec<FieldKind>>) -> Self {
        Self { fields: fields.into(), shape, timeouts: Timeouts::Never, elements: BTreeSet::new() }
    }

    /// With these elements.
    #[must_use]
    pub fn with(mut self, elements: impl IntoIterator<Item = Element>) -> Self {
        self.elements.extend(elements);
        self
    }
}

/// One field of an element: a value, or a range with both ends in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// A link's name.
    Link(String),
    /// Any link (intervals only).
    AnyLink,
    /// IPv4 addresses from first to last.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6 addresses from first to last.
    V6(Ipv6Addr, Ipv6Addr),
    /// Transport protocols from first to last.
    Protocol(u8, u8),
    /// Ports from first to last.
    Port(u16, u16),
    /// `NFPROTO_IPV4` (2) or `NFPROTO_IPV6` (10).
    Layer3(u8),
    /// A user id.
    User(u32),
    /// An ethertype.
    EtherType(u16),
}

impl Field {
    /// First and last value as the kernel compares them.
    pub(super) fn ends(&self) -> (Vec<u8>, Vec<u8>) {
        match self {
            Self::Link(name) => (link_bytes(name), link_bytes(name)),
            Self::AnyLink => (vec![0; 16], vec![0xff; 16]),
            Self::V4(first, last) => (first.octets().into(), last.octets().into()),
            Self::V6(first, last) => (first.octets().into(), last.octets().into()),
            Self::Protocol(first, last) => (vec![*first], vec![*last]),
            Self::Port(first, last) => (first.to_be_bytes().into(), last.to_be_bytes().into()),
            Self::Layer3(number) => (vec![*number], vec![*number]),
            Self::EtherType(number) => (number.to_be_bytes().into(), number.to_be_bytes().into()),
            Self::User(user) => (user.to_ne_bytes().into(), user.to_ne_bytes().into()),
        }
    }
}

/// A link name as the kernel holds it: 16 bytes, the rest zero.
pub(super) fn link_bytes(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

/// An element of a set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// Its fields, as the set declares them.
    pub fields: Vec<Field>,
    /// After which it is gone by itself; `None` for never.
    pub timeout: Option<Duration>,
}

impl<const N: usize> From<[Field; N]> for Element {
    fn from(fields: [Field; N]) -> Self {
        Self { fields: fields.into(), timeout: None }
    }
}

impl Element {
    /// The two ends of its key, each field padded to 4 bytes where there are several.
    pub(super) fn keys(&self) -> (Vec<u8>, Vec<u8>) {
        let mut keys = (Vec::new(), Vec::new());
        for field in &self.fields {
            let (first, last) = field.ends();
            for (key, end) in [(&mut keys.0, first), (&mut keys.1, last)] {
                key.extend(end);
                if self.fields.len() > 1 {
                    key.resize(key.len().next_multiple_of(4), 0);
                }
            }
        }
        keys
    }
}
