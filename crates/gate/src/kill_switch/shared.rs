//! The shared-namespace shape: workload and tailscaled live in one namespace. `inet` output covers every link, present
//! and future; `netdev` egress on each uplink covers raw frames. tailscaled is known by its mark **and** its uid.
//!
//! A workload with `NET_ADMIN`, `NET_RAW` or tailscaled's uid is not held by this (`spec/gate.md` 3): the guard refuses it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::TABLE;
use super::own::{add_wait, add_ways, base, bypass_mark, forwarder_mark, neighbour, refuse, ways_out};
use super::policy::GatePolicy;
use crate::nf_tables::{
    Chain, Element, Family, Field, FieldKind, Hook, Key, Kind, Policy, Rule, Ruleset, Set, Shape,
    Statement as S, Table,
};

/// A namespace that tailscaled and the workload share, as far as rules need to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedNamespace {
    /// Whose it is; stands in the tables' comments.
    pub owner: String,
    /// The tailnet interface.
    pub tunnel: String,
    /// Every other link but `lo`: frames are watched on these.
    pub uplinks: BTreeSet<String>,
    /// The uid of tailscaled.
    pub tailscaled_uid: u32,
    /// What tailscaled asks for names, where the control server is given by name.
    pub resolver: Option<Resolver>,
    /// Loopback port of the guard's DNS forwarder, on 127.0.0.1 and ::1: all DNS of the workload is turned to it.
    pub forwarder_port: Option<u16>,
    /// Whether a DHCP client lives here.
    pub dhcp: Dhcp,
}

/// Whether DHCP has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dhcp {
    /// Addresses are given by whoever made the namespace.
    No,
    /// A client of this namespace asks by broadcast.
    Client,
}

/// DNS servers that tailscaled asks without its mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolver {
    /// Their addresses.
    pub addresses: BTreeSet<IpAddr>,
}

impl Resolver {
    /// The comparisons of one line for each address and transport, without uid and verdict.
    pub(super) fn statements(&self) -> impl Iterator<Item = Vec<S>> {
        let port = || S::Is(Key::DestinationPort, 53u16.to_be_bytes().into());
        self.addresses.iter().flat_map(move |address| {
            let to = match address {
                IpAddr::V4(address) => S::Is(Key::Ip4Destination, address.octets().into()),
                IpAddr::V6(address) => S::Is(Key::Ip6Destination, address.octets().into()),
            };
            [S::udp(), S::tcp()].map(|transport| vec![to.clone(), transport, port()])
        })
    }
}

impl SharedNamespace {
    /// Renders a policy.
    #[must_use]
    pub fn ruleset(&self, policy: &GatePolicy) -> Ruleset {
        Ruleset { tables: vec![self.packets(policy), self.frames(policy)] }
    }

    /// The `inet` table.
    fn packets(&self, policy: &GatePolicy) -> Table {
        let mut table = Table::new(Family::Inet, TABLE, &self.owner);
        table.counters.extend(["refused", "waiting", "stray"].map(String::from));
        let mut add = |name: &str, set: Set| drop(table.sets.insert(name.to_string(), set));
        add_ways(&mut add, policy, Family::Inet);
        add_wait(&mut add, policy);
        add("ingress", ingress(policy));
        let mut add =
            |name: &str, base, rules| drop(table.chains.insert(name.to_string(), Chain { base, rules }));
        add("output", base(Kind::Filter, Hook::Output, 10, Policy::Drop), self.output());
        add(
            "forward",
            base(Kind::Filter, Hook::Forward, -10, Policy::Drop),
            vec![[S::count("stray"), S::drop()].into()],
        );
        if let Some(port) = self.forwarder_port {
            // Before Docker's own turn of 127.0.0.11 at -100: the first translation of a flow stands.
            add(
                "dns",
                base(Kind::Nat, Hook::Output, -110, Policy::Accept),
                vec![
                    [forwarder_mark(), S::accept()].into(),
                    [self.user(), S::accept()].into(),
                    [S::udp(), dns_port(), S::Redirect(port)].into(),
                    [S::tcp(), dns_port(), S::Redirect(port)].into(),
                ],
            );
        }
        table
    }

    fn output(&self) -> Vec<Rule> {
        let daemon = || S::within(&[Key::NfProto], "daemon");
        let mut rules: Vec<Rule> = vec![[S::to_link("lo"), S::accept()].into()];
        if let Some(port) = self.forwarder_port {
            // What was turned to the forwarder still bears the name of the link that it would have left by.
            for (transport, loopback) in [S::udp(), S::tcp()].into_iter().flat_map(|transport| {
                let v4 = S::Is(Key::Ip4Destination, [127, 0, 0, 1].into());
                let v6 = S::Is(Key::Ip6Destination, std::net::Ipv6Addr::LOCALHOST.octets().into());
                [(transport.clone(), v4), (transport, v6)]
            }) {
                let to = S::Is(Key::DestinationPort, port.to_be_bytes().into());
                rules.push([loopback, transport, to, S::accept()].into());
            }
        }
        rules.extend(self.housekeeping(&daemon));
        rules.push([self.user(), S::to_link(&self.tunnel), daemon(), S::accept()].into());
        rules.push(
            [
                S::not_to_link(&self.tunnel),
                S::tcp(),
                S::reply(),
                S::within(&[Key::SourcePort], "ingress"),
                S::accept(),
            ]
            .into(),
        );
        rules.extend(ways_out(&S::to_link(&self.tunnel), &S::not_to_link(&self.tunnel)));
        rules.extend(refuse("refused"));
        rules
    }

