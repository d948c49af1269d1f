//! Answers of the small endpoints: whois, suggestions, relays, preflight checks.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::StableId;
use super::zero_if_null;

/// A node as the network map has it (`tailcfg.Node`), as far as this crate needs it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MapNode {
    /// Numeric id, as bus events name it.
    #[serde(rename = "ID", deserialize_with = "zero_if_null")]
    pub id: i64,
    /// Stable id.
    #[serde(rename = "StableID", deserialize_with = "zero_if_null")]
    pub stable_id: StableId,
    /// Full name with its final dot.
    #[serde(rename = "Name", deserialize_with = "zero_if_null")]
    pub name: String,
    /// Its tailnet addresses, as prefixes.
    #[serde(rename = "Addresses", deserialize_with = "zero_if_null")]
    pub addresses: Vec<IpNet>,
    /// What is routed to it.
    #[serde(rename = "AllowedIPs", deserialize_with = "zero_if_null")]
    pub allowed_ips: Vec<IpNet>,
    /// Tags in force.
    #[serde(rename = "Tags", deserialize_with = "zero_if_null")]
    pub tags: Vec<String>,
    /// What control says of its connection; absent means that it does not say.
    #[serde(rename = "Online")]
    pub online: Option<bool>,
    /// Whether its key has expired.
    #[serde(rename = "Expired", deserialize_with = "zero_if_null")]
    pub expired: bool,
    /// When its key expires (RFC 3339).
    #[serde(rename = "KeyExpiry", deserialize_with = "zero_if_null")]
    pub key_expiry: String,
    /// What the machine says of itself, as far as control passes it on.
    #[serde(rename = "Hostinfo", deserialize_with = "zero_if_null")]
    pub host_info: HostInfo,
}

/// What a machine says of itself (`tailcfg.Hostinfo`), as far as this crate needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostInfo {
    /// Routes that it advertises, approved or not. The hosted control server does not pass them on.
    #[serde(rename = "RoutableIPs", deserialize_with = "zero_if_null")]
    pub routes: Vec<IpNet>,
}

/// Who is behind an address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WhoIs {
    /// The node.
    #[serde(rename = "Node", deserialize_with = "zero_if_null")]
    pub node: MapNode,
    /// Its user, as control describes them.
    #[serde(rename = "UserProfile")]
    pub user_profile: Value,
    /// Capabilities granted to it towards this node.
    #[serde(rename = "CapMap", deserialize_with = "zero_if_null")]
    pub cap_map: BTreeMap<String, Value>,
}

/// The exit node that the daemon suggests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Suggestion {
    /// Stable id; empty if there is nothing to suggest.
    #[serde(rename = "ID", deserialize_with = "zero_if_null")]
    pub id: StableId,
    /// Its full name.
    #[serde(rename = "Name", deserialize_with = "zero_if_null")]
    pub name: String,
}

/// The relays that control named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DerpMap {
    /// Regions by number.
    #[serde(rename = "Regions", deserialize_with = "zero_if_null")]
    pub regions: BTreeMap<i64, DerpRegion>,
}

/// A region of relays that know each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DerpRegion {
    /// Number.
    #[serde(rename = "RegionID", deserialize_with = "zero_if_null")]
    pub id: i64,
    /// Short code.
    #[serde(rename = "RegionCode", deserialize_with = "zero_if_null")]
    pub code: String,
    /// Name for people.
    #[serde(rename = "RegionName", deserialize_with = "zero_if_null")]
    pub name: String,
    /// Its relays.
    #[serde(rename = "Nodes", deserialize_with = "zero_if_null")]
    pub nodes: Vec<DerpNode>,
}

/// One relay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DerpNode {
    /// Name within its region.
    #[serde(rename = "Name", deserialize_with = "zero_if_null")]
    pub name: String,
    /// DNS name to dial.
    #[serde(rename = "HostName", deserialize_with = "zero_if_null")]
    pub host_name: String,
    /// IPv4 address instead of a lookup; `none` forbids it.
    #[serde(rename = "IPv4", deserialize_with = "zero_if_null")]
    pub ipv4: String,
    /// IPv6 address instead of a lookup; `none` forbids it.
    #[serde(rename = "IPv6", deserialize_with = "zero_if_null")]
    pub ipv6: String,
    /// Relay port; 0 means 443.
    #[serde(rename = "DERPPort", deserialize_with = "zero_if_null")]
    pub derp_port: i64,
    /// STUN port; 0 means 3478, -1 none.
    #[serde(rename = "STUNPort", deserialize_with = "zero_if_null")]
    pub stun_port: i64,
}

/// Whether the daemon marks its own packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SoMark {
    /// True in userspace mode too: read it together with [`super::status::Status::tun`].
    #[serde(rename = "UseSOMark", deserialize_with = "zero_if_null")]
    pub in_use: bool,
}

/// Whether the machine forwards packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpForwarding {
    /// What is wrong; empty if nothing is.
    #[serde(rename = "Warning", deserialize_with = "zero_if_null")]
    pub warning: String,
}
