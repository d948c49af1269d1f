//! From what a person typed to one concrete exit node. Pure: a status in, a node or a distinct refusal out.
//!
//! The rules are those of `tailscale up --exit-node` (`ipn/prefs.go:exitNodeIPOfArg`), with two differences: an id is
//! accepted as `id:<stable id>`, and `auto:any` is settled here, to a node that can be named. Pin the id of the result:
//! a name may pass to another machine, an id never does.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::wire::status::{BackendState, PeerStatus, StableId, Status};

/// A way to name an exit node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExitNodeArg {
    /// `auto:any`: whichever is best.
    Auto,
    /// `id:<stable id>`: this machine and no other.
    Id(StableId),
    /// A tailnet address, IPv4 or IPv6.
    Ip(IpAddr),
    /// A MagicDNS name or full name, as typed but for a final dot; case does not matter.
    Name(String),
}

/// Why an argument names no exit node, whatever the tailnet looks like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExitNodeArgError {
    /// Nothing is there.
    #[error("an exit node needs a name")]
    Empty,
    /// `auto:` with another word than `any`.
    #[error("unknown automatic exit node \"auto:{0}\": only auto:any is known")]
    UnknownAuto(String),
    /// `id:` with nothing after it.
    #[error("\"id:\" needs a stable id after it")]
    EmptyId,
    /// It holds characters that no name has.
    #[error("{0:?} is neither a name, an address, id:<stable id> nor auto:any")]
    NotAName(String),
}

impl FromStr for ExitNodeArg {
    type Err = ExitNodeArgError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ExitNodeArgError::Empty);
        }
        if let Some(word) = text.strip_prefix("auto:") {
            return match word {
                "any" => Ok(Self::Auto),
                other => Err(ExitNodeArgError::UnknownAuto(other.to_owned())),
            };
        }
        let plain =
            |text: &str| text.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char));
        if let Some(id) = text.strip_prefix("id:") {
            return match id {
                "" => Err(ExitNodeArgError::EmptyId),
                id if plain(id) => Ok(Self::Id(StableId::new(id))),
                _ => Err(ExitNodeArgError::NotAName(text.to_owned())),
            };
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Ip(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() || !plain(name) {
            return Err(ExitNodeArgError::NotAName(text.to_owned()));
        }
        Ok(Self::Name(name.to_owned()))
    }
}

impl fmt::Display for ExitNodeArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto:any"),
            Self::Id(id) => write!(f, "id:{id}"),
            Self::Ip(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// What control says of a node's connection. A hint: only a probe proves it, either way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Online {
    /// Control has it connected.
    Yes,
    /// Control has lost it.
    No {
        /// When it was last seen (RFC 3339), if control says so.
        last_seen: Option<String>,
    },
}

/// An exit node, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitNode {
    /// What to pin.
    pub id: StableId,
    /// Its name within the tailnet; the full name of a node from another tailnet.
    pub name: String,
    /// Full name without final dot.
    pub fqdn: String,
    /// Its tailnet addresses.
    pub addresses: Vec<IpAddr>,
    /// What control says of its connection.
    pub online: Online,
}

impl ExitNode {
    fn of(peer: &PeerStatus, suffix: &str) -> Self {
        let zero_time = |time: &str| time.is_empty() || time.starts_with("0001-01-01T00:00:00");
        Self {
            id: peer.id.clone(),
            name: base_name(peer.fqdn(), suffix).unwrap_or(peer.fqdn()).to_owned(),
            fqdn: peer.fqdn().to_owned(),
            addresses: peer.tailscale_ips.clone(),
            online: if peer.online {
                Online::Yes
            } else {
                Online::No { last_seen: Some(peer.last_seen.clone()).filter(|time| !zero_time(time)) }
            },
        }
    }
}

/// What a status can tell of why a node does not offer to be an exit node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotOfferingCause {
    /// Others do offer: this one does not advertise, or is not approved, or policy lets others through only.
    OthersOffer,
    /// Nobody offers: as a rule policy lacks `autogroup:internet` for this node, or no route was ever approved.
    NobodyOffers,
}

/// Why an argument resolves to no exit node now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No node has that name, address or id.
    #[error("no node {argument} in the tailnet{}", hint(.id_of.as_deref()))]
    NotFound {
        /// What was asked for.
        argument: ExitNodeArg,
        /// What could be asked for, online ones first. May be empty.
        exit_nodes: Vec<ExitNode>,
        /// The node whose stable id the argument is: it was meant as `id:`.
        id_of: Option<Box<ExitNode>>,
    },
    /// Several nodes have that name.
    #[error("{argument} names {} nodes", .ids.len())]
    Ambiguous {
        /// What was asked for.
        argument: ExitNodeArg,
        /// Their stable ids, in order.
        ids: Vec<StableId>,
    },
    /// The node is there and is no exit node for us.
    #[error("{name} offers no exit to this node")]
    NotOffering {
        /// Full name of the node.
        name: String,
        /// Its stable id.
        id: StableId,
        /// As far as the status can tell.
        cause: NotOfferingCause,
    },
    /// The node's key has expired.
    #[error("the key of {name} has expired")]
    Expired {
        /// Full name of the node.
        name: String,
        /// Its stable id.
        id: StableId,
    },
    /// The argument names this node.
    #[error("{argument} is this node itself")]
    IsSelf {
        /// What was asked for.
        argument: ExitNodeArg,
    },
    /// The daemon knows no peers yet: log in first, resolve second.
    #[error("tailscaled knows no peers yet (state {state})")]
    StillStarting {
        /// State of the daemon.
        state: BackendState,
    },
}

