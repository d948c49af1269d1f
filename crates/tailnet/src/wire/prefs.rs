//! `prefs`: what the daemon was told to do (tailscale `ipn/prefs.go`, types `Prefs` and `MaskedPrefs`).
//!
//! [`Prefs`] is whole and keeps what it does not know, because `start` replaces all of them. [`MaskedPrefs`] is a
//! change: each field set carries its mask, every other stays as it is.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::status::StableId;
use super::{none_if_empty, zero_if_null};

/// All preferences of a daemon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prefs {
    /// Control server; empty means Tailscale's own.
    #[serde(rename = "ControlURL", default, deserialize_with = "zero_if_null")]
    pub control_url: String,
    /// Accept subnet routes of others. Not needed for an exit node.
    #[serde(rename = "RouteAll", default, deserialize_with = "zero_if_null")]
    pub accept_routes: bool,
    /// The exit node. May name a node that no longer exists; traffic is then lost, not leaked.
    #[serde(rename = "ExitNodeID", default, deserialize_with = "zero_if_null")]
    pub exit_node_id: StableId,
    /// The exit node by address, until the daemon has turned it into an id.
    #[serde(
        rename = "ExitNodeIP",
        default,
        deserialize_with = "none_if_empty",
        serialize_with = "empty_if_none"
    )]
    pub exit_node_ip: Option<IpAddr>,
    /// `any` if the daemon chooses the exit node by itself.
    #[serde(
        rename = "AutoExitNode",
        default,
        deserialize_with = "zero_if_null",
        skip_serializing_if = "String::is_empty"
    )]
    pub auto_exit_node: String,
    /// Lets the machine's own networks go past the exit node.
    #[serde(rename = "ExitNodeAllowLANAccess", default, deserialize_with = "zero_if_null")]
    pub exit_node_allow_lan_access: bool,
    /// Take DNS settings from the tailnet (`--accept-dns`).
    #[serde(rename = "CorpDNS", default, deserialize_with = "zero_if_null")]
    pub accept_dns: bool,
    /// Be up.
    #[serde(rename = "WantRunning", default, deserialize_with = "zero_if_null")]
    pub want_running: bool,
    /// The user logged out; the daemon does not log in by itself.
    #[serde(rename = "LoggedOut", default, deserialize_with = "zero_if_null")]
    pub logged_out: bool,
    /// Refuse connections from peers.
    #[serde(rename = "ShieldsUp", default, deserialize_with = "zero_if_null")]
    pub shields_up: bool,
    /// Tags asked for. Those granted are in the status.
    #[serde(rename = "AdvertiseTags", default, deserialize_with = "zero_if_null")]
    pub advertise_tags: Vec<String>,
    /// Subnets and default routes offered to others.
    #[serde(rename = "AdvertiseRoutes", default, deserialize_with = "zero_if_null")]
    pub advertise_routes: Vec<IpNet>,
    /// Name asked for; empty means the machine's.
    #[serde(rename = "Hostname", default, deserialize_with = "zero_if_null")]
    pub hostname: String,
    /// Do not rewrite source addresses of forwarded traffic.
    #[serde(rename = "NoSNAT", default, deserialize_with = "zero_if_null")]
    pub no_snat: bool,
    /// How much of netfilter the daemon manages: 0 nothing, 1 its chains, 2 all.
    #[serde(rename = "NetfilterMode", default, deserialize_with = "zero_if_null")]
    pub netfilter_mode: i64,
    /// A user who may change preferences without being root.
    #[serde(
        rename = "OperatorUser",
        default,
        deserialize_with = "zero_if_null",
        skip_serializing_if = "String::is_empty"
    )]
    pub operator_user: String,
    /// Lets the tailnet's administrators drive this whole API from afar.
    #[serde(
        rename = "RemoteConfig",
        default,
        deserialize_with = "zero_if_null",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub remote_config: bool,
    /// Everything that this crate does not know, kept as it came.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

impl Prefs {
    /// Returns the defaults on Linux that a first login builds on (`ipn/prefs.go:NewPrefs`). Unlike a new daemon's own
    /// preferences they are not logged out.
    pub fn fresh() -> Self {
        let auto_update = serde_json::json!({ "Check": true, "Apply": null });
        Self {
            accept_dns: true,
            netfilter_mode: 2,
            rest: BTreeMap::from([
                ("AutoUpdate".to_owned(), auto_update),
                ("NoStatefulFiltering".to_owned(), Value::Bool(true)),
            ]),
            ..Self::default()
        }
    }

    /// Tells whether any exit node is asked for, by id, by address or automatically.
    pub fn names_exit_node(&self) -> bool {
        !self.exit_node_id.is_empty() || self.exit_node_ip.is_some() || !self.auto_exit_node.is_empty()
    }
}

