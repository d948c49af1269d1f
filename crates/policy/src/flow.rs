//! One concrete flow, and one concrete packet: a flow with the way it took. The points that rules are sets of.
//!
//! As text: `tcp:203.0.113.9:443`, `udp:[2001:db8::1]:53`, `pkg.example.org:443` (TCP), `icmp:192.0.2.1`,
//! `tcp:{app=db}@{team=x}+same_user:8080` (a workload: its labels, its namespace's labels, its relations).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::label::Labels;
use crate::name::{DnsName, NameError};
use crate::ports::Protocol;
use crate::route::Via;

/// A protocol with its port, or a protocol without ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// A port of TCP, UDP or SCTP.
    Port(Protocol, u16),
    /// Another IP protocol, by its number.
    Other(u8),
}

impl Transport {
    /// ICMP, IP protocol 1.
    pub const ICMP: Self = Self::Other(1);
    /// TCP 443, the only transport that a hostname rule reaches.
    pub const HTTPS: Self = Self::Port(Protocol::Tcp, 443);
}

/// What another workload is to the workload that the rule belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Relation {
    /// It lives in the same namespace.
    OwnNamespace,
    /// It is a sandbox of the same user.
    SameUser,
    /// It is a sandbox of the same organisation.
    SameOrg,
}

impl Relation {
    const ALL: [(Self, &'static str); 3] =
        [(Self::OwnNamespace, "own_namespace"), (Self::SameUser, "same_user"), (Self::SameOrg, "same_org")];

    fn word(self) -> &'static str {
        Self::ALL.into_iter().find(|(relation, _)| *relation == self).map_or("", |(_, word)| word)
    }
}

/// Another workload of the platform, with everything that a rule can tell about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    /// Its labels.
    pub labels: Labels,
    /// The labels of its namespace.
    pub namespace_labels: Labels,
    /// What it is to us.
    pub relations: BTreeSet<Relation>,
}

/// The far end of a flow. The kinds are disjoint: a workload's address is no `Address`, and a flow by name is what
/// the gate resolved and checked, whatever address it got.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Far {
    /// An address outside the platform.
    Address(IpAddr),
    /// A name, reached at a public address that it resolved to.
    Name(DnsName),
    /// A workload of the platform.
    Workload(Workload),
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The far end: destination of egress, source of ingress.
    pub far: Far,
    /// Protocol and destination port.
    pub transport: Transport,
}

/// One flow and the way it took: the point that rules are sets of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet {
    /// The flow.
    pub flow: Flow,
    /// The way.
    pub via: Via,
}

/// Why a text is not a flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// Not `[protocol:]destination[:port]`.
    #[error(
        "a flow is [tcp|udp|sctp|icmp|ip-N:]destination:port, such as tcp:203.0.113.9:443 or pkg.example.org:443"
    )]
    Syntax,
    /// The port.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// The name.
    #[error("the destination is no name")]
    Name(#[source] NameError),
    /// The workload.
    #[error(
        "a workload is {{key=value,...}}, then @{{key=value,...}} for its namespace, then +own_namespace, +same_user, +same_org"
    )]
    Workload,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            Transport::Port(protocol, _) => write!(f, "{}:", protocol.word())?,
            Transport::ICMP => f.write_str("icmp:")?,
            Transport::Other(number) => write!(f, "ip-{number}:")?,
        }
        match (&self.far, self.transport) {
            (Far::Address(IpAddr::V6(v6)), Transport::Port(..)) => write!(f, "[{v6}]")?,
            (Far::Address(address), _) => write!(f, "{address}")?,
            (Far::Name(name), _) => write!(f, "{name}")?,
            (Far::Workload(workload), _) => write!(f, "{workload}")?,
        }
        match self.transport {
            Transport::Port(_, port) => write!(f, ":{port}"),
            Transport::Other(_) => Ok(()),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.labels)?;
        if !self.namespace_labels.is_empty() {
            write!(f, "@{}", self.namespace_labels)?;
        }
        for relation in &self.relations {
            write!(f, "+{}", relation.word())?;
        }
        Ok(())
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.via {
            Via::Posture => write!(f, "{}", self.flow),
            Via::Uplink | Via::ExitNode(_) | Via::Service(_) => write!(f, "{} by {}", self.flow, self.via),
        }
    }
}

impl FromStr for Flow {
    type Err = FlowError;

    fn from_str(text: &str) -> Result<Self, FlowError> {
        let head = text.split(':').next().unwrap_or_default();
        let known = |head: &str| {
            let number = head.strip_prefix("ip-").and_then(|number| number.parse().ok());
            let plain = head.eq_ignore_ascii_case("icmp").then_some(1).or(number);
            plain.filter(|number| ![6, 17, 132].contains(number))
        };
        let (protocol, rest) = match (Protocol::named(head), known(head), text.split_once(':')) {
            (None, Some(number), Some((_, far))) => {
                let far = far.strip_prefix('[').and_then(|far| far.strip_suffix(']')).unwrap_or(far);
                return Ok(Self { far: far_end(far)?, transport: Transport::Other(number) });
            }
            (Some(protocol), _, Some((_, rest))) => (protocol, rest),
            _ => (Protocol::Tcp, text),
        };
        let (far, port) = rest.rsplit_once(':').ok_or(FlowError::Syntax)?;
        let plain = port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|&port: &u16| plain && port != 0).ok_or(FlowError::Port)?;
        let far = match far.strip_prefix('[').and_then(|far| far.strip_suffix(']')) {
            Some(v6) => Far::Address(IpAddr::V6(v6.parse().map_err(|_| FlowError::Syntax)?)),
            // Without brackets it is not to be told where the address ends.
            None if far.contains(':') && !far.starts_with('{') => return Err(FlowError::Syntax),
            None => far_end(far)?,
        };
        Ok(Self { far, transport: Transport::Port(protocol, port) })
    }
}

fn far_end(text: &str) -> Result<Far, FlowError> {
    if let Ok(address) = text.parse() {
        return Ok(Far::Address(address));
    }
    if !text.starts_with('{') {
        return DnsName::parse(text).map(Far::Name).map_err(FlowError::Name);
    }
    let (labels, mut rest) = braces(text)?;
    let mut workload = Workload { labels, ..Workload::default() };
    if let Some(namespace) = rest.strip_prefix('@') {
        (workload.namespace_labels, rest) = braces(namespace)?;
    }
    let mut words = rest.split('+');
    if words.next() != Some("") {
        return Err(FlowError::Workload);
    }
    for word in words {
        let found = Relation::ALL.into_iter().find(|(_, known)| *known == word);
        workload.relations.insert(found.ok_or(FlowError::Workload)?.0);
    }
    Ok(Far::Workload(workload))
}

/// `{key=value,...}` and what follows.
fn braces(text: &str) -> Result<(Labels, &str), FlowError> {
    let (inner, rest) =
        text.strip_prefix('{').and_then(|text| text.split_once('}')).ok_or(FlowError::Workload)?;
    let mut map = BTreeMap::new();
    for pair in inner.split(',').filter(|_| !inner.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or(FlowError::Workload)?;
        if map.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(FlowError::Workload);
        }
    }
    let labels = Labels::new(&map).map_err(|_| FlowError::Workload)?;
    Ok((labels, rest))
}