    /// tailscaled, its names, neighbour discovery, DHCP: the same for packets and frames.
    fn housekeeping(&self, daemon: &dyn Fn() -> S) -> Vec<Rule> {
        let mut rules: Vec<Rule> = vec![[self.user(), bypass_mark(), daemon(), S::accept()].into()];
        for line in self.resolver.iter().flat_map(Resolver::statements) {
            let statements = std::iter::once(self.user()).chain(line).chain([daemon(), S::accept()]);
            rules.push(Rule { statements: statements.collect() });
        }
        rules.push(neighbour("nd_all"));
        // Listener reports (RFC 3810): without them a snooping switch keeps neighbour discovery from us.
        let all_mld_routers = std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
        rules.push(
            [
                S::Is(Key::Icmp6Type, vec![143]),
                S::Is(Key::Ip6HopLimit, vec![1]),
                S::Is(Key::Ip6Destination, all_mld_routers.octets().into()),
                S::accept(),
            ]
            .into(),
        );
        if self.dhcp == Dhcp::Client {
            let ports = |from: u16, to: u16| {
                [
                    S::Is(Key::SourcePort, from.to_be_bytes().into()),
                    S::Is(Key::DestinationPort, to.to_be_bytes().into()),
                ]
            };
            let agents = std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
            for (to, [source, destination]) in [
                (S::Is(Key::Ip4Destination, vec![255; 4]), ports(68, 67)),
                (S::Is(Key::Ip6Destination, agents.octets().into()), ports(546, 547)),
            ] {
                rules.push([to, S::udp(), source, destination, S::accept()].into());
            }
        }
        rules
    }

    /// The `netdev` table: one chain a link.
    fn frames(&self, policy: &GatePolicy) -> Table {
        let mut table = Table::new(Family::Netdev, TABLE, &self.owner);
        table.counters.insert("frames".into());
        let mut add = |name: &str, set: Set| drop(table.sets.insert(name.to_string(), set));
        add_ways(&mut add, policy, Family::Netdev);
        add("ingress", ingress(policy));
        table.chains.insert("egress".into(), Chain { base: None, rules: self.egress() });
        for device in &self.uplinks {
            let hook = Hook::Egress { device: device.clone() };
            let chain = Chain {
                base: base(Kind::Filter, hook, 0, Policy::Drop),
                rules: vec![[S::goto("egress")].into()],
            };
            table.chains.insert(format!("egress-{device}"), chain);
        }
        table
    }

    fn egress(&self) -> Vec<Rule> {
        let way = |set: &str| S::within(&[Key::EtherType], set);
        let mut rules: Vec<Rule> =
            vec![[S::Is(Key::EtherType, 0x0806u16.to_be_bytes().into()), S::accept()].into()];
        rules.extend(self.housekeeping(&|| way("daemon")));
        // No connection tracking here. A segment that opens a connection is no answer.
        for family in [S::ipv4(), S::ipv6()] {
            rules.push(
                [family, S::tcp(), S::within(&[Key::SourcePort], "ingress"), not_opening(), S::accept()]
                    .into(),
            );
        }
        let to4 = [Key::Ip4Destination, Key::L4Proto, Key::DestinationPort];
        let to6 = [Key::Ip6Destination, Key::L4Proto, Key::DestinationPort];
        rules.push([S::within(&to4, "uplink4"), S::accept()].into());
        rules.push([S::within(&to6, "uplink6"), S::accept()].into());
        rules.push(
            [way("by_uplink"), S::NotIn(vec![Key::Ip4Destination], "closed4".into()), S::accept()].into(),
        );
        rules.push([way("by_uplink"), S::within(&[Key::Ip6Destination], "public6"), S::accept()].into());
        rules.push([S::count("frames"), S::drop()].into());
        rules
    }

    fn user(&self) -> S {
        S::Is(Key::SkUid, self.tailscaled_uid.to_ne_bytes().into())
    }
}

fn dns_port() -> S {
    S::Is(Key::DestinationPort, 53u16.to_be_bytes().into())
}

/// A segment with ACK or RST set.
fn not_opening() -> S {
    S::IsNotMasked { key: Key::TcpFlags, mask: vec![0x14], value: vec![0] }
}

fn ingress(policy: &GatePolicy) -> Set {
    let ports = policy.ingress.iter().map(|port| -> Element { [Field::Port(*port, *port)].into() });
    Set::new(Shape::Exact, [FieldKind::Port]).with(ports)
}
