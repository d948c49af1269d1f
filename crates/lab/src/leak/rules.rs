//! The declared set as nftables match expressions, for the kernel to count by: the classifier's twin.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use sallyport_gate::counter::IngressCounters;

use super::classify::Class;
use super::declared::{Declared, Ports, Traffic};

/// The counters for a link, in the classifier's order of trial.
#[must_use]
pub fn counters(link: &str, owner: &str, declared: &Declared) -> IngressCounters {
    let mut rules: Vec<(Class, String)> = vec![
        (Class::Leak, "@ll,96,16 { 0x8100, 0x88a8 }".into()),
        (Class::Neighbour, "meta protocol arp".into()),
        (Class::Neighbour, neighbour(declared)),
        (Class::Neighbour, group_report().into()),
    ];
    for family in [Family::V4, Family::V6] {
        let control = family.set(&declared.control);
        let nodes = family.set(&declared.nodes);
        let both: BTreeSet<IpAddr> = declared.control.union(&declared.nodes).copied().collect();
        let (ip, next, port) = (family.ip(), family.first_of(), declared.peer_port);
        if let Some(control) = control {
            let to = format!("{ip} daddr {control} {next}");
            rules.push((Class::Control, format!("{to} tcp tcp dport {}", declared.control_port)));
            rules.push((Class::Stun, format!("{to} udp udp dport {}", declared.stun_port)));
        }
        if let Some(nodes) = nodes {
            let to = format!("{ip} daddr {nodes} {next}");
            rules.push((Class::Peer, format!("{to} udp udp sport {port} udp dport {port}")));
        }
        if let Some(both) = family.set(&both) {
            rules.push((Class::PeerError, format!("{ip} daddr {both} {}", family.port_unreachable(port))));
        }
    }
    for (number, rule) in declared.rules.iter().enumerate() {
        rules.push((Class::Declared(number), expression(rule.to, rule.traffic)));
    }
    rules.push((Class::Leak, String::new()));
    IngressCounters {
        table: table(link),
        owner: owner.to_string(),
        link: link.to_string(),
        rules: rules.into_iter().map(|(class, expression)| (class.counter(), expression)).collect(),
    }
}

/// The name of the table of a link's counters.
#[must_use]
pub fn table(link: &str) -> String {
    format!("leak-{link}")
}

fn neighbour(declared: &Declared) -> String {
    let mut places = vec!["fe80::/10".to_string(), "ff02::/16".to_string()];
    places.extend(declared.on_link.iter().map(|network| network.trunc().to_string()));
    let places = places.join(", ");
    format!("ip6 daddr {{ {places} }} ip6 nexthdr 58 ip6 hoplimit 255 @th,0,8 {{ 133, 135, 136 }}")
}

fn group_report() -> &'static str {
    "ip6 daddr ff02::/16 ip6 nexthdr 0 ip6 hoplimit 1 @nh,320,8 58 @nh,328,8 0 @nh,384,8 { 131, 132, 143 }"
}

fn expression(to: IpNet, traffic: Traffic) -> String {
    let family = match to {
        IpNet::V4(_) => Family::V4,
        IpNet::V6(_) => Family::V6,
    };
    // As a range: of a prefix nft loads no more bytes than it has, which a packet that is cut short may hold.
    let to = format!("{} daddr {}-{}", family.ip(), to.network(), to.broadcast());
    let (next, first) = (family.next(), family.first_of());
    let with = |protocol: &str, ports: Ports| match ports {
        Ports::Any => format!("{to} {next} {protocol}"),
        Ports::To(low, high) => format!("{to} {first} {protocol} {protocol} dport {low}-{high}"),
        Ports::From(low, high) => format!("{to} {first} {protocol} {protocol} sport {low}-{high}"),
    };
    match traffic {
        Traffic::Any => to,
        Traffic::Icmp => format!("{to} {next} {}", family.icmp()),
        Traffic::Tcp(ports) => with("tcp", ports),
        Traffic::Udp(ports) => with("udp", ports),
    }
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn ip(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    /// The fixed header's protocol field. Of IPv6 too: behind an extension header nothing is tailscaled's.
    const fn next(self) -> &'static str {
        match self {
            Self::V4 => "ip protocol",
            Self::V6 => "ip6 nexthdr",
        }
    }

    /// The same, but not of an IPv4 packet's later fragments: nftables reads ports from those too, where they have none
    /// (`nft_payload_fast_eval` does not ask, Linux 6.18).
    const fn first_of(self) -> &'static str {
        match self {
            Self::V4 => "ip frag-off & 0x1fff 0 ip protocol",
            Self::V6 => "ip6 nexthdr",
        }
    }

    const fn icmp(self) -> &'static str {
        match self {
            Self::V4 => "1",
            Self::V6 => "58",
        }
    }

    fn set(self, addresses: &BTreeSet<IpAddr>) -> Option<String> {
        let ours: Vec<String> = addresses
            .iter()
            .filter(|address| match self {
                Self::V4 => address.is_ipv4(),
                Self::V6 => address.is_ipv6(),
            })
            .map(IpAddr::to_string)
            .collect();
        (!ours.is_empty()).then(|| format!("{{ {} }}", ours.join(", ")))
    }

    /// Bit offsets from the start of the ICMP header: its type, then in the packet that it quotes after 8 bytes the
    /// version (and header length), the protocol, and the destination port.
    fn port_unreachable(self, port: u16) -> String {
        let first = self.first_of();
        match self {
            Self::V4 => format!("{first} 1 @th,0,8 3 @th,64,8 0x45 @th,136,8 17 @th,240,16 {port}"),
            Self::V6 => format!("{first} 58 @th,0,8 1 @th,64,4 6 @th,112,8 17 @th,400,16 {port}"),
        }
    }
}
