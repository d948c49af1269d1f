//! Which hosts a lab has, with their roles and addresses: a TOML file, parsed and checked with all mistakes at once.
//! Pure; `docs/lab.md` describes the file for users.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

mod check;
mod file;

/// The topology that is used when none is named.
pub const DEFAULT: &str = include_str!("topology/default.toml");

/// The namespace in the middle, which is no host of the file.
pub const INTERNET: &str = "internet";

/// What a host does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs the control server, with DERP and STUN. Exactly one.
    Control,
    /// The machine whose traffic is to be held. Exactly one.
    Worker,
    /// An exit node with an Internet uplink of its own.
    Exit,
    /// A device that serves HTTP over the tailnet.
    App,
}

impl Role {
    /// Whether a tailscaled runs there.
    #[must_use]
    pub fn is_node(self) -> bool {
        match self {
            Self::Control => false,
            Self::Worker | Self::Exit | Self::App => true,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "control",
            Self::Worker => "worker",
            Self::Exit => "exit",
            Self::App => "app",
        })
    }
}

/// An IPv4 address, and an IPv6 address where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dual {
    /// The IPv4 address.
    pub ipv4: Ipv4Addr,
    /// The IPv6 address; `None` for a host without IPv6.
    pub ipv6: Option<Ipv6Addr>,
}

impl Dual {
    /// The addresses that there are, IPv4 first.
    pub fn iter(self) -> impl Iterator<Item = IpAddr> {
        std::iter::once(IpAddr::V4(self.ipv4)).chain(self.ipv6.map(IpAddr::V6))
    }
}

/// One host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name: of the namespace, in the tailnet, and in the lab's DNS.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Its addresses on the underlay.
    pub addresses: Dual,
    /// The addresses by which the Internet knows it; `None` where those are its underlay addresses.
    pub public: Option<Dual>,
    /// The tags of the auth key that it joins with.
    pub tags: Vec<String>,
}

/// A checked topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The tailnet's MagicDNS domain.
    pub domain: String,
    /// The network that all hosts are on.
    pub network4: Ipv4Net,
    /// The same for IPv6.
    pub network6: Ipv6Net,
    /// The Internet's own addresses on it.
    pub gateway4: Ipv4Addr,
    /// The same for IPv6.
    pub gateway6: Ipv6Addr,
    /// The hosts, sorted by name.
    pub hosts: Vec<Host>,
}

/// One mistake in a topology file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// Where, as a path of keys such as `hosts.worker.public`.
    pub at: String,
    /// What is wrong and what is expected.
    pub what: String,
}

/// A topology that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Not TOML, an unknown key, or a value of the wrong kind; the message points at the line.
    #[error("the topology cannot be read: {0}")]
    Syntax(String),
    /// Well-formed, but contradictory; all mistakes are listed.
    #[error("the topology has {}: {}", count(.0), list(.0))]
    Mistakes(Vec<Mistake>),
}

fn count(mistakes: &[Mistake]) -> String {
    match mistakes.len() {
        1 => "a mistake".into(),
        several => format!("{several} mistakes"),
    }
}

fn list(mistakes: &[Mistake]) -> String {
    let lines: Vec<String> =
        mistakes.iter().map(|mistake| format!("{}: {}", mistake.at, mistake.what)).collect();
    lines.join("; ")
}

impl Topology {
    /// Parses and checks a topology file.
    ///
    /// # Errors
    /// [`TopologyError::Syntax`] for the first thing that is not TOML of the right shape, else
    /// [`TopologyError::Mistakes`] with all that contradicts.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        let file: file::File =
            toml::from_str(text).map_err(|error| TopologyError::Syntax(error.to_string()))?;
        check::check(file).map_err(TopologyError::Mistakes)
    }

    /// The built-in topology, [`DEFAULT`].
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(DEFAULT).expect("the built-in topology is checked by a test")
    }

    /// A host by its name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The hosts of one role, sorted by name.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(move |host| host.role == role)
    }

    /// The one host that runs the control server.
    #[must_use]
    pub fn control(&self) -> &Host {
        self.of_role(Role::Control).next().expect("checked: exactly one")
    }

    /// The one worker.
    #[must_use]
    pub fn worker(&self) -> &Host {
        self.of_role(Role::Worker).next().expect("checked: exactly one")
    }

    /// The hosts on which a tailscaled runs, sorted by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(|host| host.role.is_node())
    }

    /// All tags, each once, sorted.
    #[must_use]
    pub fn tags(&self) -> Vec<String> {
        let mut tags: Vec<String> = self.hosts.iter().flat_map(|host| host.tags.clone()).collect();
        tags.sort();
        tags.dedup();
        tags
    }

    /// The prefix with which a host's underlay address stands on its link.
    #[must_use]
    pub fn on_underlay(&self, address: IpAddr) -> IpNet {
        match address {
            IpAddr::V4(address) => IpNet::V4(Ipv4Net::new_assert(address, self.network4.prefix_len())),
            IpAddr::V6(address) => IpNet::V6(Ipv6Net::new_assert(address, self.network6.prefix_len())),
        }
    }

    /// Names of the lab's DNS for its hosts: `<host>`, and `<host>-public` where the Internet knows it by other
    /// addresses.
    #[must_use]
    pub fn names(&self) -> BTreeMap<String, Dual> {
        let own = self.hosts.iter().map(|host| (host.name.clone(), host.addresses));
        let public = self
            .hosts
            .iter()
            .filter_map(|host| host.public.map(|dual| (format!("{}-public", host.name), dual)));
        own.chain(public).collect()
    }
}

#[cfg(test)]
mod tests;
