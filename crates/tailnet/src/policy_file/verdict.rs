//! What comes of a question: allowed by which rule, refused for want of which, or beyond what the file tells.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Serialize, Serializer};

use super::hujson::Position;
use super::model::{RuleRef, Tag};
use super::service::{Lack, Service};

/// The answer for each address family; `None` where the destination has no address of that family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// IPv4.
    pub v4: Option<Verdict>,
    /// IPv6.
    pub v6: Option<Verdict>,
}

impl Answer {
    /// Returns the families that there are, by name.
    pub fn families(&self) -> impl Iterator<Item = (&'static str, &Verdict)> {
        [("IPv4", &self.v4), ("IPv6", &self.v6)]
            .into_iter()
            .filter_map(|(name, verdict)| Some((name, verdict.as_ref()?)))
    }

    /// Returns the answer in a word: allowed if any family is, refused only if every one is.
    pub fn overall(&self) -> Overall {
        self.families().map(|(_, verdict)| verdict.overall()).max().unwrap_or(Overall::Refused)
    }
}

/// A verdict without its reasons, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Overall {
    /// No.
    Refused,
    /// The file alone does not tell.
    Indeterminate,
    /// Yes.
    Allowed,
}

/// The answer for one address family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// A rule allows it.
    Allowed {
        /// Which: the first in the file that does.
        #[serde(flatten)]
        rule: RuleRef,
        /// What it opens there.
        opens: Vec<Service>,
        /// Only by routers or exit nodes with one of these tags; empty: by any.
        #[serde(skip_serializing_if = "BTreeSet::is_empty")]
        via: BTreeSet<Tag>,
    },
    /// No rule allows it.
    Refused {
        /// Why.
        why: Refusal,
    },
    /// It depends on something that the file does not tell.
    Indeterminate {
        /// The first rule that may allow it; `None` if the doubt is not about one rule.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<RuleRef>,
        /// On what it depends. Never empty.
        why: Vec<Doubt>,
    },
}

impl Verdict {
    /// Returns the verdict without its reasons.
    pub fn overall(&self) -> Overall {
        match self {
            Self::Allowed { .. } => Overall::Allowed,
            Self::Refused { .. } => Overall::Refused,
            Self::Indeterminate { .. } => Overall::Indeterminate,
        }
    }
}

/// A rule that comes close.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Near {
    /// Which.
    #[serde(flatten)]
    pub rule: RuleRef,
    /// What does not fit. Never empty.
    pub lacks: Vec<Lack>,
}

/// Why something is refused for certain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No rule allows it.
    NoRule {
        /// The rule that comes closest.
        nearest: Option<Near>,
        /// A rule that would allow it, as one would write it into this file.
        missing: String,
    },
    /// No rule allows it, and the file does not define this tag at all.
    UndefinedTag(Tag),
    /// The tailnet has no such device.
    NoSuchDevice(String),
    /// The device offers no approved default route of this family.
    NotApproved {
        /// Its name.
        device: String,
        /// Whether the file approves it by itself once the device advertises.
        approval: Approval,
    },
}

/// How an exit node comes to be approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Approval {
    /// `autoApprovers.exitNode` approves it when it advertises.
    Automatic,
    /// Somebody has to.
    ByHand,
}

impl Refusal {
    /// Returns a stable word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoRule { .. } => "no-rule",
            Self::UndefinedTag(_) => "undefined-tag",
            Self::NoSuchDevice(_) => "no-such-device",
            Self::NotApproved { .. } => "not-approved",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRule { nearest: None, missing } => {
                write!(f, "no rule allows it; one that would: {missing}")
            }
            Self::NoRule { nearest: Some(near), missing } => {
                let lacks: Vec<String> = near.lacks.iter().map(ToString::to_string).collect();
                let lacks = lacks.join(" and ");
                write!(
                    f,
                    "no rule allows it; nearest is {}, but for its {lacks}; one that would: {missing}",
                    near.rule
                )
            }
            Self::UndefinedTag(tag) => write!(f, "no rule allows it, and {tag} is not in tagOwners"),
            Self::NoSuchDevice(name) => write!(f, "the tailnet has no device {name}"),
            Self::NotApproved { device, approval } => {
                let how = match approval {
                    Approval::Automatic => "autoApprovers.exitNode approves it once it advertises",
                    Approval::ByHand => "somebody has to approve it",
                };
                write!(f, "{device} has no approved default route; {how}")
            }
        }
    }
}

impl Serialize for Refusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("reason", self.reason())?;
        map.serialize_entry("message", &self.to_string())?;
        if let Self::NoRule { nearest, missing } = self {
            map.serialize_entry("nearest", nearest)?;
            map.serialize_entry("missing", missing)?;
        }
        map.end()
    }
}

