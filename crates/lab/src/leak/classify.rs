//! What a frame on the worker's uplink is: tailscaled's own, declared, or a leak. A pure function, exact to the byte.
//!
//! It reads a frame as the kernel's nftables does (`nft_set_pktinfo_*_validate`, Linux 6.18), so that [`super::rules`]
//! counts the same. What is not recognised is a leak: odd lengths, later fragments, extension headers, VLAN tags.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::declared::{Declared, Ports, Traffic};
use super::summary::Summary;

/// How many bytes of a frame suffice to classify it: Ethernet with a tag, the longest IPv4 header, and of the
/// transport as much as an ICMPv6 error needs to show the ports of what it answers.
pub const ENOUGH: usize = 18 + 60 + 8 + 40 + 4;

pub(super) const ETHERNET: usize = 14;
pub(super) const ARP: u16 = 0x0806;
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
/// 802.1Q and 802.1ad.
pub(super) const TAGS: [u16; 2] = [0x8100, 0x88a8];

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Finding neighbours: ARP, and IPv6's solicitations, advertisements and group reports that stay on the link.
    Neighbour,
    /// TCP to the control server: control protocol, relayed packets, its own probes.
    Control,
    /// UDP to the control server's STUN port.
    Stun,
    /// UDP from tailscaled's port to another node's.
    Peer,
    /// The kernel's "no such port" for a packet that came to tailscaled's port when nobody listened.
    PeerError,
    /// What the rule of that number lets out.
    Declared(usize),
    /// All else.
    Leak,
}

impl Class {
    /// The name of its counter.
    #[must_use]
    pub fn counter(self) -> String {
        match self {
            Self::Neighbour => "neighbour".into(),
            Self::Control => "control".into(),
            Self::Stun => "stun".into(),
            Self::Peer => "peer".into(),
            Self::PeerError => "peer_error".into(),
            Self::Declared(rule) => format!("declared_{rule}"),
            Self::Leak => "leak".into(),
        }
    }
}

/// A frame as far as nftables would read it.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    /// Whether a VLAN tag stood in front.
    pub(super) tagged: bool,
    /// The type of what follows the Ethernet header, and its tag if there is one.
    pub(super) ethertype: u16,
    /// From the IP header on.
    packet: &'a [u8],
    /// The packet's whole length, of which `packet` may be the beginning.
    length: usize,
}

impl<'a> View<'a> {
    /// `None` for less than an Ethernet header.
    pub(super) fn of(frame: &'a [u8], wire_length: usize) -> Option<Self> {
        let outer = u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]);
        let tagged = TAGS.contains(&outer);
        let header = if tagged { ETHERNET + 4 } else { ETHERNET };
        let ethertype = u16::from_be_bytes([*frame.get(header - 2)?, *frame.get(header - 1)?]);
        let length = wire_length.max(frame.len()).saturating_sub(header);
        Some(Self { tagged, ethertype, packet: frame.get(header..)?, length })
    }

    fn u8(&self, at: usize) -> Option<u8> {
        self.packet.get(at).copied()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes([self.u8(at)?, self.u8(at + 1)?]))
    }

    fn v4(&self, at: usize) -> Option<Ipv4Addr> {
        let bytes: [u8; 4] = self.packet.get(at..at + 4)?.try_into().ok()?;
        Some(bytes.into())
    }

    fn v6(&self, at: usize) -> Option<Ipv6Addr> {
        let bytes: [u8; 16] = self.packet.get(at..at + 16)?.try_into().ok()?;
        Some(bytes.into())
    }

    /// Source address.
    pub(super) fn source(&self) -> Option<IpAddr> {
        match self.ethertype {
            IPV4 => self.v4(12).map(IpAddr::V4),
            IPV6 => self.v6(8).map(IpAddr::V6),
            _ => None,
        }
    }

    /// Destination address.
    pub(super) fn destination(&self) -> Option<IpAddr> {
        match self.ethertype {
            IPV4 => self.v4(16).map(IpAddr::V4),
            IPV6 => self.v6(24).map(IpAddr::V6),
            _ => None,
        }
    }

    /// The protocol that the fixed IP header names: of an IPv6 packet that may be an extension header.
    pub(super) fn protocol(&self) -> Option<u8> {
        match self.ethertype {
            IPV4 => self.u8(9),
            IPV6 => self.u8(6),
            _ => None,
        }
    }

    fn hop_limit(&self) -> Option<u8> {
        match self.ethertype {
            IPV6 => self.u8(7),
            _ => None,
        }
    }

    /// Where the transport header begins, as far as nftables would look at it: the lengths fit, and it is no later
    /// fragment. For IPv6 only right behind the fixed header.
    fn transport(&self) -> Option<usize> {
        match self.ethertype {
            IPV4 => {
                let first = self.u8(0)?;
                let total = usize::from(self.u16(2)?);
                let header = usize::from(first & 0xf) * 4;
                let later = self.u16(6)? & 0x1fff != 0;
                let fits = first >> 4 == 4 && header >= 20 && total <= self.length && total >= header;
                (fits && !later && self.packet.len() >= 20).then_some(header)
            }
            IPV6 => {
                let payload = usize::from(self.u16(4)?);
                let fits = self.u8(0)? >> 4 == 6 && payload + 40 <= self.length && self.packet.len() >= 40;
                fits.then_some(40)
            }
            _ => None,
        }
    }

    fn transport_u8(&self, at: usize) -> Option<u8> {
        self.u8(self.transport()? + at)
    }

    fn transport_u16(&self, at: usize) -> Option<u16> {
        self.u16(self.transport()? + at)
    }

    /// Source and destination port, of TCP and UDP.
    pub(super) fn ports(&self) -> Option<(u16, u16)> {
        match self.protocol()? {
            TCP | UDP => Some((self.transport_u16(0)?, self.transport_u16(2)?)),
            _ => None,
        }
    }

    /// The type of an ICMP or ICMPv6 message.
    pub(super) fn icmp_type(&self) -> Option<u8> {
        match (self.ethertype, self.protocol()?) {
            (IPV4, ICMP) | (IPV6, ICMPV6) => self.transport_u8(0),
            _ => None,
        }
    }

    fn is(&self, protocol: u8) -> bool {
        self.protocol() == Some(protocol)
    }

    fn source_port(&self) -> Option<u16> {
        self.transport_u16(0)
    }

    fn destination_port(&self) -> Option<u16> {
        self.transport_u16(2)
    }
}

