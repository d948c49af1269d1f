//! `GET status`: the daemon, this node and its peers (tailscale `ipn/ipnstate/ipnstate.go`, types `Status` and
//! `PeerStatus`).
//!
//! Judge an exit node by its entry in [`Status::peers`], never by [`Status::exit_node_status`]: the latter is filled
//! from the last full network map and goes on saying "online" of a node that a delta has since taken offline.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::zero_if_null;

/// A node's stable id: what a preference pins, and what no other machine ever inherits.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StableId(String);

impl StableId {
    /// Wraps an id as the control server spelled it.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// Returns the id as it is written on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether this is the zero id, which names no node.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for StableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the daemon's backend is doing; words in `status`, numbers 0 to 6 on the bus (`ipn/backend.go:State`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum BackendState {
    /// Nothing is known yet: the daemon has just started, or `start` was called.
    #[default]
    NoState,
    /// Another user of this machine holds the daemon (Windows).
    InUseOtherUser,
    /// There is no valid login: a key or a browser is needed.
    NeedsLogin,
    /// Logged in; an administrator has to approve the device.
    NeedsMachineAuth,
    /// The preference `WantRunning` is false.
    Stopped,
    /// Logged in, and waiting for a network map and a first relay or peer.
    Starting,
    /// Up.
    Running,
    /// A word or number that this crate does not know.
    Other(String),
}

impl BackendState {
    const KNOWN: [Self; 7] = [
        Self::NoState,
        Self::InUseOtherUser,
        Self::NeedsLogin,
        Self::NeedsMachineAuth,
        Self::Stopped,
        Self::Starting,
        Self::Running,
    ];

    /// Returns the state that the bus writes as `number`.
    pub fn from_number(number: i64) -> Self {
        usize::try_from(number)
            .ok()
            .and_then(|index| Self::KNOWN.get(index).cloned())
            .unwrap_or_else(|| Self::Other(number.to_string()))
    }

    /// Returns the word that `status` writes.
    pub fn as_str(&self) -> &str {
        match self {
            Self::NoState => "NoState",
            Self::InUseOtherUser => "InUseOtherUser",
            Self::NeedsLogin => "NeedsLogin",
            Self::NeedsMachineAuth => "NeedsMachineAuth",
            Self::Stopped => "Stopped",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Other(word) => word,
        }
    }
}

impl From<String> for BackendState {
    fn from(word: String) -> Self {
        // A daemon that has no state yet may leave the word out.
        if word.is_empty() {
            return Self::NoState;
        }
        Self::KNOWN.iter().find(|state| state.as_str() == word).cloned().unwrap_or(Self::Other(word))
    }
}

impl From<BackendState> for String {
    fn from(state: BackendState) -> Self {
        state.as_str().to_owned()
    }
}

impl fmt::Display for BackendState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The daemon's whole answer to `GET status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Version of the daemon, as `1.102.5-t...`.
    #[serde(rename = "Version", deserialize_with = "zero_if_null")]
    pub version: String,
    /// Whether there is a TUN device; false means userspace networking.
    #[serde(rename = "TUN", deserialize_with = "zero_if_null")]
    pub tun: bool,
    /// State of the backend.
    #[serde(rename = "BackendState", deserialize_with = "zero_if_null")]
    pub backend_state: BackendState,
    /// Whether a node key exists, so that no auth key is needed to come back.
    #[serde(rename = "HaveNodeKey", deserialize_with = "zero_if_null")]
    pub have_node_key: bool,
    /// Where a browser has to go, if the daemon waits for one.
    #[serde(rename = "AuthURL", deserialize_with = "zero_if_null")]
    pub auth_url: String,
    /// This node's tailnet addresses.
    #[serde(rename = "TailscaleIPs", deserialize_with = "zero_if_null")]
    pub tailscale_ips: Vec<IpAddr>,
    /// This node.
    #[serde(rename = "Self", deserialize_with = "zero_if_null")]
    pub this_node: PeerStatus,
    /// The exit node as the last full map had it. Stale by design: see the module's note.
    #[serde(rename = "ExitNodeStatus")]
    pub exit_node_status: Option<ExitNodeStatus>,
    /// What the daemon finds wrong, in words for people.
    #[serde(rename = "Health", deserialize_with = "zero_if_null")]
    pub health: Vec<String>,
    /// The tailnet's name suffix, without dots at its ends. Empty before the first map.
    #[serde(rename = "MagicDNSSuffix", deserialize_with = "zero_if_null")]
    pub magic_dns_suffix: String,
    /// The tailnet, once logged in.
    #[serde(rename = "CurrentTailnet")]
    pub current_tailnet: Option<Tailnet>,
    /// Everyone else that policy lets this node see, by `nodekey:<hex>`. Empty if peers were left out.
    #[serde(rename = "Peer", deserialize_with = "zero_if_null")]
    pub peers: BTreeMap<String, PeerStatus>,
}