/// What a verdict depends on and the file does not tell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doubt {
    /// A rule asks for a device posture.
    Posture(RuleRef),
    /// `defaultSrcPosture` asks every rule without one of its own for a posture.
    DefaultPosture(Position),
    /// A rule has a field that is not known.
    UnknownField(RuleRef, String),
    /// The file has a section that is not known.
    UnknownSection(Position, String),
    /// There are neither `acls` nor `grants`: headscale then allows everything, the hosted service nothing.
    NoRules,
    /// A rule names something that is not evaluated: an IP set, a service, an autogroup that is not known, a role.
    Opaque(RuleRef, String),
    /// A rule names a group with members that are no login names.
    GroupMembers(RuleRef, String),
    /// A rule depends on what the source is or which address it has, which is not known.
    UnknownSource(RuleRef, String),
    /// A rule depends on what the destination is, which is not known.
    UnknownDestination(RuleRef, String),
    /// A rule opens a subnet, and no known device serves the address.
    NoKnownRouter(RuleRef),
    /// A rule has a destination of all addresses, which control servers read differently.
    EveryAddress(RuleRef),
    /// Whether the exit node is approved is not in the file.
    ApprovalUnknown(String),
    /// The alias stands for many addresses.
    ManyAddresses(String),
    /// The tag is not in `tagOwners`: no device can take it, and one that kept it may yet be allowed.
    UndefinedTag(Tag),
    /// The tailnet has no IPv4 (`disableIPv4`), so this concerns only what is told otherwise.
    Ipv4Disabled(Position),
}

impl Doubt {
    /// Returns a stable word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Posture(_) | Self::DefaultPosture(_) => "posture",
            Self::UnknownField(..) => "unknown-field",
            Self::UnknownSection(..) => "unknown-section",
            Self::NoRules => "no-rules",
            Self::Opaque(..) => "not-evaluated",
            Self::GroupMembers(..) => "group-members",
            Self::UnknownSource(..) => "source-unknown",
            Self::UnknownDestination(..) => "destination-unknown",
            Self::NoKnownRouter(_) => "no-known-router",
            Self::EveryAddress(_) => "every-address",
            Self::ApprovalUnknown(_) => "approval-unknown",
            Self::ManyAddresses(_) => "many-addresses",
            Self::UndefinedTag(_) => "undefined-tag",
            Self::Ipv4Disabled(_) => "ipv4-disabled",
        }
    }

    /// Returns the rule that it is about.
    pub fn rule(&self) -> Option<RuleRef> {
        match self {
            Self::Posture(rule)
            | Self::UnknownField(rule, _)
            | Self::Opaque(rule, _)
            | Self::GroupMembers(rule, _)
            | Self::UnknownSource(rule, _)
            | Self::UnknownDestination(rule, _)
            | Self::NoKnownRouter(rule)
            | Self::EveryAddress(rule) => Some(*rule),
            Self::DefaultPosture(_)
            | Self::UnknownSection(..)
            | Self::NoRules
            | Self::ApprovalUnknown(_)
            | Self::ManyAddresses(_)
            | Self::UndefinedTag(_)
            | Self::Ipv4Disabled(_) => None,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Posture(rule) => {
                write!(f, "{rule} asks for a device posture, which only the control server knows")
            }
            Self::DefaultPosture(at) => {
                write!(
                    f,
                    "defaultSrcPosture (line {}) asks for a device posture, which only the control server knows",
                    at.line
                )
            }
            Self::UnknownField(rule, field) => {
                write!(f, "{rule} has a field {field:?} that is not known here")
            }
            Self::UnknownSection(at, name) => {
                write!(f, "section {name:?} (line {}) is not known here", at.line)
            }
            Self::NoRules => f.write_str(
                "there are neither acls nor grants: headscale then allows everything, Tailscale nothing",
            ),
            Self::Opaque(rule, word) => write!(f, "{rule} names {word}, which is not evaluated here"),
            Self::GroupMembers(rule, group) => {
                write!(f, "{rule} names {group}, which has members that are no login names")
            }
            Self::UnknownSource(rule, word) => {
                write!(f, "{rule} holds for {word}; whether the source is that is not known")
            }
            Self::UnknownDestination(rule, word) => {
                write!(f, "{rule} holds for {word}; whether the destination is that is not known")
            }
            Self::NoKnownRouter(rule) => {
                write!(f, "{rule} covers the address, and no known device serves its subnet")
            }
            Self::EveryAddress(rule) => {
                write!(
                    f,
                    "{rule} names all addresses, which control servers read differently: use autogroup:internet"
                )
            }
            Self::ApprovalUnknown(device) => {
                write!(f, "whether {device} advertises a default route and is approved is not in the file")
            }
            Self::ManyAddresses(name) => write!(f, "{name} stands for more than one address"),
            Self::UndefinedTag(tag) => {
                write!(f, "{tag} is not in tagOwners: no device can take it, though one may have kept it")
            }
            Self::Ipv4Disabled(at) => {
                write!(f, "disableIPv4 (line {}): the tailnet has no IPv4 addresses", at.line)
            }
        }
    }
}

impl Serialize for Doubt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("reason", self.reason())?;
        map.serialize_entry("message", &self.to_string())?;
        if let Some(rule) = self.rule() {
            map.serialize_entry("rule", &rule.path())?;
        }
        map.end()
    }
}
