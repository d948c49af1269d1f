//! `POST ping`: does a node answer, and by which path (tailscale `ipn/ipnstate/ipnstate.go:PingResult`).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::zero_if_null;

/// How far into the other node a ping goes (`tailcfg.PingType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PingKind {
    /// Path discovery: the other daemon answers, no WireGuard session needed.
    Disco,
    /// Through WireGuard, answered by the other daemon. To a public address: whoever holds the default route.
    Tsmp,
    /// Through WireGuard, answered by the other machine's IP stack.
    Icmp,
    /// An HTTP request to the other daemon's peer API; the daemon gives up after 10 s.
    PeerApi,
}

impl PingKind {
    /// Returns the word that the daemon expects. Any other makes it wait for ever.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disco => "disco",
            Self::Tsmp => "TSMP",
            Self::Icmp => "ICMP",
            Self::PeerApi => "peerapi",
        }
    }
}

impl fmt::Display for PingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What came of a ping. A failed one is an answer too: see [`PingResult::answered`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PingResult {
    /// The address asked for.
    #[serde(rename = "IP", deserialize_with = "zero_if_null")]
    pub ip: String,
    /// The address of the node that answered.
    #[serde(rename = "NodeIP", deserialize_with = "zero_if_null")]
    pub node_ip: String,
    /// Its name.
    #[serde(rename = "NodeName", deserialize_with = "zero_if_null")]
    pub node_name: String,
    /// Why there was no answer, as `no matching peer`; empty if there was one.
    #[serde(rename = "Err", deserialize_with = "zero_if_null")]
    pub error: String,
    /// Round trip, in seconds.
    #[serde(rename = "LatencySeconds", deserialize_with = "zero_if_null")]
    pub latency_seconds: f64,
    /// Address and port of the direct path; empty over a relay.
    #[serde(rename = "Endpoint", deserialize_with = "zero_if_null")]
    pub endpoint: String,
    /// Address and port of the peer relay, if one was used.
    #[serde(rename = "PeerRelay", deserialize_with = "zero_if_null")]
    pub peer_relay: String,
    /// Number of the relay region, if one was used.
    #[serde(rename = "DERPRegionID", deserialize_with = "zero_if_null")]
    pub derp_region_id: i64,
    /// Code of the relay region, if one was used.
    #[serde(rename = "DERPRegionCode", deserialize_with = "zero_if_null")]
    pub derp_region_code: String,
    /// Whether the address is this node's own.
    #[serde(rename = "IsLocalIP", deserialize_with = "zero_if_null")]
    pub is_local_ip: bool,
}

impl PingResult {
    /// Returns the round trip.
    ///
    /// # Errors
    ///
    /// The daemon's own words if nobody answered.
    pub fn answered(&self) -> Result<Duration, &str> {
        if self.error.is_empty() {
            Ok(Duration::try_from_secs_f64(self.latency_seconds).unwrap_or_default())
        } else {
            Err(&self.error)
        }
    }
}
