//! The address ranges that policies speak of: the tailnet's own, and the Internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::world::Family;

/// CGNAT, from which tailnets take their IPv4 addresses (`tailscale net/tsaddr`).
const TAILNET_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);
/// Tailscale's ULA, from which they take their IPv6 addresses.
const TAILNET_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0), 48);
/// Within it, IPv4 subnets behind routers (4via6): no device has such an address.
const VIA_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0xb1a, 0, 0, 0, 0), 64);

/// What is no Internet within 0.0.0.0/0 (headscale `hscontrol/util/net.go:TheInternet`, tailscale's own list).
const NOT_INTERNET_V4: [Ipv4Net; 5] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
    TAILNET_V4,
];
/// All of the IPv6 Internet.
const INTERNET_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// The range that a family's tailnet addresses lie in.
pub(super) fn tailnet(family: Family) -> IpNet {
    match family {
        Family::V4 => TAILNET_V4.into(),
        Family::V6 => TAILNET_V6.into(),
    }
}

/// Tells whether a device of the tailnet may have this address.
pub(super) fn is_tailnet(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => TAILNET_V4.contains(&address),
        IpAddr::V6(address) => TAILNET_V6.contains(&address) && !VIA_V6.contains(&address),
    }
}

/// Tells whether `autogroup:internet` holds this address.
pub(super) fn is_internet(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NOT_INTERNET_V4.iter().any(|range| range.contains(&address)),
        IpAddr::V6(address) => INTERNET_V6.contains(&address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_internet_is_what_is_public_with_documentation_ranges() {
        let internet = |text: &str| is_internet(text.parse().expect("an address"));
        for public in
            ["1.1.1.1", "9.255.255.255", "100.63.255.255", "100.128.0.0", "198.51.100.1", "203.0.113.9"]
        {
            assert!(internet(public), "{public}");
        }
        for public in ["2606:4700::1111", "2001:db8:203::9", "3fff:ffff::1"] {
            assert!(internet(public), "{public}");
        }
        for other in
            ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1"]
        {
            assert!(!internet(other), "{other}");
        }
        for other in ["fd00::1", "fe80::1", "fd7a:115c:a1e0::1", "::1", "4000::1"] {
            assert!(!internet(other), "{other}");
        }
    }

    #[test]
    fn devices_live_in_the_tailnets_ranges_and_not_behind_4via6() {
        let tailnet = |text: &str| is_tailnet(text.parse().expect("an address"));
        assert!(tailnet("100.64.0.1") && tailnet("100.127.255.255") && tailnet("fd7a:115c:a1e0::1"));
        assert!(!tailnet("100.128.0.1") && !tailnet("10.0.0.1") && !tailnet("fd7a:115c:a1e1::1"));
        assert!(!tailnet("fd7a:115c:a1e0:b1a:0:7:a01:203"));
    }
}
