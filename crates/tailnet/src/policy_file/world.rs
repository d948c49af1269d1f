//! What is known of the tailnet beside its policy, and what a question is about.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::model::{Tag, TagError};
use super::service::{self, Protocol};
use crate::wire::status::{PeerStatus, Status};

/// Whether a world holds every device of its tailnet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coverage {
    /// There may be others.
    #[default]
    Some,
    /// There are no others.
    All,
}

/// The devices that are known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    devices: Vec<Device>,
    coverage: Coverage,
}

/// Whose a device is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Identity {
    /// Nobody's: it has these tags and no others.
    Tags(BTreeSet<Tag>),
    /// This user's.
    User(String),
    /// A user's, and which is not known.
    Somebody,
    /// Not known at all.
    #[default]
    Unknown,
}

/// Approved routes of a device, default routes included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Routes {
    /// These and no others.
    Exactly(Vec<IpNet>),
    /// These, and perhaps others.
    AtLeast(Vec<IpNet>),
}

impl Routes {
    fn known(&self) -> &[IpNet] {
        match self {
            Self::Exactly(routes) | Self::AtLeast(routes) => routes,
        }
    }
}

/// A device of the tailnet.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Full name, or the name within the tailnet; without final dot.
    pub name: String,
    /// Whose it is.
    pub identity: Identity,
    /// Its tailnet addresses.
    pub addresses: Vec<IpAddr>,
    /// What it routes for others, as far as approved.
    pub routes: Routes,
}

impl Device {
    fn of(peer: &PeerStatus) -> Self {
        let tags: BTreeSet<Tag> = peer.tags.iter().filter_map(|tag| tag.parse().ok()).collect();
        let own = |route: &IpNet| peer.tailscale_ips.iter().any(|address| IpNet::from(*address) == *route);
        let routes = peer.allowed_ips.iter().chain(&peer.primary_routes).filter(|route| !own(route));
        Self {
            name: peer.fqdn().to_owned(),
            identity: if tags.is_empty() { Identity::Somebody } else { Identity::Tags(tags) },
            addresses: peer.tailscale_ips.clone(),
            // Policy hides routes from a node that may not use them.
            routes: Routes::AtLeast(routes.copied().collect()),
        }
    }

    /// Tells whether it is called so: by its full name, or by the first label of it. Case does not matter.
    fn is_called(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        let short = self.name.split('.').next().unwrap_or_default();
        !name.is_empty() && (self.name.eq_ignore_ascii_case(name) || short.eq_ignore_ascii_case(name))
    }

    pub(super) fn serves(&self, address: IpAddr) -> bool {
        // Default routes are exit nodes, not subnets.
        self.routes.known().iter().any(|route| route.prefix_len() > 0 && route.contains(&address))
    }

    /// Whether the default route of a family is approved; `None` if that is not known.
    pub(super) fn exit_approved(&self, family: Family) -> Option<Approved> {
        let has =
            self.routes.known().iter().any(|route| route.prefix_len() == 0 && family.is_of(route.addr()));
        match (&self.routes, has) {
            (_, true) => Some(Approved::Yes),
            (Routes::Exactly(_), false) => Some(Approved::No),
            (Routes::AtLeast(_), false) => None,
        }
    }
}

/// Whether a route is approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approved {
    Yes,
    No,
}

impl World {
    /// A world of which nothing is known: what the policy file alone tells.
    pub fn unknown() -> Self {
        Self::default()
    }

    /// A world of these devices.
    pub fn of(devices: Vec<Device>, coverage: Coverage) -> Self {
        Self { devices, coverage }
    }

    /// What one node sees: itself and the peers that policy shows it.
    pub fn from_status(status: &Status) -> Self {
        let nodes = std::iter::once(&status.this_node).chain(status.peers.values());
        let devices = nodes.filter(|node| !node.id.is_empty()).map(Device::of).collect();
        Self { devices, coverage: Coverage::Some }
    }

    /// Returns the devices.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns the one device with this name or address; `None` if there is none or several.
    pub fn device(&self, name: &str) -> Option<&Device> {
        let address: Option<IpAddr> = name.parse().ok();
        let is = |device: &&Device| match address {
            Some(address) => device.addresses.contains(&address),
            None => device.is_called(name),
        };
        let mut found = self.devices.iter().filter(is);
        found.next().filter(|_| found.next().is_none())
    }