fn empty_if_none<S: Serializer>(address: &Option<IpAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => serializer.collect_str(address),
        None => serializer.serialize_str(""),
    }
}

/// A change of preferences: the fields set here, and no others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MaskedPrefs {
    fields: BTreeMap<&'static str, Value>,
}

impl MaskedPrefs {
    /// Returns a change that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells whether no field is set.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the names of the fields set, in order.
    pub fn fields(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.fields.keys().copied()
    }

    /// Returns what is left of this change once everything that `current` already says is dropped.
    pub fn against(&self, current: &Prefs) -> Self {
        // An id that was chosen automatically is not yet pinned: setting the same is what pins it.
        let chosen = |name: &str| name == "ExitNodeID" && !current.auto_exit_node.is_empty();
        let written = match serde_json::to_value(current) {
            Ok(Value::Object(map)) => map,
            Ok(_) | Err(_) => Map::new(),
        };
        let fields = self
            .fields
            .iter()
            .filter(|(name, wanted)| chosen(name) || !same(written.get(**name), wanted))
            .map(|(name, wanted)| (*name, wanted.clone()))
            .collect();
        Self { fields }
    }

    /// Pins the exit node: sets the id, clears the address, and thereby ends an automatic choice. An empty id clears
    /// all three.
    ///
    /// `AutoExitNode` itself must stay unset: a daemon whose automatic choice is not settled yet takes an explicit
    /// empty one as "no exit node" and drops the id that came along (`ipnlocal/local.go:adjustEditPrefsLocked`).
    pub fn pin_exit_node(self, id: &StableId) -> Self {
        self.set("ExitNodeID", id.as_str()).set("ExitNodeIP", "")
    }

    /// Sets `ExitNodeID` alone; an empty id clears it.
    pub fn exit_node_id(self, id: &StableId) -> Self {
        self.set("ExitNodeID", id.as_str())
    }

    /// Sets `ExitNodeIP`, which outranks the id; `None` clears it.
    pub fn exit_node_ip(self, address: Option<IpAddr>) -> Self {
        self.set("ExitNodeIP", address.map(|address| address.to_string()).unwrap_or_default())
    }

    /// Sets `AutoExitNode`: `any` or empty. Never together with an id: see [`MaskedPrefs::pin_exit_node`].
    pub fn auto_exit_node(self, expression: &str) -> Self {
        self.set("AutoExitNode", expression)
    }

    /// Sets whether the machine's own networks go past the exit node.
    pub fn exit_node_allow_lan_access(self, allow: bool) -> Self {
        self.set("ExitNodeAllowLANAccess", allow)
    }

    /// Sets whether subnet routes of others are accepted.
    pub fn accept_routes(self, accept: bool) -> Self {
        self.set("RouteAll", accept)
    }

    /// Sets whether DNS settings of the tailnet are accepted.
    pub fn accept_dns(self, accept: bool) -> Self {
        self.set("CorpDNS", accept)
    }

    /// Sets whether the node is to be up.
    pub fn want_running(self, running: bool) -> Self {
        self.set("WantRunning", running)
    }

    /// Sets whether connections from peers are refused.
    pub fn shields_up(self, up: bool) -> Self {
        self.set("ShieldsUp", up)
    }

    /// Sets the name asked for.
    pub fn hostname(self, name: &str) -> Self {
        self.set("Hostname", name)
    }

    /// Sets the tags asked for. Control grants them at the next login only.
    pub fn advertise_tags(self, tags: &[String]) -> Self {
        self.set("AdvertiseTags", tags.to_vec())
    }

    /// Sets the routes offered to others.
    pub fn advertise_routes(self, routes: &[IpNet]) -> Self {
        self.set("AdvertiseRoutes", routes.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    /// Sets the control server. Takes effect at the next start only.
    pub fn control_url(self, url: &str) -> Self {
        self.set("ControlURL", url)
    }

    /// Sets whether the tailnet's administrators may drive this API from afar.
    pub fn remote_config(self, allowed: bool) -> Self {
        self.set("RemoteConfig", allowed)
    }

    /// Sets how much of netfilter the daemon manages: 0 nothing, 1 its chains, 2 all.
    pub fn netfilter_mode(self, mode: i64) -> Self {
        self.set("NetfilterMode", mode)
    }

    fn set(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        self.fields.insert(field, value.into());
        self
    }
}

/// Compares as Go would: a field left out, `null` and the zero value are one.
fn same(current: Option<&Value>, wanted: &Value) -> bool {
    let zero = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(true) | Value::Object(_) => false,
    };
    match current {
        Some(current) => current == wanted || (zero(current) && zero(wanted)),
        None => zero(wanted),
    }
}

impl Serialize for MaskedPrefs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len() * 2))?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
            map.serialize_entry(&format!("{name}Set"), &true)?;
        }
        map.end()
    }
}
