//! From what a person typed to one exit node. Pure; the rules are the CLI's (tailscale `ipn/prefs.go:exitNodeIPOfArg`),
//! with `id:` added and every way to fail told apart.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::{BackendState, PeerStatus, StableId, Status};

#[cfg(test)]
mod tests;

/// How an exit node was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitNodeArg {
    /// `auto:any`: whichever is best.
    Auto,
    /// `id:<stable id>`: this machine and no other, whatever it is called.
    Id(StableId),
    /// A tailnet address.
    Address(IpAddr),
    /// A MagicDNS name, short or full; lower case, without the final dot.
    Name(String),
}

/// Why a word cannot name an exit node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgError {
    /// Nothing was written.
    #[error("an exit node's name is empty")]
    Empty,
    /// `auto:` with a word that tailscaled does not know.
    #[error("{0:?} is not known: only auto:any is")]
    UnknownAuto(String),
    /// `id:` without an id.
    #[error("id: needs a stable id after the colon")]
    NoId,
    /// Not a DNS name and not an address.
    #[error("{0:?} is neither a MagicDNS name nor a tailnet address")]
    NotAName(String),
}

impl FromStr for ExitNodeArg {
    type Err = ArgError;

    fn from_str(text: &str) -> Result<Self, ArgError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ArgError::Empty);
        }
        if let Some(word) = text.strip_prefix("auto:") {
            return if word == "any" { Ok(Self::Auto) } else { Err(ArgError::UnknownAuto(text.into())) };
        }
        let plain = |byte: u8| byte.is_ascii_graphic();
        if let Some(id) = text.strip_prefix("id:") {
            return match id {
                "" => Err(ArgError::NoId),
                id if id.bytes().all(plain) => Ok(Self::Id(StableId::new(id))),
                _ => Err(ArgError::NotAName(text.into())),
            };
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        if name.len() > 253 || !name.split('.').all(label) {
            return Err(ArgError::NotAName(text.into()));
        }
        Ok(Self::Name(name))
    }
}

impl fmt::Display for ExitNodeArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto:any"),
            Self::Id(id) => write!(f, "id:{id}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// The node that an argument means. That it exists and offers itself is certain; that it works is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitNode {
    /// Its stable id.
    pub id: StableId,
    /// Its full name without the final dot.
    pub fqdn: String,
    /// Its tailnet addresses.
    pub addresses: Vec<IpAddr>,
    /// What control says of its connection: a hint.
    pub online: bool,
}

/// An exit node that there is, for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// Its name: short within this tailnet, else full.
    pub name: String,
    /// What control says of its connection.
    pub online: bool,
}

impl fmt::Display for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, if self.online { "online" } else { "offline" })
    }
}

/// Why an argument means no exit node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// There is no network map yet: names mean nothing before it.
    #[error("tailscaled is still starting ({state}): no name can be resolved yet")]
    StillStarting {
        /// What its backend is doing.
        state: BackendState,
    },
    /// No node is meant.
    #[error("no node of the tailnet is {named}{}{}", id_hint(id_of.as_deref()), list(offered))]
    NotFound {
        /// As it was named.
        named: String,
        /// The node whose stable id this is: it lacks its `id:`.
        id_of: Option<Box<ExitNode>>,
        /// The exit nodes that there are, by name.
        offered: Vec<Offered>,
    },
    /// Several are.
    #[error("{named} is the name of several nodes: {}", ids.iter().map(|id| format!("id:{id}")).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// As it was named.
        named: String,
        /// Their stable ids, in order.
        ids: Vec<StableId>,
    },
    /// The node exists and is no exit node to us: it does not advertise it, nobody approved it, or policy hides it.
    #[error("{name} is no exit node for this one")]
    NotOffering {
        /// Its stable id.
        id: StableId,
        /// Its name.
        name: String,
    },
    /// Its key has expired.
    #[error("the key of {name} has expired")]
    Expired {
        /// Its stable id.
        id: StableId,
        /// Its name.
        name: String,
    },
    /// It is this node.
    #[error("{named} is this node itself")]
    IsSelf {
        /// As it was named.
        named: String,
    },
}

fn id_hint(node: Option<&ExitNode>) -> String {
    node.map(|node| format!("; it is the stable id of {}: write id:{}", node.fqdn, node.id))
        .unwrap_or_default()
}

fn list(offered: &[Offered]) -> String {
    if offered.is_empty() {
        return "; it offers no exit node at all".to_owned();
    }
    let names: Vec<String> = offered.iter().map(ToString::to_string).collect();
    format!("; exit nodes: {}", names.join(", "))
}