/// Classifies a frame as it was on the wire. `wire_length` is its whole length where `frame` was cut, to no less
/// than [`ENOUGH`] bytes.
#[must_use]
pub fn classify(frame: &[u8], wire_length: usize, declared: &Declared) -> Class {
    let Some(view) = View::of(frame, wire_length) else { return Class::Leak };
    if view.tagged {
        return Class::Leak;
    }
    if view.ethertype == ARP || is_neighbour(&view, declared) || is_group_report(&view) {
        return Class::Neighbour;
    }
    let Some(destination) = view.destination() else { return Class::Leak };
    if declared.control.contains(&destination) {
        if view.is(TCP) && view.destination_port() == Some(declared.control_port) {
            return Class::Control;
        }
        if view.is(UDP) && view.destination_port() == Some(declared.stun_port) {
            return Class::Stun;
        }
    }
    let port = Some(declared.peer_port);
    if declared.nodes.contains(&destination)
        && view.is(UDP)
        && view.source_port() == port
        && view.destination_port() == port
    {
        return Class::Peer;
    }
    if (declared.nodes.contains(&destination) || declared.control.contains(&destination))
        && is_port_unreachable(&view, declared.peer_port)
    {
        return Class::PeerError;
    }
    let rule =
        declared.rules.iter().position(|rule| rule.to.contains(&destination) && lets(rule.traffic, &view));
    rule.map_or(Class::Leak, Class::Declared)
}

/// Classifies a frame, and tells of a leak what it was.
#[must_use]
pub fn explain(frame: &[u8], wire_length: usize, declared: &Declared) -> (Class, Option<Summary>) {
    let class = classify(frame, wire_length, declared);
    (class, (class == Class::Leak).then(|| Summary::of(frame, wire_length)))
}

/// IPv6 neighbour and router solicitations and neighbour advertisements to the link itself (RFC 4861). A hop limit of
/// 255 shows that no router passed them on, and their destination that none will.
fn is_neighbour(view: &View<'_>, declared: &Declared) -> bool {
    let Some(IpAddr::V6(destination)) = view.destination() else { return false };
    let stays = destination.is_unicast_link_local()
        || destination.segments()[0] == 0xff02
        || declared.on_link.iter().any(|network| network.contains(&destination));
    view.is(ICMPV6)
        && stays
        && view.hop_limit() == Some(255)
        && matches!(view.transport_u8(0), Some(133 | 135 | 136))
}

/// Multicast listener reports (RFC 3810): behind an 8-byte hop-by-hop header, to a group on the link, hop limit 1.
fn is_group_report(view: &View<'_>) -> bool {
    let Some(IpAddr::V6(destination)) = view.destination() else { return false };
    view.is(HOP_BY_HOP)
        && destination.segments()[0] == 0xff02
        && view.hop_limit() == Some(1)
        && view.u8(40) == Some(ICMPV6)
        && view.u8(41) == Some(0)
        && matches!(view.u8(48), Some(131 | 132 | 143))
}

/// An ICMP "destination unreachable" about a UDP packet that had come to `port`.
fn is_port_unreachable(view: &View<'_>, port: u16) -> bool {
    let quoted = 8;
    match view.ethertype {
        IPV4 => {
            view.is(ICMP)
                && view.transport_u8(0) == Some(3)
                && view.transport_u8(quoted) == Some(0x45)
                && view.transport_u8(quoted + 9) == Some(UDP)
                && view.transport_u16(quoted + 20 + 2) == Some(port)
        }
        IPV6 => {
            view.is(ICMPV6)
                && view.transport_u8(0) == Some(1)
                && view.transport_u8(quoted).map(|first| first >> 4) == Some(6)
                && view.transport_u8(quoted + 6) == Some(UDP)
                && view.transport_u16(quoted + 40 + 2) == Some(port)
        }
        _ => false,
    }
}

fn lets(traffic: Traffic, view: &View<'_>) -> bool {
    let ports = |ports: Ports| match ports {
        Ports::Any => true,
        Ports::From(low, high) => view.source_port().is_some_and(|port| (low..=high).contains(&port)),
        Ports::To(low, high) => view.destination_port().is_some_and(|port| (low..=high).contains(&port)),
    };
    match traffic {
        Traffic::Any => true,
        Traffic::Icmp => view.is(if view.ethertype == IPV4 { ICMP } else { ICMPV6 }),
        Traffic::Tcp(allowed) => view.is(TCP) && ports(allowed),
        Traffic::Udp(allowed) => view.is(UDP) && ports(allowed),
    }
}

#[cfg(test)]
mod tests;