impl Status {
    /// Returns the peer with this stable id.
    pub fn peer(&self, id: &StableId) -> Option<&PeerStatus> {
        if id.is_empty() {
            return None;
        }
        self.peers.values().find(|peer| peer.id == *id)
    }
}

/// The daemon's summary of its exit node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExitNodeStatus {
    /// Stable id.
    #[serde(rename = "ID", deserialize_with = "zero_if_null")]
    pub id: StableId,
    /// What the last full map said.
    #[serde(rename = "Online", deserialize_with = "zero_if_null")]
    pub online: bool,
    /// Its tailnet addresses, as prefixes.
    #[serde(rename = "TailscaleIPs", deserialize_with = "zero_if_null")]
    pub tailscale_ips: Vec<IpNet>,
}

/// The tailnet that this node is logged in to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tailnet {
    /// Name of the organisation, or the login.
    #[serde(rename = "Name", deserialize_with = "zero_if_null")]
    pub name: String,
    /// Suffix of all names in it, without dots at its ends.
    #[serde(rename = "MagicDNSSuffix", deserialize_with = "zero_if_null")]
    pub magic_dns_suffix: String,
    /// Whether MagicDNS is on.
    #[serde(rename = "MagicDNSEnabled", deserialize_with = "zero_if_null")]
    pub magic_dns_enabled: bool,
}

/// One node as the daemon sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerStatus {
    /// Stable id.
    #[serde(rename = "ID", deserialize_with = "zero_if_null")]
    pub id: StableId,
    /// Public node key, as `nodekey:<hex>`.
    #[serde(rename = "PublicKey", deserialize_with = "zero_if_null")]
    pub public_key: String,
    /// What the machine calls itself. No name to resolve by: anyone may claim it.
    #[serde(rename = "HostName", deserialize_with = "zero_if_null")]
    pub host_name: String,
    /// Full name with its final dot.
    #[serde(rename = "DNSName", deserialize_with = "zero_if_null")]
    pub dns_name: String,
    /// Operating system, as the machine reports it.
    #[serde(rename = "OS", deserialize_with = "zero_if_null")]
    pub os: String,
    /// Its tailnet addresses.
    #[serde(rename = "TailscaleIPs", deserialize_with = "zero_if_null")]
    pub tailscale_ips: Vec<IpAddr>,
    /// What the daemon routes to it, both default routes included if it may serve as exit node.
    #[serde(rename = "AllowedIPs", deserialize_with = "zero_if_null")]
    pub allowed_ips: Vec<IpNet>,
    /// Tags in force: what control granted, not what was asked.
    #[serde(rename = "Tags", deserialize_with = "zero_if_null")]
    pub tags: Vec<String>,
    /// Subnets for which it is the chosen router.
    #[serde(rename = "PrimaryRoutes", deserialize_with = "zero_if_null")]
    pub primary_routes: Vec<IpNet>,
    /// Address and port of the direct path in use; empty if there is none.
    #[serde(rename = "CurAddr", deserialize_with = "zero_if_null")]
    pub current_address: String,
    /// Code of its home relay.
    #[serde(rename = "Relay", deserialize_with = "zero_if_null")]
    pub relay: String,
    /// Bytes received from it since the daemon started.
    #[serde(rename = "RxBytes", deserialize_with = "zero_if_null")]
    pub received_bytes: i64,
    /// Bytes sent to it since the daemon started.
    #[serde(rename = "TxBytes", deserialize_with = "zero_if_null")]
    pub sent_bytes: i64,
    /// When control last saw it (RFC 3339); zero time or empty while it is online.
    #[serde(rename = "LastSeen", deserialize_with = "zero_if_null")]
    pub last_seen: String,
    /// When the last WireGuard handshake was (RFC 3339); zero time if there was none.
    #[serde(rename = "LastHandshake", deserialize_with = "zero_if_null")]
    pub last_handshake: String,
    /// What control says of its connection. A hint, not proof. Of this node: whether its map poll is up.
    #[serde(rename = "Online", deserialize_with = "zero_if_null")]
    pub online: bool,
    /// Whether it is the selected exit node.
    #[serde(rename = "ExitNode", deserialize_with = "zero_if_null")]
    pub exit_node: bool,
    /// Whether it offers to be one, was approved, and policy lets this node use it.
    #[serde(rename = "ExitNodeOption", deserialize_with = "zero_if_null")]
    pub exit_node_option: bool,
    /// Whether something was sent to it in about the last two minutes.
    #[serde(rename = "Active", deserialize_with = "zero_if_null")]
    pub active: bool,
    /// Whether its key has expired.
    #[serde(rename = "Expired", deserialize_with = "zero_if_null")]
    pub expired: bool,
    /// When its key expires (RFC 3339), if ever.
    #[serde(rename = "KeyExpiry", skip_serializing_if = "Option::is_none")]
    pub key_expiry: Option<String>,
}

impl PeerStatus {
    /// Returns the full name without its final dot.
    pub fn fqdn(&self) -> &str {
        self.dns_name.strip_suffix('.').unwrap_or(&self.dns_name)
    }
}
