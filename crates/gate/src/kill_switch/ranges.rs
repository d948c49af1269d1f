//! Address ranges that are no Internet: shut for the workload unless a rule opens them. Each with its source.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::policy::{AllowRule, PortRange, Protocol, Tailnet, Via};
use crate::nf_tables::{Element, Field};

/// First and last IPv4 address of what is no public destination.
const CLOSED4: [(Ipv4Addr, Ipv4Addr); 9] = [
    v4([0, 0, 0, 0], [0, 255, 255, 255]),       // RFC 1122: this network
    v4([10, 0, 0, 0], [10, 255, 255, 255]),     // RFC 1918
    v4([100, 64, 0, 0], [100, 127, 255, 255]),  // RFC 6598: CGNAT, and the tailnet
    v4([127, 0, 0, 0], [127, 255, 255, 255]),   // RFC 1122: loopback
    v4([169, 254, 0, 0], [169, 254, 255, 255]), // RFC 3927: link-local, with the clouds' metadata
    v4([172, 16, 0, 0], [172, 31, 255, 255]),   // RFC 1918
    v4([192, 0, 0, 0], [192, 0, 0, 255]),       // RFC 6890: protocol assignments, with Oracle's metadata
    v4([192, 168, 0, 0], [192, 168, 255, 255]), // RFC 1918
    v4([224, 0, 0, 0], [255, 255, 255, 255]),   // RFC 5771 multicast, RFC 1112 reserved, broadcast
];

const fn v4(first: [u8; 4], last: [u8; 4]) -> (Ipv4Addr, Ipv4Addr) {
    (Ipv4Addr::from_octets(first), Ipv4Addr::from_octets(last))
}

/// What is public of IPv6: global unicast (RFC 4291). All else is shut, with unique local addresses (RFC 4193), the
/// tailnet's among them.
const PUBLIC6: (Ipv6Addr, Ipv6Addr) = (
    Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0),
    Ipv6Addr::new(0x3fff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff),
);

/// IPv4 carried in IPv6 (RFC 3056 6to4, RFC 4380 Teredo): it would reach closed IPv4 ranges.
const CARRIERS6: [(Ipv6Addr, Ipv6Addr); 2] = [
    (
        Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0),
        Ipv6Addr::new(0x2001, 0, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff),
    ),
    (
        Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0),
        Ipv6Addr::new(0x2002, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff),
    ),
];

/// The tailnet's ranges less tailscaled's own service addresses (`tsaddr.go`).
const TAILNET4: [(Ipv4Addr, Ipv4Addr); 2] =
    [v4([100, 64, 0, 0], [100, 100, 100, 99]), v4([100, 100, 100, 101], [100, 127, 255, 255])];
const TAILNET6: [(Ipv6Addr, Ipv6Addr); 2] = [
    (
        Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0),
        Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0x52),
    ),
    (
        Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0x54),
        Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff),
    ),
];

/// Elements of the set of closed IPv4 destinations.
pub(super) fn closed4() -> impl Iterator<Item = Element> {
    CLOSED4.into_iter().map(|(first, last)| [Field::V4(first, last)].into())
}

/// Elements of the set of public IPv6 destinations: global unicast less the carriers.
pub(super) fn public6() -> Vec<Element> {
    let mut from = PUBLIC6.0.to_bits();
    let mut parts = Vec::new();
    for (first, last) in CARRIERS6 {
        if from < first.to_bits() {
            parts.push((from, first.to_bits() - 1));
        }
        from = last.to_bits() + 1;
    }
    parts.push((from, PUBLIC6.1.to_bits()));
    parts
        .into_iter()
        .map(|(first, last)| [Field::V6(Ipv6Addr::from_bits(first), Ipv6Addr::from_bits(last))].into())
        .collect()
}

/// A destination with its protocol and port, as an element of one of the two families' sets.
#[derive(Debug, Default)]
pub(super) struct Destinations {
    pub(super) v4: Vec<Element>,
    pub(super) v6: Vec<Element>,
}

/// What `tailnet` and `rules` open by one way.
pub(super) fn destinations(
    via: Via,
    tailnet: &Tailnet,
    rules: &std::collections::BTreeSet<AllowRule>,
) -> Destinations {
    let mut found = Destinations::default();
    if via == Via::Tailnet && *tailnet == Tailnet::All {
        for (first, last) in TAILNET4 {
            found.v4.push(element(Field::V4(first, last), Protocol::Any, PortRange::ALL, 0));
        }
        for (first, last) in TAILNET6 {
            found.v6.push(element(Field::V6(first, last), Protocol::Any, PortRange::ALL, 0));
        }
    }
    for rule in rules.iter().filter(|rule| rule.via == via) {
        match rule.to {
            IpNet::V4(net) => {
                found.v4.push(element(whole4(net), rule.protocol, rule.ports, 1));
            }
            IpNet::V6(net) => {
                found.v6.push(element(whole6(net), rule.protocol, rule.ports, 58));
            }
        }
    }
    found
}

pub(super) fn whole4(net: Ipv4Net) -> Field {
    Field::V4(net.network(), net.broadcast())
}

pub(super) fn whole6(net: Ipv6Net) -> Field {
    Field::V6(net.network(), net.broadcast())
}

fn element(address: Field, protocol: Protocol, ports: PortRange, icmp: u8) -> Element {
    let (protocol, ports) = match protocol {
        Protocol::Tcp => (Field::Protocol(6, 6), ports),
        Protocol::Udp => (Field::Protocol(17, 17), ports),
        // There is a checksum where others have a port.
        Protocol::Icmp => (Field::Protocol(icmp, icmp), PortRange::ALL),
        Protocol::Any => (Field::Protocol(0, 255), PortRange::ALL),
    };
    [address, protocol, Field::Port(ports.first, ports.last)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_ipv6_leaves_out_what_carries_ipv4() {
        let parts = public6();
        let inside = |address: &str| {
            let address: Ipv6Addr = address.parse().expect("valid");
            parts.iter().any(|part| matches!(part.fields[0], Field::V6(a, b) if a <= address && address <= b))
        };
        for address in ["2000::1", "2001:1::1", "2001:db8::1", "2003::", "2606:4700::1111", "3fff:ffff::1"] {
            assert!(inside(address), "{address}");
        }
        for address in [
            "::1",
            "1fff::",
            "2001::1",
            "2001:0:ffff::1",
            "2002:a00:1::",
            "4000::",
            "fd00::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!inside(address), "{address}");
        }
    }

    #[test]
    fn the_service_addresses_of_tailscaled_are_in_no_opening() {
        let open = destinations(Via::Tailnet, &Tailnet::All, &std::collections::BTreeSet::new());
        let quad: Ipv4Addr = "100.100.100.100".parse().expect("valid");
        let twin: Ipv6Addr = "fd7a:115c:a1e0::53".parse().expect("valid");
        assert!(!open.v4.iter().any(|e| matches!(e.fields[0], Field::V4(a, b) if a <= quad && quad <= b)));
        assert!(!open.v6.iter().any(|e| matches!(e.fields[0], Field::V6(a, b) if a <= twin && twin <= b)));
    }
}
