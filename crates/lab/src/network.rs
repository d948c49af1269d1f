//! From a topology to namespaces, links, addresses and routes. Nothing runs in them yet.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sallyport_gate::link::LinkError;
use sallyport_gate::netns::NetnsError;
use sallyport_gate::route::Route;
use sallyport_gate::sysctl::{self, SysctlError};

use crate::host::{Link, Place, PlaceError};
use crate::internet::table;
use crate::registry::LabDir;
use crate::topology::{Dual, Host, INTERNET, Role, Topology};

/// The bridge that all hosts' underlay links end on, in the namespace `internet`.
pub const BRIDGE: &str = "lan0";

/// The Internet's own address on an exit's link, on every such link (RFC 7335 reserves it for such uses).
const FAR_GATEWAY4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);
/// The same for IPv6.
const FAR_GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// A network that could not be built.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A host's folder could not be made.
    #[error("cannot make the folder of host {host}")]
    Folder {
        /// The host.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// Namespaces could not be made.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// Or not be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A link, an address or a route was refused.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A kernel setting was refused.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
}

/// The places of a lab, joined by links.
#[derive(Debug)]
pub struct Network {
    /// The fake Internet, with the bridge.
    pub internet: Place,
    /// The hosts, by name.
    pub hosts: BTreeMap<String, Place>,
    far_ends: BTreeMap<(String, Link), String>,
    /// Of the far ends that are not on [`BRIDGE`].
    bridges: BTreeMap<String, String>,
}

impl Network {
    /// Builds all of it.
    ///
    /// # Errors
    /// [`NetworkError`]. What was made is gone when the error is returned.
    pub async fn build(topology: &Topology, dir: &LabDir) -> Result<Self, NetworkError> {
        let mut places = places(topology, dir).await?;
        let internet = places.remove(INTERNET).expect("made above");
        let mut network =
            Self { internet, hosts: places, far_ends: BTreeMap::new(), bridges: BTreeMap::new() };
        network.raise_internet(topology).await?;
        for (number, host) in topology.hosts.iter().enumerate() {
            network.raise_underlay(topology, host, number).await?;
            match host.role {
                Role::Exit => network.raise_uplink(host, number).await?,
                Role::Control | Role::Worker | Role::App => {
                    network.default_by_gateway(topology, host).await?
                }
            }
        }
        Ok(network)
    }

