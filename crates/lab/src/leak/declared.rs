//! What may leave by the worker's uplink, as data: the one source of the classifier and of the kernel's counters.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Where the lab's control server listens.
pub const CONTROL_PORT: u16 = 8080;
/// Its STUN port.
pub const STUN_PORT: u16 = 3478;
/// The UDP port of every tailscaled of the lab (`--port`).
pub const PEER_PORT: u16 = 41641;

/// What may leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// The control server's addresses.
    pub control: BTreeSet<IpAddr>,
    /// Its TCP port: control protocol, DERP and probes.
    pub control_port: u16,
    /// Its UDP port for STUN.
    pub stun_port: u16,
    /// The underlay and public addresses of the other nodes.
    pub nodes: BTreeSet<IpAddr>,
    /// The UDP port of tailscaled, here and on the other nodes.
    pub peer_port: u16,
    /// IPv6 networks of the link, whose neighbours may be asked for by unicast.
    pub on_link: Vec<Ipv6Net>,
    /// What else was declared; the first that matches counts.
    pub rules: Vec<Rule>,
}

impl Declared {
    /// What tailscaled itself needs in a lab with the usual ports, and nothing else.
    #[must_use]
    pub fn tailscaled(
        control: impl IntoIterator<Item = IpAddr>,
        nodes: impl IntoIterator<Item = IpAddr>,
        on_link: impl IntoIterator<Item = Ipv6Net>,
    ) -> Self {
        Self {
            control: control.into_iter().collect(),
            control_port: CONTROL_PORT,
            stun_port: STUN_PORT,
            nodes: nodes.into_iter().collect(),
            peer_port: PEER_PORT,
            on_link: on_link.into_iter().collect(),
            rules: Vec::new(),
        }
    }
}

/// Packets that somebody declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Where to.
    pub to: IpNet,
    /// Which of them.
    pub traffic: Traffic,
}

/// Which packets to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// All.
    Any,
    /// ICMP to an IPv4 place, ICMPv6 to an IPv6 one.
    Icmp,
    /// TCP.
    Tcp(Ports),
    /// UDP.
    Udp(Ports),
}

/// Ports of a TCP or UDP packet, both ends of the range included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ports {
    /// Any.
    Any,
    /// The other side's: what the worker asks for.
    To(u16, u16),
    /// Its own: the worker's replies to who came to a port of it.
    From(u16, u16),
}
