//! Protocols and ports: what a rule opens, what a flow needs, and when the one holds the other.
//!
//! The semantics are those of the packet filter that enforces them (tailscale `wgengine/filter/filter.go:runIn4`):
//! a ping passes wherever any port is open, TCP, UDP and SCTP need their port, any other protocol needs all ports.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// An IP protocol, by its IANA number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(u8);

/// Names that policy files use (headscale `hscontrol/policy/v2/types.go`, tailscale `types/ipproto`).
const NAMES: [(&str, u8); 14] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipv4", 4),
    ("ip-in-ip", 4),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("sctp", 132),
    ("fc", 133),
];

/// Why a word is no protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no protocol: want a name as tcp, udp, icmp, or a number from 1 to 255")]
pub struct ProtocolError(String);

impl Protocol {
    /// ICMP; for IPv6 its sibling is meant.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// ICMPv6.
    pub const ICMPV6: Self = Self(58);
    /// SCTP.
    pub const SCTP: Self = Self(132);

    /// Tells whether its flows have ports.
    pub fn has_ports(self) -> bool {
        [Self::TCP, Self::UDP, Self::SCTP].contains(&self)
    }

    fn is_ping(self) -> bool {
        [Self::ICMP, Self::ICMPV6].contains(&self)
    }
}

impl FromStr for Protocol {
    type Err = ProtocolError;

    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        let lower = text.to_ascii_lowercase();
        if let Some((_, number)) = NAMES.iter().find(|(name, _)| *name == lower) {
            return Ok(Self(*number));
        }
        match lower.parse() {
            Ok(number) if number > 0 && lower.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Self(number)),
            Ok(_) | Err(_) => Err(ProtocolError(text.to_owned())),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Protocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a rule opens on a destination.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service {
    /// `None`: TCP, UDP, ICMP and ICMPv6, which is what an omitted protocol means.
    protocol: Option<Protocol>,
    /// First and last port of each range; never empty.
    ports: Vec<(u16, u16)>,
}

/// Reads a single port; 0 is none.
pub(super) fn port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

const EVERY_PORT: (u16, u16) = (0, u16::MAX);

impl Service {
    /// Reads a protocol, if one is named, and ports: `*`, `443`, or `80-90,443`.
    pub(super) fn read(protocol: Option<Protocol>, ports: &str) -> Result<Self, String> {
        if ports == "*" {
            return Ok(Self { protocol, ports: vec![EVERY_PORT] });
        }
        let port = |text: &str| port(text).ok_or_else(|| format!("{text:?} is no port: want 1 to 65535"));
        let ranges = ports.split(',').map(str::trim).map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (port(first)?, port(last)?);
            if first > last {
                return Err(format!("{range:?} is no range: it ends before it begins"));
            }
            Ok((first, last))
        });
        Ok(Self { protocol, ports: ranges.collect::<Result<_, _>>()? })
    }

    /// Reads a word of a grant's `ip`: `*`, `443`, `80-90`, `tcp:443`, `icmp:*` (`tailcfg/proto_port_range.go`).
    pub(super) fn read_grant(word: &str) -> Result<Self, String> {
        match word.split_once(':') {
            None | Some(("*", _)) => {
                let ports = word.split_once(':').map_or(word, |(_, ports)| ports);
                Self::read(None, ports)
            }
            Some((protocol, ports)) => {
                let protocol = protocol.parse().map_err(|error: ProtocolError| error.to_string())?;
                Self::read(Some(protocol), ports)
            }
        }
    }

    /// Tells whether nothing is left out: every protocol that an omitted one means, on every port.
    pub fn is_everything(&self) -> bool {
        self.protocol.is_none() && self.every_port()
    }

    fn every_port(&self) -> bool {
        self.ports.contains(&EVERY_PORT)
    }

    fn has_port(&self, port: u16) -> bool {
        self.ports.iter().any(|(first, last)| (*first..=*last).contains(&port))
    }

    fn covers(&self, protocol: Protocol) -> bool {
        match self.protocol {
            Some(own) => own == protocol,
            None => protocol.is_ping() || [Protocol::TCP, Protocol::UDP].contains(&protocol),
        }
    }

    /// Tells whether a flow passes, or what keeps it.
    pub(super) fn passes(&self, protocol: Protocol, port: Option<u16>) -> Result<(), Lack> {
        // Pings are matched by address alone (`filter/match.go:matchIPsOnly`).
        if protocol.is_ping() {
            return Ok(());
        }
        if !self.covers(protocol) {
            return Err(Lack::Protocol);
        }
        let open = match port {
            Some(port) if protocol.has_ports() => self.has_port(port),
            Some(_) | None => self.every_port(),
        };
        if open { Ok(()) } else { Err(Lack::Port) }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(protocol) = self.protocol {
            write!(f, "{protocol}:")?;
        }
        if self.every_port() {
            return f.write_str("*");
        }
        let range = |(first, last): &(u16, u16)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        f.write_str(&self.ports.iter().map(range).collect::<Vec<_>>().join(","))
    }
}