    /// A host's place.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Place> {
        self.hosts.get(name)
    }

    /// All places, the Internet's first.
    pub fn places(&self) -> impl Iterator<Item = (&str, &Place)> {
        let hosts = self.hosts.iter().map(|(name, place)| (name.as_str(), place));
        std::iter::once((INTERNET, &self.internet)).chain(hosts)
    }

    /// The links of a host.
    pub fn links_of(&self, host: &str) -> impl Iterator<Item = Link> {
        self.far_ends.keys().filter(move |(name, _)| name == host).map(|(_, link)| *link)
    }

    /// The name, in the namespace `internet`, of the other end of a host's link.
    #[must_use]
    pub fn far_end(&self, host: &str, link: Link) -> Option<&str> {
        self.far_ends.get(&(host.to_string(), link)).map(String::as_str)
    }

    /// The bridge, in the namespace `internet`, that a far end is a port of.
    #[must_use]
    pub fn bridge_of(&self, far_end: &str) -> &str {
        self.bridges.get(far_end).map_or(BRIDGE, String::as_str)
    }

    async fn raise_internet(&self, topology: &Topology) -> Result<(), NetworkError> {
        settle(&self.internet, Forwarding::On).await?;
        let links = self.internet.links();
        links.add_bridge(BRIDGE).await?;
        for gateway in [IpAddr::V4(topology.gateway4), IpAddr::V6(topology.gateway6)] {
            links.add_address(BRIDGE, topology.on_underlay(gateway)).await?;
        }
        for address in table::ADDRESSES.iter().flat_map(|pair| pair.both()) {
            links.add_address("lo", IpNet::from(address)).await?;
        }
        Ok(())
    }

    async fn raise_underlay(
        &mut self,
        topology: &Topology,
        host: &Host,
        number: usize,
    ) -> Result<(), NetworkError> {
        let place = &self.hosts[&host.name];
        let forwarding = if host.role == Role::Exit { Forwarding::On } else { Forwarding::Off };
        settle(place, forwarding).await?;
        let far = Link::Underlay.far_end(number, &host.name);
        let (near, there) = (Link::Underlay.name(), self.internet.links());
        place.links().add_veth(near, &far, self.internet.namespace_ref()).await?;
        there.attach(&far, BRIDGE).await?;
        there.up(&far).await?;
        for address in host.addresses.iter() {
            place.links().add_address(near, topology.on_underlay(address)).await?;
        }
        place.links().up(near).await?;
        self.far_ends.insert((host.name.clone(), Link::Underlay), far);
        Ok(())
    }

    /// A default route by the Internet's address on the underlay, from the host's public address where it has one.
    async fn default_by_gateway(&self, topology: &Topology, host: &Host) -> Result<(), NetworkError> {
        let links = self.hosts[&host.name].links();
        let near = Link::Underlay.name();
        let mut route4 = Route::on_link(default4(), near).via(topology.gateway4.into());
        let mut route6 = Route::on_link(default6(), near).via(topology.gateway6.into());
        if let Some(public) = host.public {
            route4 = route4.source(public.ipv4.into());
            self.announce(host, public).await?;
            if let Some(public6) = public.ipv6 {
                route6 = route6.source(public6.into());
            }
        }
        links.add_route(&route4).await?;
        if host.addresses.ipv6.is_some() {
            links.add_route(&route6).await?;
        }
        Ok(())
    }

    /// Gives a host its public addresses on the underlay, and tells the Internet the way to them.
    async fn announce(&self, host: &Host, public: Dual) -> Result<(), NetworkError> {
        let links = self.hosts[&host.name].links();
        let by4 =
            Route::on_link(IpNet::from(IpAddr::V4(public.ipv4)), BRIDGE).via(host.addresses.ipv4.into());
        links.add_address(Link::Underlay.name(), IpNet::from(IpAddr::V4(public.ipv4))).await?;
        self.internet.links().add_route(&by4).await?;
        if let (Some(public6), Some(own6)) = (public.ipv6, host.addresses.ipv6) {
            let by6 = Route::on_link(IpNet::from(IpAddr::V6(public6)), BRIDGE).via(own6.into());
            links.add_address(Link::Underlay.name(), IpNet::from(IpAddr::V6(public6))).await?;
            self.internet.links().add_route(&by6).await?;
        }
        Ok(())
    }

    /// An exit's second link: straight to the Internet, with its public addresses and its default routes.
    async fn raise_uplink(&mut self, host: &Host, number: usize) -> Result<(), NetworkError> {
        let public = host.public.expect("checked: an exit has public addresses");
        let place = &self.hosts[&host.name];
        let far = Link::Internet.far_end(number, &host.name);
        let (near, there) = (Link::Internet.name(), self.internet.links());
        place.links().add_veth(near, &far, self.internet.namespace_ref()).await?;
        // A bridge of one, so that a link is an Ethernet port on both sides, and can be taken off and put back.
        let bridge = uplink_bridge(number);
        there.add_bridge(&bridge).await?;
        there.add_address(&bridge, IpNet::from(IpAddr::V4(FAR_GATEWAY4))).await?;
        there.add_address(&bridge, IpNet::V6(Ipv6Net::new_assert(FAR_GATEWAY6, 64))).await?;
        there.attach(&far, &bridge).await?;
        there.up(&far).await?;
        place.links().up(near).await?;
        there.add_route(&Route::on_link(IpNet::from(IpAddr::V4(public.ipv4)), &bridge)).await?;
        if let Some(public6) = public.ipv6 {
            there.add_route(&Route::on_link(IpNet::from(IpAddr::V6(public6)), &bridge)).await?;
        }
        self.bridges.insert(far.clone(), bridge);
        self.far_ends.insert((host.name.clone(), Link::Internet), far);
        self.connect4(host).await?;
        self.connect6(host).await
    }

    async fn connect4(&self, host: &Host) -> Result<(), NetworkError> {
        let public = host.public.expect("checked: an exit has public addresses");
        let (links, near) = (self.hosts[&host.name].links(), Link::Internet.name());
        let default = Route::on_link(default4(), near).via(FAR_GATEWAY4.into()).source(public.ipv4.into());
        links.add_address(near, IpNet::from(IpAddr::V4(public.ipv4))).await?;
        Ok(links.add_route(&default).await?)
    }

    /// Gives an exit its public IPv6 address and its IPv6 default route, where its topology has one.
    ///
    /// # Errors
    /// [`NetworkError::Link`].
    pub async fn connect6(&self, host: &Host) -> Result<(), NetworkError> {
        let Some((address, default)) = uplink6(host) else {
            return Ok(());
        };
        let links = self.hosts[&host.name].links();
        links.add_address(Link::Internet.name(), address).await?;
        Ok(links.add_route(&default).await?)
    }

    /// Takes an exit's public IPv6 address and its IPv6 default route away.
    ///
    /// # Errors
    /// [`NetworkError::Link`].
    pub async fn disconnect6(&self, host: &Host) -> Result<(), NetworkError> {
        let Some((address, default)) = uplink6(host) else {
            return Ok(());
        };
        let links = self.hosts[&host.name].links();
        links.delete_route(&default).await?;
        Ok(links.remove_address(Link::Internet.name(), address).await?)
    }
}