    pub(super) fn coverage(&self) -> Coverage {
        self.coverage
    }

    pub(super) fn routers_of(&self, address: IpAddr) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(move |device| device.serves(address))
    }
}

/// Who asks to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    pub(super) identity: Identity,
    /// `None`: not known.
    pub(super) addresses: Option<Vec<IpAddr>>,
}

impl Source {
    /// A device that has this tag and no other, with an address that is not known.
    pub fn tagged(tag: Tag) -> Self {
        Self { identity: Identity::Tags(BTreeSet::from([tag])), addresses: None }
    }

    /// A device of this user, with an address that is not known.
    pub fn user(login: impl Into<String>) -> Self {
        Self { identity: Identity::User(login.into()), addresses: None }
    }

    /// A device that is known.
    pub fn device(device: &Device) -> Self {
        Self { identity: device.identity.clone(), addresses: Some(device.addresses.clone()) }
    }

    /// An address of which nothing else is known.
    pub fn address(address: IpAddr) -> Self {
        Self { identity: Identity::Unknown, addresses: Some(vec![address]) }
    }
}

/// A host as a question names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An alias of the policy's `hosts`, else a device's name.
    Name(String),
    /// An address, of the tailnet or not.
    Address(IpAddr),
    /// A device that has this tag and no other.
    Tag(Tag),
}

impl FromStr for Host {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let plain = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = plain.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        if text.starts_with("tag:") {
            return Ok(Self::Tag(text.parse()?));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() || name.contains(|char: char| char.is_whitespace() || "[]/*@".contains(char)) {
            return Err(DestinationError::NoHost(text.to_owned()));
        }
        Ok(Self::Name(name.to_owned()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
            Self::Tag(tag) => tag.fmt(f),
        }
    }
}

/// A flow's far end: host, port and protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Host.
    pub host: Host,
    /// Protocol.
    pub protocol: Protocol,
    /// Port, for protocols that have ports.
    pub port: Option<u16>,
}

/// Why a word is no destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// There is no host in it.
    #[error("{0:?} names no host")]
    NoHost(String),
    /// It has no port, or one that is none.
    #[error("{0:?} has no port from 1 to 65535: want HOST:PORT or HOST:PORT/PROTOCOL")]
    NoPort(String),
    /// Its protocol has no ports.
    #[error("{protocol} has no ports: want HOST/{protocol}")]
    NoPorts {
        /// The protocol.
        protocol: Protocol,
    },
    /// Its protocol is none.
    #[error(transparent)]
    Protocol(#[from] service::ProtocolError),
    /// Its tag is none.
    #[error(transparent)]
    Tag(#[from] TagError),
}

/// Reads `HOST:PORT`, `HOST:PORT/PROTOCOL`, or `HOST/PROTOCOL` for a protocol without ports; an IPv6 address stands in
/// brackets. The protocol is TCP if none is named.
impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let (rest, protocol) = match text.rsplit_once('/') {
            Some((rest, protocol)) => (rest, protocol.parse()?),
            None => (text, Protocol::TCP),
        };
        if !protocol.has_ports() {
            let bare = rest.parse::<IpAddr>().is_ok() || rest.starts_with("tag:") || !rest.contains(':');
            if !(bare || rest.ends_with(']')) || rest.matches(':').count() > 1 && rest.starts_with("tag:") {
                return Err(DestinationError::NoPorts { protocol });
            }
            return Ok(Self { host: rest.parse()?, protocol, port: None });
        }
        let no_port = || DestinationError::NoPort(text.to_owned());
        let (host, port) = rest.rsplit_once(':').ok_or_else(no_port)?;
        let port = service::port(port).ok_or_else(no_port)?;
        // Without brackets an IPv6 address would lose its last group to the port.
        if host.contains("::") && !host.starts_with('[') {
            return Err(no_port());
        }
        Ok(Self { host: host.parse()?, protocol, port: Some(port) })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (Host::Address(IpAddr::V6(address)), Some(port)) => {
                write!(f, "[{address}]:{port}/{}", self.protocol)
            }
            (host, Some(port)) => write!(f, "{host}:{port}/{}", self.protocol),
            (host, None) => write!(f, "{host}/{}", self.protocol),
        }
    }
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub(super) fn is_of(self, address: IpAddr) -> bool {
        self == Self::of(address)
    }
}
