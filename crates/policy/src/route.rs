//! Where a rule's packets leave (our addition to the sandbox API's rules), and a workload's posture.

use std::collections::BTreeSet;
use std::fmt;

/// An exit node as a rule names it: MagicDNS name, FQDN, tailnet address, or `id:` and a stable id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExitNode(Box<str>);

impl ExitNode {
    /// Reads an exit node's name. Case is folded but for stable ids.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let legal = |text: &str, extra: &[u8]| {
            !text.is_empty()
                && text.len() <= 253
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || extra.contains(&b))
        };
        match text.strip_prefix("id:") {
            Some(id) => legal(id, b"").then(|| Self(text.into())),
            None => {
                let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
                let plain = legal(&name, b".-") && name.split('.').all(|label| !label.is_empty());
                (plain || name.parse::<std::net::IpAddr>().is_ok()).then(|| Self(name.into()))
            }
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An egress service: the namespace and name of the Service that stands for a tailnet device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceRef {
    namespace: Box<str>,
    name: Box<str>,
}

impl ServiceRef {
    /// Reads `namespace/name`, both DNS-1123 labels.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let label = |text: &str| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            let ends =
                text.bytes().next().zip(text.bytes().last()).is_some_and(|(a, b)| inner(a) && inner(b));
            ends && text.len() <= 63 && text.bytes().all(|b| inner(b) || b == b'-')
        };
        let (namespace, name) = text.split_once('/')?;
        (label(namespace) && label(name)).then(|| Self { namespace: namespace.into(), name: name.into() })
    }

    /// The Service's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The Service's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ServiceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where a rule lets its packets leave. Ordered from what binds a packet most to what binds it least.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// By one of these exit nodes; at least one.
    ExitNodes(BTreeSet<ExitNode>),
    /// By the proxy of an egress service.
    Service(ServiceRef),
    /// As the workload's posture says: a rule that names no route.
    Posture,
    /// By the machine's normal route, past every exit node.
    Uplink,
}

/// The one way that a packet took.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Via {
    /// As the posture says.
    Posture,
    /// By the normal route, because a rule said so.
    Uplink,
    /// By this exit node, because a rule named it.
    ExitNode(ExitNode),
    /// By this egress service's proxy.
    Service(ServiceRef),
}

impl Route {
    /// Whether a packet may go `via`.
    #[must_use]
    pub fn contains(&self, via: &Via) -> bool {
        match (self, via) {
            (Self::Posture, Via::Posture) | (Self::Uplink, Via::Uplink) => true,
            (Self::ExitNodes(nodes), Via::ExitNode(node)) => nodes.contains(node),
            (Self::Service(mine), Via::Service(theirs)) => mine == theirs,
            (Self::ExitNodes(_) | Self::Service(_) | Self::Posture | Self::Uplink, _) => false,
        }
    }

    /// Whether every way of this route is one of `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ExitNodes(mine), Self::ExitNodes(theirs)) => mine.is_subset(theirs),
            (Self::ExitNodes(_) | Self::Service(_) | Self::Posture | Self::Uplink, _) => self == other,
        }
    }

    /// A way of this route that is not one of `other`.
    #[must_use]
    pub fn outside(&self, other: &Self) -> Option<Via> {
        self.ways().into_iter().find(|via| !other.contains(via))
    }

    /// Every way of this route; at least one.
    #[must_use]
    pub fn ways(&self) -> Vec<Via> {
        match self {
            Self::ExitNodes(nodes) => nodes.iter().cloned().map(Via::ExitNode).collect(),
            Self::Service(service) => vec![Via::Service(service.clone())],
            Self::Posture => vec![Via::Posture],
            Self::Uplink => vec![Via::Uplink],
        }
    }

    /// What is in both, if anything is.
    #[must_use]
    pub fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::ExitNodes(mine), Self::ExitNodes(theirs)) => {
                let both: BTreeSet<ExitNode> = mine & theirs;
                (!both.is_empty()).then_some(Self::ExitNodes(both))
            }
            (Self::ExitNodes(_) | Self::Service(_) | Self::Posture | Self::Uplink, _) => {
                (self == other).then(|| self.clone())
            }
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExitNodes(nodes) => {
                let nodes: Vec<&str> = nodes.iter().map(ExitNode::as_str).collect();
                write!(f, "exit node {}", nodes.join(" or "))
            }
            Self::Service(service) => write!(f, "egress service {service}"),
            Self::Posture => f.write_str("the posture's route"),
            Self::Uplink => f.write_str("the uplink"),
        }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Posture => f.write_str("the posture's route"),
            Self::Uplink => f.write_str("the uplink"),
            Self::ExitNode(node) => write!(f, "exit node {}", node.as_str()),
            Self::Service(service) => write!(f, "egress service {service}"),
        }
    }
}

/// How a workload's Internet traffic is routed, from the weakest promise to the strongest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Posture {
    /// By the normal route.
    #[default]
    None,
    /// By an exit node, when one is named.
    Preferred,
    /// By an exit node; naming none is an error.
    Required,
    /// By an exit node whose public address is in a list.
    Pinned,
}

impl Posture {
    /// The posture's word in files.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Preferred => "preferred",
            Self::Required => "required",
            Self::Pinned => "pinned",
        }
    }

    /// The posture of that word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        [Self::None, Self::Preferred, Self::Required, Self::Pinned]
            .into_iter()
            .find(|posture| posture.word() == word)
    }
}