fn uplink6(host: &Host) -> Option<(IpNet, Route)> {
    let public6 = host.public?.ipv6?;
    let default = Route::on_link(default6(), Link::Internet.name()).via(FAR_GATEWAY6.into());
    Some((IpNet::from(IpAddr::V6(public6)), default.source(public6.into())))
}

fn uplink_bridge(number: usize) -> String {
    format!("wan{number}")
}

fn default4() -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0))
}

fn default6() -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0))
}

/// Makes all namespaces at once: the kernel takes tens of milliseconds for each.
async fn places(topology: &Topology, dir: &LabDir) -> Result<BTreeMap<String, Place>, NetworkError> {
    let names: Vec<&str> =
        std::iter::once(INTERNET).chain(topology.hosts.iter().map(|host| host.name.as_str())).collect();
    for name in &names {
        let folder = dir.host(name).join("etc");
        std::fs::create_dir_all(folder)
            .map_err(|source| NetworkError::Folder { host: (*name).to_string(), source })?;
    }
    let made: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            names.iter().map(|name| scope.spawn(|| Place::namespace(name, &dir.host(name)))).collect();
        threads.into_iter().map(|thread| thread.join().expect("making a namespace does not panic")).collect()
    });
    let mut places = BTreeMap::new();
    for (name, namespace) in names.into_iter().zip(made) {
        places.insert(name.to_string(), Place::settle(namespace?).await?);
    }
    Ok(places)
}

#[derive(Clone, Copy)]
enum Forwarding {
    On,
    Off,
}

/// Kernel settings of a place, before it has links, and its loopback up.
async fn settle(place: &Place, forwarding: Forwarding) -> Result<(), NetworkError> {
    let forward = match forwarding {
        Forwarding::On => "1",
        Forwarding::Off => "0",
    };
    sysctl::write(
        place.namespace_ref(),
        &[
            ("net.ipv4.ip_forward", forward),
            ("net.ipv6.conf.all.disable_ipv6", "0"),
            ("net.ipv6.conf.default.disable_ipv6", "0"),
            ("net.ipv6.conf.all.forwarding", forward),
            // Addresses are usable at once: all of them are made here, none can be a duplicate.
            ("net.ipv6.conf.all.accept_dad", "0"),
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv6.conf.default.accept_ra", "0"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
        ],
    )?;
    Ok(place.links().up("lo").await?)
}
