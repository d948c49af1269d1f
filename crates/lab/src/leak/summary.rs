//! A frame in a few words, for people who ask what leaked.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::classify::{ICMP, ICMPV6, IPV4, IPV6, TCP, UDP, View};

/// What a frame was, as far as it could be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The Ethernet type, behind a VLAN tag if there was one.
    pub ethertype: u16,
    /// Whether there was a VLAN tag.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tagged: bool,
    /// The IP protocol that the fixed header names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Who sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Where to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
    /// From which port, of TCP and UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// To which port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// The type of an ICMP or ICMPv6 message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// Its length on the wire, in bytes.
    pub length: usize,
}

impl Summary {
    /// Reads a frame.
    #[must_use]
    pub fn of(frame: &[u8], wire_length: usize) -> Self {
        let view = View::of(frame, wire_length);
        let ports = view.and_then(|view| view.ports());
        Self {
            ethertype: view.map_or(0, |view| view.ethertype),
            tagged: view.is_some_and(|view| view.tagged),
            protocol: view.and_then(|view| view.protocol()),
            source: view.and_then(|view| view.source()),
            destination: view.and_then(|view| view.destination()),
            source_port: ports.map(|(source, _)| source),
            destination_port: ports.map(|(_, destination)| destination),
            icmp_type: view.and_then(|view| view.icmp_type()),
            length: wire_length.max(frame.len()),
        }
    }
}

impl fmt::Display for Summary {
    /// As in `udp 10.77.0.10:5000 > 203.0.113.9:9999, 66 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tagged {
            f.write_str("vlan ")?;
        }
        match (self.ethertype, self.protocol) {
            (IPV4 | IPV6, Some(TCP)) => f.write_str("tcp")?,
            (IPV4 | IPV6, Some(UDP)) => f.write_str("udp")?,
            (IPV4, Some(ICMP)) => f.write_str("icmp")?,
            (IPV6, Some(ICMPV6)) => f.write_str("icmpv6")?,
            (IPV4 | IPV6, Some(protocol)) => write!(f, "ip protocol {protocol}")?,
            (ethertype, _) => write!(f, "ethertype {ethertype:#06x}")?,
        }
        if let (Some(source), Some(destination)) = (self.source, self.destination) {
            write!(
                f,
                " {} > {}",
                Place(source, self.source_port),
                Place(destination, self.destination_port)
            )?;
        }
        if let Some(kind) = self.icmp_type {
            write!(f, " type {kind}")?;
        }
        write!(f, ", {} bytes", self.length)
    }
}

struct Place(IpAddr, Option<u16>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (address, None) => write!(f, "{address}"),
            (address, Some(port)) => write!(f, "{}", std::net::SocketAddr::new(address, port)),
        }
    }
}
