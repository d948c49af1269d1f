//! Who listens where in the fake Internet: the one place for its addresses, ports and names.
//!
//! All of them are `/32` and `/128` addresses of the namespace `internet`, from the documentation ranges (RFC 5737,
//! RFC 3849). None may lie in a subnet attached to an exit node: tailscaled would cut it out of that node's exit.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of each family that one service answers on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The IPv4 address.
    pub v4: Ipv4Addr,
    /// The IPv6 address.
    pub v6: Ipv6Addr,
}

impl Pair {
    /// Both, IPv4 first.
    #[must_use]
    pub const fn both(self) -> [IpAddr; 2] {
        [IpAddr::V4(self.v4), IpAddr::V6(self.v6)]
    }
}

const fn v6(subnet: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, subnet, 0, 0, 0, 0, host)
}

/// The address echo, its variants, the probe target and the sink.
pub const ECHO: Pair = Pair { v4: Ipv4Addr::new(203, 0, 113, 9), v6: v6(0x203, 0x9) };

/// A second address echo and probe target, as if by another operator.
pub const SECOND_ECHO: Pair = Pair { v4: Ipv4Addr::new(203, 0, 113, 8), v6: v6(0x203, 0x8) };

/// The recursive DNS server.
pub const RESOLVER: Pair = Pair { v4: Ipv4Addr::new(203, 0, 113, 53), v6: v6(0x203, 0x53) };

/// What liars say: the address that a lying echo reports, and that a lying resolver answers with. Nothing is there.
pub const LIE: Pair = Pair { v4: Ipv4Addr::new(192, 0, 2, 66), v6: v6(0xbad, 0x66) };

/// Every address that the namespace `internet` must hold for these services.
pub const ADDRESSES: [Pair; 3] = [ECHO, SECOND_ECHO, RESOLVER];

/// DNS, over UDP and TCP.
pub const DNS_PORT: u16 = 53;

/// The end-to-end probe target: TCP connections are accepted, logged and closed when the other side closes.
pub const PROBE_PORT: u16 = 443;

/// The numbered-packet sink: UDP, and TCP for a stream of the same payloads.
pub const SINK_PORT: u16 = 9999;

/// Where the app device serves HTTP, in its own namespace.
pub const APP_PORT: u16 = 8080;

/// The domain of all names that the lab's DNS knows.
pub const DOMAIN: &str = "lab.example";

/// The names that the lab's DNS knows at the start, under [`DOMAIN`], with their addresses.
///
/// `echo4` and `echo6` have one family only. Names of the topology's hosts are added by whoever knows the topology.
pub const NAMES: [(&str, Option<Ipv4Addr>, Option<Ipv6Addr>); 6] = [
    ("echo", Some(ECHO.v4), Some(ECHO.v6)),
    ("echo2", Some(SECOND_ECHO.v4), Some(SECOND_ECHO.v6)),
    ("echo4", Some(ECHO.v4), None),
    ("echo6", None, Some(ECHO.v6)),
    ("resolver", Some(RESOLVER.v4), Some(RESOLVER.v6)),
    ("sink", Some(ECHO.v4), Some(ECHO.v6)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_service_lies_in_a_subnet_of_an_exit_nodes_uplink() {
        // Exit nodes have /32 and /128 public addresses: 203.0.113.10 and .11, 2001:db8:10::10, 2001:db8:11::11.
        let exits = ["203.0.113.10", "203.0.113.11", "2001:db8:10::10", "2001:db8:11::11"];
        for address in ADDRESSES.iter().flat_map(|pair| pair.both()) {
            assert!(!exits.contains(&address.to_string().as_str()), "{address} is an exit node's");
        }
    }

    #[test]
    fn every_name_leads_to_an_address_that_is_served() {
        let served: Vec<IpAddr> = ADDRESSES.iter().flat_map(|pair| pair.both()).collect();
        for (name, v4, v6) in NAMES {
            let addresses = v4.map(IpAddr::V4).into_iter().chain(v6.map(IpAddr::V6));
            assert!(addresses.clone().count() > 0, "{name} has no address");
            assert!(addresses.into_iter().all(|address| served.contains(&address)), "{name}");
        }
    }
}