fn hint(node: Option<&ExitNode>) -> String {
    node.map(|node| format!("; it is the stable id of {}, which is written id:{}", node.name, node.id))
        .unwrap_or_default()
}

impl ResolveError {
    /// Returns a stable word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "exit-node-unknown",
            Self::Ambiguous { .. } => "exit-node-ambiguous",
            Self::NotOffering { .. } => "exit-node-not-offering",
            Self::Expired { .. } => "exit-node-expired",
            Self::IsSelf { .. } => "exit-node-is-self",
            Self::StillStarting { .. } => "still-starting",
        }
    }
}

/// Resolves an argument against a status that lists peers.
///
/// `suggestion` is what the daemon would choose (`suggest-exit-node`); it settles `auto:any` among those online.
///
/// # Errors
///
/// One [`ResolveError`] for each way to fail. A node that is offline is no error: see [`ExitNode::online`].
pub fn resolve(
    status: &Status,
    argument: &ExitNodeArg,
    suggestion: Option<&StableId>,
) -> Result<ExitNode, ResolveError> {
    if is_self(status, argument) {
        return Err(ResolveError::IsSelf { argument: argument.clone() });
    }
    if status.peers.is_empty() && status.backend_state != BackendState::Running {
        return Err(ResolveError::StillStarting { state: status.backend_state.clone() });
    }
    if *argument == ExitNodeArg::Auto {
        return candidates(status, suggestion).into_iter().next().ok_or_else(|| not_found(status, argument));
    }
    let suffix = &status.magic_dns_suffix;
    let mut matching: Vec<&PeerStatus> =
        status.peers.values().filter(|peer| names(argument, peer, suffix)).collect();
    let peer = match matching.as_slice() {
        [] => return Err(not_found(status, argument)),
        [peer] => *peer,
        _ => {
            matching.sort_by(|one, other| one.id.cmp(&other.id));
            let ids = matching.into_iter().map(|peer| peer.id.clone()).collect();
            return Err(ResolveError::Ambiguous { argument: argument.clone(), ids });
        }
    };
    let (name, id) = (peer.fqdn().to_owned(), peer.id.clone());
    if peer.expired {
        return Err(ResolveError::Expired { name, id });
    }
    if !peer.exit_node_option {
        let cause = if status.peers.values().any(|peer| peer.exit_node_option) {
            NotOfferingCause::OthersOffer
        } else {
            NotOfferingCause::NobodyOffers
        };
        return Err(ResolveError::NotOffering { name, id, cause });
    }
    Ok(ExitNode::of(peer, suffix))
}

/// Returns every exit node that could be used, best first: online before offline, then the suggested one, then by name
/// and id. The order depends on nothing else.
pub fn candidates(status: &Status, suggestion: Option<&StableId>) -> Vec<ExitNode> {
    let mut nodes: Vec<ExitNode> = status
        .peers
        .values()
        .filter(|peer| peer.exit_node_option && !peer.expired)
        .map(|peer| ExitNode::of(peer, &status.magic_dns_suffix))
        .collect();
    nodes.sort_by(|one, other| {
        let key = |node: &ExitNode| (node.online != Online::Yes, suggestion != Some(&node.id));
        (key(one), &one.fqdn, &one.id).cmp(&(key(other), &other.fqdn, &other.id))
    });
    nodes
}

fn not_found(status: &Status, argument: &ExitNodeArg) -> ResolveError {
    let id_of = match argument {
        ExitNodeArg::Name(name) => status.peer(&StableId::new(name.as_str())),
        ExitNodeArg::Auto | ExitNodeArg::Id(_) | ExitNodeArg::Ip(_) => None,
    };
    ResolveError::NotFound {
        argument: argument.clone(),
        exit_nodes: candidates(status, None),
        id_of: id_of.map(|peer| Box::new(ExitNode::of(peer, &status.magic_dns_suffix))),
    }
}

fn is_self(status: &Status, argument: &ExitNodeArg) -> bool {
    if let ExitNodeArg::Ip(address) = argument
        && status.tailscale_ips.contains(address)
    {
        return true;
    }
    // A node that has not logged in yet has neither id nor name.
    names(argument, &status.this_node, &status.magic_dns_suffix)
}

fn names(argument: &ExitNodeArg, peer: &PeerStatus, suffix: &str) -> bool {
    match argument {
        ExitNodeArg::Auto => false,
        ExitNodeArg::Id(id) => !peer.id.is_empty() && peer.id == *id,
        ExitNodeArg::Ip(address) => peer.tailscale_ips.contains(address),
        ExitNodeArg::Name(name) => {
            let fqdn = peer.fqdn();
            !fqdn.is_empty()
                && (fqdn.eq_ignore_ascii_case(name)
                    || base_name(fqdn, suffix).is_some_and(|base| base.eq_ignore_ascii_case(name)))
        }
    }
}

/// Returns the name within the tailnet; `None` for a name of another tailnet.
fn base_name<'a>(fqdn: &'a str, suffix: &str) -> Option<&'a str> {
    let at = fqdn.len().checked_sub(suffix.len())?;
    if suffix.is_empty() || !fqdn.is_char_boundary(at) {
        return None;
    }
    let (base, end) = fqdn.split_at(at);
    end.eq_ignore_ascii_case(suffix).then(|| base.strip_suffix('.')).flatten().filter(|base| !base.is_empty())
}