/// Finds the node that `arg` means; for `auto:any` the first of [`candidates`].
///
/// # Errors
/// [`ResolveError`]. Being offline is no error: control's word is no proof.
pub fn resolve(
    status: &Status,
    arg: &ExitNodeArg,
    suggested: Option<&StableId>,
) -> Result<ExitNode, ResolveError> {
    let suffix = &status.magic_dns_suffix;
    // After a logout WireGuard's last peers are still told, by their keys alone.
    let knows_peers = status.peers.values().any(|peer| !peer.id.is_empty());
    if status.backend_state != BackendState::Running && !knows_peers {
        return Err(ResolveError::StillStarting { state: status.backend_state.clone() });
    }
    let not_found = || ResolveError::NotFound {
        named: arg.to_string(),
        id_of: id_without_prefix(status, arg),
        offered: offered(status),
    };
    if *arg == ExitNodeArg::Auto {
        return candidates(status, suggested).into_iter().next().ok_or_else(not_found);
    }
    if is(&status.this_node, arg, suffix) {
        return Err(ResolveError::IsSelf { named: arg.to_string() });
    }
    let mut meant: Vec<&PeerStatus> = status.peers.values().filter(|peer| is(peer, arg, suffix)).collect();
    meant.sort_by(|a, b| a.id.cmp(&b.id));
    match meant.as_slice() {
        [] => Err(not_found()),
        [peer] => {
            let (id, name) = (peer.id.clone(), short_name(peer, suffix));
            if peer.expired {
                Err(ResolveError::Expired { id, name })
            } else if !peer.exit_node_option {
                Err(ResolveError::NotOffering { id, name })
            } else {
                Ok(exit_node(peer))
            }
        }
        several => Err(ResolveError::Ambiguous {
            named: arg.to_string(),
            ids: several.iter().map(|peer| peer.id.clone()).collect(),
        }),
    }
}

/// Every exit node that `auto:any` may mean, best first: those that control calls online, among them the one that the
/// daemon suggests (`suggested`), then by name and id. The order depends on nothing else.
pub fn candidates(status: &Status, suggested: Option<&StableId>) -> Vec<ExitNode> {
    let mut usable: Vec<&PeerStatus> = usable(status).collect();
    let suffix = &status.magic_dns_suffix;
    usable.sort_by_cached_key(|peer| {
        (!peer.online, suggested != Some(&peer.id), short_name(peer, suffix), peer.id.clone())
    });
    usable.into_iter().map(exit_node).collect()
}

/// The node whose stable id was given where a name was expected. Not taken for it: a machine may be named like an id.
fn id_without_prefix(status: &Status, arg: &ExitNodeArg) -> Option<Box<ExitNode>> {
    // A name has lost its case, an id has not.
    let ExitNodeArg::Name(name) = arg else { return None };
    let peer = status.peers.values().find(|peer| peer.id.as_str().eq_ignore_ascii_case(name))?;
    Some(Box::new(exit_node(peer)))
}

/// The exit nodes that there are, by name, for a message.
pub fn offered(status: &Status) -> Vec<Offered> {
    let mut offered: Vec<Offered> = usable(status)
        .map(|peer| Offered { name: short_name(peer, &status.magic_dns_suffix), online: peer.online })
        .collect();
    offered.sort_by(|a, b| (&a.name, !a.online).cmp(&(&b.name, !b.online)));
    offered
}

fn usable(status: &Status) -> impl Iterator<Item = &PeerStatus> {
    status.peers.values().filter(|peer| peer.exit_node_option && !peer.expired)
}

/// A peer's name: short within this tailnet, full for one shared in from another.
pub fn short_name(peer: &PeerStatus, suffix: &str) -> String {
    let fqdn = peer.fqdn();
    let short = fqdn.strip_suffix(suffix).and_then(|name| name.strip_suffix('.'));
    short.filter(|_| !suffix.is_empty()).unwrap_or(fqdn).to_owned()
}

/// The host name that a machine gives itself is never consulted: anyone may claim it.
fn is(peer: &PeerStatus, arg: &ExitNodeArg, suffix: &str) -> bool {
    match arg {
        ExitNodeArg::Auto => false,
        ExitNodeArg::Id(id) => !id.is_empty() && peer.id == *id,
        ExitNodeArg::Address(address) => peer.tailscale_ips.contains(address),
        ExitNodeArg::Name(name) => {
            !peer.fqdn().is_empty()
                && (peer.fqdn().eq_ignore_ascii_case(name)
                    || short_name(peer, suffix).eq_ignore_ascii_case(name))
        }
    }
}

fn exit_node(peer: &PeerStatus) -> ExitNode {
    ExitNode {
        id: peer.id.clone(),
        fqdn: peer.fqdn().to_owned(),
        addresses: peer.tailscale_ips.clone(),
        online: peer.online,
    }
}
