//! From what was written to what can be built: every contradiction is found in one pass.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::file::{File, HostTable, Underlay};
use super::{Dual, Host, INTERNET, Mistake, Role, Topology};
use crate::internet::table;

/// The longest name of a host, in bytes: a DNS label with room for a suffix that a control server may append.
const LONGEST_NAME: usize = 40;

pub(super) fn check(file: File) -> Result<Topology, Vec<Mistake>> {
    let mut mistakes = Mistakes::default();
    if !is_domain(&file.domain) {
        mistakes.add("domain", "expected lower-case labels joined by dots, such as tail1234.ts.net");
    }
    let underlay = underlay(&file.underlay, &mut mistakes);
    let mut taken: BTreeMap<IpAddr, String> = BTreeMap::new();
    for pair in table::ADDRESSES {
        taken.extend(pair.both().map(|address| (address, "the fake Internet's services".into())));
    }
    taken.extend(file.underlay.gateway.iter().map(|address| (*address, "underlay.gateway".to_string())));
    let mut hosts = Vec::new();
    for (name, table) in &file.hosts {
        hosts.extend(host(name, table, underlay.as_ref(), &mut taken, &mut mistakes));
    }
    for (role, wanted) in [(Role::Control, "control server"), (Role::Worker, "worker")] {
        let found = file.hosts.values().filter(|table| table.role == role).count();
        if found != 1 {
            mistakes.add(
                "hosts",
                format!("expected exactly one host with role \"{role}\" (the {wanted}), found {found}"),
            );
        }
    }
    match (underlay, mistakes.0.is_empty()) {
        (Some(net), true) => Ok(Topology {
            domain: file.domain,
            network4: net.network4,
            network6: net.network6,
            gateway4: net.gateway4,
            gateway6: net.gateway6,
            hosts,
        }),
        _ => Err(mistakes.0),
    }
}

#[derive(Default)]
struct Mistakes(Vec<Mistake>);

impl Mistakes {
    fn add(&mut self, at: impl Into<String>, what: impl Into<String>) {
        self.0.push(Mistake { at: at.into(), what: what.into() });
    }
}

struct Net {
    network4: Ipv4Net,
    network6: Ipv6Net,
    gateway4: Ipv4Addr,
    gateway6: Ipv6Addr,
}

impl Net {
    fn holds(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                self.network4.contains(&address)
                    && address != self.network4.network()
                    && address != self.network4.broadcast()
            }
            IpAddr::V6(address) => self.network6.contains(&address) && address != self.network6.network(),
        }
    }
}

fn underlay(written: &Underlay, mistakes: &mut Mistakes) -> Option<Net> {
    let networks = match written.networks[..] {
        [IpNet::V4(v4), IpNet::V6(v6)] | [IpNet::V6(v6), IpNet::V4(v4)] => Some((v4.trunc(), v6.trunc())),
        _ => {
            mistakes.add("underlay.networks", "expected one IPv4 and one IPv6 network");
            None
        }
    };
    let gateway = match written.gateway[..] {
        [IpAddr::V4(v4), IpAddr::V6(v6)] | [IpAddr::V6(v6), IpAddr::V4(v4)] => Some((v4, v6)),
        _ => {
            mistakes.add("underlay.gateway", "expected one IPv4 and one IPv6 address");
            None
        }
    };
    let ((network4, network6), (gateway4, gateway6)) = (networks?, gateway?);
    if !network4.addr().is_private() {
        // tailscaled speaks plain http to a control server on a private address only.
        mistakes.add("underlay.networks", format!("{network4} is not a private network (RFC 1918)"));
    }
    let net = Net { network4, network6, gateway4, gateway6 };
    for address in [IpAddr::V4(gateway4), IpAddr::V6(gateway6)] {
        if !net.holds(address) {
            mistakes.add("underlay.gateway", format!("{address} is not an address of underlay.networks"));
        }
    }
    Some(net)
}

fn host(
    name: &str,
    written: &HostTable,
    underlay: Option<&Net>,
    taken: &mut BTreeMap<IpAddr, String>,
    mistakes: &mut Mistakes,
) -> Option<Host> {
    let at = |key: &str| format!("hosts.{name}.{key}");
    if !is_label(name) || name.len() > LONGEST_NAME {
        let what =
            format!("expected a name of at most {LONGEST_NAME} lower-case letters, digits and inner hyphens");
        mistakes.add(format!("hosts.{name}"), what);
    }
    if name == INTERNET {
        mistakes.add(format!("hosts.{name}"), "this name is the fake Internet's own");
    }
    for (key, addresses) in [("addresses", &written.addresses), ("public", &written.public)] {
        for address in addresses {
            if let Some(other) = taken.insert(*address, at(key)) {
                mistakes.add(at(key), format!("{address} is taken by {other}"));
            }
        }
    }
    let addresses = dual(&written.addresses);
    if addresses.is_none() {
        mistakes.add(at("addresses"), "expected one IPv4 and at most one IPv6 address");
    }
    if let Some(underlay) = underlay {
        for address in written.addresses.iter().filter(|address| !underlay.holds(**address)) {
            mistakes.add(at("addresses"), format!("{address} is not a host address of underlay.networks"));
        }
        for address in written.public.iter().filter(|address| underlay.holds(**address)) {
            mistakes.add(at("public"), format!("{address} is on the underlay"));
        }
    }
    for address in written.public.iter().filter(|address| !is_public(**address)) {
        mistakes.add(at("public"), format!("{address} is not a public address"));
    }
    let public = if written.public.is_empty() { None } else { dual(&written.public) };
    match written.role {
        Role::Exit if public.is_none() => {
            mistakes.add(at("public"), "an exit needs one public IPv4 and at most one public IPv6 address");
        }
        Role::Worker if !written.public.is_empty() && public.is_none() => {
            mistakes.add(at("public"), "expected one IPv4 and at most one IPv6 address");
        }
        Role::Control | Role::App if !written.public.is_empty() => {
            mistakes
                .add(at("public"), format!("a host with role \"{}\" has no public address", written.role));
        }
        Role::Control if !written.tags.is_empty() => {
            mistakes.add(at("tags"), "the control server is no node of the tailnet");
        }
        Role::Control | Role::Worker | Role::Exit | Role::App => {}
    }
    for tag in &written.tags {
        if !tag.strip_prefix("tag:").is_some_and(is_label) {
            mistakes.add(at("tags"), format!("\"{tag}\" is no tag; expected one such as \"tag:worker\""));
        }
    }
    Some(Host {
        name: name.into(),
        role: written.role,
        addresses: addresses?,
        public,
        tags: written.tags.clone(),
    })
}

fn dual(addresses: &[IpAddr]) -> Option<Dual> {
    match *addresses {
        [IpAddr::V4(ipv4)] => Some(Dual { ipv4, ipv6: None }),
        [IpAddr::V4(ipv4), IpAddr::V6(ipv6)] | [IpAddr::V6(ipv6), IpAddr::V4(ipv4)] => {
            Some(Dual { ipv4, ipv6: Some(ipv6) })
        }
        _ => None,
    }
}

/// Public as `autogroup:internet` sees it; documentation ranges count, labs live in them.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let shared = address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64;
            let special = address.is_private() || address.is_loopback() || address.is_link_local() || shared;
            !special && !address.is_multicast() && address.octets()[0] != 0 && address.octets()[0] < 240
        }
        IpAddr::V6(address) => address.segments()[0] & 0xe000 == 0x2000,
    }
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_domain(text: &str) -> bool {
    text.contains('.') && text.split('.').all(is_label)
}