impl Serialize for Service {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The part of a rule that does not fit a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lack {
    /// The port is not among its ports.
    Port,
    /// The protocol is not its protocol.
    Protocol,
    /// The destination is not among its destinations.
    Destination,
    /// The source is not among its sources.
    Source,
    /// It names routers or exit nodes by tag, and this one has none of them.
    Via,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Port => "port",
            Self::Protocol => "protocol",
            Self::Destination => "destination",
            Self::Source => "source",
            Self::Via => "via",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(protocol: &str, ports: &str) -> Service {
        let protocol = if protocol.is_empty() { None } else { Some(protocol.parse().expect("a protocol")) };
        Service::read(protocol, ports).expect("ports")
    }

    #[test]
    fn an_omitted_protocol_means_tcp_udp_and_both_icmps() {
        let any = service("", "443");
        for protocol in [Protocol::TCP, Protocol::UDP] {
            assert_eq!(any.passes(protocol, Some(443)), Ok(()));
            assert_eq!(any.passes(protocol, Some(80)), Err(Lack::Port));
        }
        assert_eq!(any.passes(Protocol::SCTP, Some(443)), Err(Lack::Protocol));
        assert_eq!(service("", "*").passes("gre".parse().expect("gre"), None), Err(Lack::Protocol));
    }

    #[test]
    fn a_ping_passes_wherever_any_port_is_open() {
        for service in [service("tcp", "22"), service("", "*"), service("gre", "*")] {
            assert_eq!(service.passes(Protocol::ICMP, None), Ok(()), "{service}");
            assert_eq!(service.passes(Protocol::ICMPV6, None), Ok(()), "{service}");
        }
    }

    #[test]
    fn a_protocol_without_ports_needs_all_of_them() {
        let gre: Protocol = "47".parse().expect("a number");
        assert_eq!(service("gre", "*").passes(gre, None), Ok(()));
        assert_eq!(service("gre", "1-65535").passes(gre, None), Err(Lack::Port));
        assert_eq!(service("tcp", "*").passes(gre, None), Err(Lack::Protocol));
        // A flow of TCP has a port; without one only all of them will do.
        assert_eq!(service("tcp", "22").passes(Protocol::TCP, None), Err(Lack::Port));
    }

    #[test]
    fn ports_are_lists_of_ranges_within_bounds() {
        let some = service("tcp", "22, 80-90,443");
        for port in [22, 80, 85, 90, 443] {
            assert_eq!(some.passes(Protocol::TCP, Some(port)), Ok(()), "{port}");
        }
        for port in [21, 23, 79, 91, 442, 444, 65535] {
            assert_eq!(some.passes(Protocol::TCP, Some(port)), Err(Lack::Port), "{port}");
        }
        assert_eq!(some.to_string(), "tcp:22,80-90,443");
        for wrong in ["", "0", "65536", "90-80", "1-", "-1", "a", "80,,90", "**", "+1", "1-2-3", "٣"] {
            assert!(Service::read(None, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn grants_name_protocols_before_a_colon() {
        let read = |word: &str| Service::read_grant(word).map(|service| service.to_string());
        for (word, shown) in [
            ("*", "*"),
            ("*:*", "*"),
            ("443", "443"),
            ("*:443", "443"),
            ("80-90", "80-90"),
            ("TCP:443", "tcp:443"),
        ] {
            assert_eq!(read(word).as_deref(), Ok(shown), "{word}");
        }
        for wrong in ["", ":443", "tcp:", "tcp", "nope:1", "tcp:0", "tcp:*:1"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn protocols_are_names_or_numbers() {
        for (text, number) in
            [("tcp", 6), ("TCP", 6), ("ipv6-icmp", 58), ("ip-in-ip", 4), ("133", 133), ("255", 255)]
        {
            assert_eq!(text.parse(), Ok(Protocol(number)), "{text}");
        }
        for wrong in ["", "*", "0", "256", "-1", "+6", "tcpp"] {
            assert!(wrong.parse::<Protocol>().is_err(), "{wrong:?}");
        }
        assert_eq!(Protocol(200).to_string(), "200");
    }
}
