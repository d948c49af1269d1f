//! `watch-ipn-bus`: one notification (tailscale `ipn/backend.go:Notify`). Absent means unchanged.
//!
//! Peer events carry deltas in three shapes. The correct reading of any of them is "read `status` now": see
//! [`Notify::touches_peers`].

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::misc::MapNode;
use super::prefs::Prefs;
use super::status::{BackendState, StableId, Status};
use super::zero_if_null;

/// One line of the bus.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Notify {
    /// Version of the daemon; on the first line.
    #[serde(rename = "Version", deserialize_with = "zero_if_null")]
    pub version: String,
    /// Name of this watch; on the first line if the initial state was asked for.
    #[serde(rename = "SessionID", deserialize_with = "zero_if_null")]
    pub session_id: String,
    /// What went wrong, in control's or the daemon's words. May quote what control was sent.
    #[serde(rename = "ErrMessage")]
    pub error_message: Option<String>,
    /// A login has just been completed.
    #[serde(rename = "LoginFinished", deserialize_with = "present")]
    pub login_finished: bool,
    /// The new state.
    #[serde(rename = "State", deserialize_with = "state")]
    pub state: Option<BackendState>,
    /// The new preferences.
    #[serde(rename = "Prefs")]
    pub prefs: Option<Box<Prefs>>,
    /// The daemon's status as the watch began, if that was asked for.
    #[serde(rename = "InitialStatus")]
    pub initial_status: Option<Box<Status>>,
    /// A whole network map came (its content is not kept).
    #[serde(rename = "NetMap", deserialize_with = "present")]
    pub net_map: bool,
    /// This node changed.
    #[serde(rename = "SelfChange")]
    pub self_change: Option<Box<MapNode>>,
    /// Peers that are new or changed as a whole.
    #[serde(rename = "PeersChanged", deserialize_with = "zero_if_null")]
    pub peers_changed: Vec<MapNode>,
    /// Numeric ids of peers that are gone.
    #[serde(rename = "PeersRemoved", deserialize_with = "zero_if_null")]
    pub peers_removed: Vec<i64>,
    /// Small changes of peers.
    #[serde(rename = "PeerChangedPatch", deserialize_with = "zero_if_null")]
    pub peers_patched: Vec<PeerPatch>,
    /// WireGuard state of peers, by stable id.
    #[serde(rename = "PeerState", deserialize_with = "zero_if_null")]
    pub peer_state: BTreeMap<StableId, Value>,
    /// Where a browser has to go.
    #[serde(rename = "BrowseToURL")]
    pub browse_to_url: Option<String>,
    /// What the daemon finds wrong: all of it, each time.
    #[serde(rename = "Health")]
    pub health: Option<Health>,
    /// Stable id of the exit node that the daemon suggests.
    #[serde(rename = "SuggestedExitNode")]
    pub suggested_exit_node: Option<StableId>,
}

impl Notify {
    /// Tells whether this line says something of peers, so that `status` should be read again.
    pub fn touches_peers(&self) -> bool {
        self.net_map
            || !self.peers_changed.is_empty()
            || !self.peers_removed.is_empty()
            || !self.peers_patched.is_empty()
    }
}

/// A small change of one peer (`tailcfg.PeerChange`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PeerPatch {
    /// Numeric id.
    #[serde(rename = "NodeID", deserialize_with = "zero_if_null")]
    pub node_id: i64,
    /// What control says of its connection, if that changed.
    #[serde(rename = "Online")]
    pub online: Option<bool>,
    /// When it was last seen (RFC 3339), if that changed.
    #[serde(rename = "LastSeen")]
    pub last_seen: Option<String>,
    /// When its key expires (RFC 3339), if that changed.
    #[serde(rename = "KeyExpiry")]
    pub key_expiry: Option<String>,
}

/// What the daemon finds wrong (`health/state.go:State`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Health {
    /// Warnings in force, by code, as `login-state`.
    #[serde(rename = "Warnings", deserialize_with = "zero_if_null")]
    pub warnings: BTreeMap<String, Warning>,
}

/// One warning (`health/state.go:UnhealthyState`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Warning {
    /// `high`, `medium` or `low`.
    #[serde(rename = "Severity", deserialize_with = "zero_if_null")]
    pub severity: String,
    /// A line for people.
    #[serde(rename = "Title", deserialize_with = "zero_if_null")]
    pub title: String,
    /// A sentence for people. May quote what control answered.
    #[serde(rename = "Text", deserialize_with = "zero_if_null")]
    pub text: String,
    /// Since when (RFC 3339).
    #[serde(rename = "BrokenSince")]
    pub broken_since: Option<String>,
    /// Whether it gets in the way of traffic.
    #[serde(rename = "ImpactsConnectivity", deserialize_with = "zero_if_null")]
    pub impacts_connectivity: bool,
}

/// Tells whether a value is there at all, without keeping it.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

fn state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BackendState>, D::Error> {
    Ok(Option::<i64>::deserialize(deserializer)?.map(BackendState::from_number))
}
