//! The own-namespace shape: workloads in namespaces of their own, each on a veth whose end here is called `gw…`; the
//! gate's forward chain knows those links, the tailnet interface and the uplink, and nothing else.
//!
//! The namespace needs `ip_forward`, and a routing rule before Tailscale's 5210 that sends packets to workload ranges by
//! table main (`spec/gate.md` 2: without it, answers go back into the TUN).

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::policy::{Established, ExitNodeFamily, GatePolicy, Internet, Passage, Via};
use super::ranges;
use super::shared::Resolver;
use super::{FORWARDER_MARK, FORWARDER_MARK_MASK, TABLE, TAILSCALE_BYPASS_MARK, TAILSCALE_MARK_MASK};
use crate::nf_tables::{
    Base, Chain, Element, Family, Field, FieldKind, Hook, Key, Kind, Policy, Rejection, Rule, Ruleset, Set,
    Shape, Statement as S, Table,
};

/// A gate of its own namespace, as far as rules need to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNamespace {
    /// Whose it is; stands in the table's comment.
    pub owner: String,
    /// The tailnet interface, such as `tailscale0`.
    pub tunnel: String,
    /// What the names of workload links begin with, such as `gw`.
    pub workload_prefix: String,
    /// The uid of tailscaled, where it has one of its own. Nobody else lives in this namespace but our resolver.
    pub tailscaled_uid: Option<u32>,
    /// What tailscaled asks for names, where the control server is given by name. Needs the uid.
    pub resolver: Option<Resolver>,
    /// Port of this namespace on which the gate's resolver listens for workloads; `None` for none.
    pub dns_port: Option<u16>,
    /// The workloads.
    pub workloads: BTreeSet<WorkloadEnd>,
}

/// A workload's link, as seen from the gate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadEnd {
    /// The link's end in the gate.
    pub link: String,
    /// The workload's address.
    pub ipv4: Option<Ipv4Addr>,
    /// The workload's IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// Whether it may use what the policy opens. Shut cuts it, both ways, open flows too.
    pub passage: Passage,
}

impl WorkloadEnd {
    /// Its elements of the sets that let it pass.
    pub(super) fn live_elements(&self) -> Vec<(&'static str, Element)> {
        let link = || Field::Link(self.link.clone());
        let v4 = self.ipv4.map(|address| ("live4", [link(), Field::V4(address, address)].into()));
        let v6 = self.ipv6.map(|address| ("live6", [link(), Field::V6(address, address)].into()));
        v4.into_iter().chain(v6).collect()
    }
}

impl PartialOrd for Passage {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Passage {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (*self == Self::Open).cmp(&(*other == Self::Open))
    }
}

/// Names of the counters, one a reason.
pub(super) const COUNTERS: [&str; 8] =
    ["spoofed", "invalid", "refused", "waiting", "inward", "stray", "late", "own_refused"];

impl OwnNamespace {
    /// Renders a policy.
    #[must_use]
    pub fn ruleset(&self, policy: &GatePolicy) -> Ruleset {
        let mut table = Table::new(Family::Inet, TABLE, &self.owner);
        table.counters.extend(COUNTERS.map(String::from));
        self.sets(&mut table, policy);
        self.chains(&mut table);
        Ruleset { tables: vec![table] }
    }

    fn sets(&self, table: &mut Table, policy: &GatePolicy) {
        use FieldKind::{Link, V4, V6};
        let mut add = |name: &str, set: Set| drop(table.sets.insert(name.to_string(), set));
        let v4 = |end: &WorkloadEnd| {
            end.ipv4.map(|address| [Field::Link(end.link.clone()), Field::V4(address, address)].into())
        };
        let v6 = |end: &WorkloadEnd| {
            end.ipv6.map(|address| [Field::Link(end.link.clone()), Field::V6(address, address)].into())
        };
        let live = || self.workloads.iter().filter(|end| end.passage == Passage::Open);
        add("here4", Set::new(Shape::Exact, [Link, V4]).with(self.workloads.iter().filter_map(v4)));
        add("here6", Set::new(Shape::Exact, [Link, V6]).with(self.workloads.iter().filter_map(v6)));
        add("live4", Set::new(Shape::Exact, [Link, V4]).with(live().filter_map(v4)));
        add("live6", Set::new(Shape::Exact, [Link, V6]).with(live().filter_map(v6)));
        add_ways(&mut add, policy, Family::Inet);
        add_wait(&mut add, policy);
    }

    fn chains(&self, table: &mut Table) {
        let mut add = |name: &str, base: Option<Base>, rules: Vec<Rule>| {
            table.chains.insert(name.to_string(), Chain { base, rules });
        };
        let prefix = self.workload_prefix.as_bytes().to_vec();
        let from_workload = || S::Is(Key::Iifname, prefix.clone());
        let not_from_workload = || S::IsNot(Key::Iifname, prefix.clone());
        let to_workload = || S::Is(Key::Oifname, prefix.clone());
        let from_tunnel = || S::from_link(&self.tunnel);
        let to_tunnel = || S::to_link(&self.tunnel);
        let not_to_tunnel = || S::not_to_link(&self.tunnel);
        let [in4, in6] = [[Key::Iifname, Key::Ip4Source], [Key::Iifname, Key::Ip6Source]];
        let [out4, out6] = [[Key::Oifname, Key::Ip4Destination], [Key::Oifname, Key::Ip6Destination]];

        add(
            "raw",
            base(Kind::Filter, Hook::Prerouting, -300, Policy::Accept),
            vec![
                [not_from_workload(), S::accept()].into(),
                neighbour("nd_neighbour"),
                [S::within(&in4, "here4"), S::accept()].into(),
                [S::within(&in6, "here6"), S::accept()].into(),
                [S::count("spoofed"), S::drop()].into(),
            ],
        );
        add(
            "forward",
            base(Kind::Filter, Hook::Forward, -10, Policy::Drop),
            vec![
                [S::state(Key::INVALID), S::count("invalid"), S::drop()].into(),
                [from_workload(), S::goto("outward")].into(),
                [to_workload(), S::goto("inward")].into(),
                [S::count("stray"), S::drop()].into(),
            ],
        );
        add(
            "outward",
            None,
            vec![
                [S::within(&in4, "live4"), S::goto("leave")].into(),
                [S::within(&in6, "live6"), S::goto("leave")].into(),
                // Cut: no grace for this one.
                [S::goto("cut")].into(),
            ],
        );
        add("cut", None, refuse("refused").split_off(1));
        let mut leave =
            vec![[to_workload(), S::goto("refuse")].into(), [S::opening(), S::ClampSegmentSize].into()];
        leave.extend(ways_out(&to_tunnel(), &not_to_tunnel()));
        leave.push([S::goto("refuse")].into());
        add("leave", None, leave);
        add(
            "inward",
            None,
            vec![
                [S::within(&out4, "live4"), S::goto("arrive")].into(),
                [S::within(&out6, "live6"), S::goto("arrive")].into(),
                [S::count("inward"), S::drop()].into(),
            ],
        );
        // What is not tracked has no direction, and so is no answer.
        let inward = || -> Rule { [S::count("inward"), S::drop()].into() };
        add("arrive", None, vec![[S::reply(), S::goto("answer")].into(), inward()]);
        add("answer", None, Self::arrive(&from_tunnel(), &S::not_from_link(&self.tunnel)));
        add("refuse", None, refuse("refused"));
        add("input", base(Kind::Filter, Hook::Input, -10, Policy::Accept), self.input(&not_from_workload));
        add("output", base(Kind::Filter, Hook::Output, 10, Policy::Drop), self.output());
        add(
            "nat",
            base(Kind::Nat, Hook::Postrouting, 100, Policy::Accept),
            vec![[from_workload(), S::IsNot(Key::Oifname, prefix.clone()), S::Masquerade].into()],
        );
        add(
            "late",
            base(Kind::Filter, Hook::Postrouting, 110, Policy::Accept),
            vec![
                [not_from_workload(), S::accept()].into(),
                [to_workload(), S::accept()].into(),
                // The TUN may be there before its addresses are: what was masqueraded to another link's address would be
                // stuck for good.
                [to_tunnel(), S::within(&[Key::Ip4Source], "tailnet_self4"), S::accept()].into(),
                [to_tunnel(), S::within(&[Key::Ip6Source], "tailnet_self6"), S::accept()].into(),
                [to_tunnel(), S::count("late"), S::drop()].into(),
                [S::within(&in4, "here4"), S::count("late"), S::drop()].into(),
                [S::within(&in6, "here6"), S::count("late"), S::drop()].into(),
            ],
        );
        let v4 = |net: &str| ranges::whole4(net.parse().expect("a literal"));
        let v6 = |net: &str| ranges::whole6(net.parse().expect("a literal"));
        let own4 = Set::new(Shape::Interval, [FieldKind::V4]).with([[v4("100.64.0.0/10")].into()]);
        let own6 = Set::new(Shape::Interval, [FieldKind::V6]).with([[v6("fd7a:115c:a1e0::/48")].into()]);
        table.sets.insert("tailnet_self4".into(), own4);
        table.sets.insert("tailnet_self6".into(), own6);
    }

    /// What comes back to a workload: answers, by a way that is open for the packets they answer.
    fn arrive(from_tunnel: &S, not_from_tunnel: &S) -> Vec<Rule> {
        let mut rules = Vec::new();
        let back4 = [Key::Ip4Source, Key::L4Proto, Key::SourcePort];
        let back6 = [Key::Ip6Source, Key::L4Proto, Key::SourcePort];
        for (set, keys, link) in [
            ("tailnet4", back4, from_tunnel),
            ("tailnet6", back6, from_tunnel),
            ("uplink4", back4, not_from_tunnel),
            ("uplink6", back6, not_from_tunnel),
        ] {
            rules.push([link.clone(), S::within(&keys, set), S::accept()].into());
        }
        for (link, way) in [(from_tunnel, "by_tunnel"), (not_from_tunnel, "by_uplink")] {
            let open = || [link.clone(), S::within(&[Key::NfProto], way)];
            let [a, b] = open();
            rules.push([a, b, S::NotIn(vec![Key::Ip4Source], "closed4".into()), S::accept()].into());
            let [a, b] = open();
            rules.push([a, b, S::within(&[Key::Ip6Source], "public6"), S::accept()].into());
            // "Fragmentation needed" may come from any router, with any source.
            let [a, b] = open();
            rules.push([a, b, S::state(Key::RELATED), S::accept()].into());
        }
        rules.push([S::count("inward"), S::drop()].into());
        rules
    }

    fn input(&self, not_from_workload: &dyn Fn() -> S) -> Vec<Rule> {
        let mut rules: Vec<Rule> = vec![[not_from_workload(), S::accept()].into(), neighbour("nd_neighbour")];
        if let Some(port) = self.dns_port {
            let port = port.to_be_bytes().to_vec();
            for transport in [S::udp(), S::tcp()] {
                for (keys, live) in
                    [([Key::Iifname, Key::Ip4Source], "live4"), ([Key::Iifname, Key::Ip6Source], "live6")]
                {
                    rules.push(
                        [
                            transport.clone(),
                            S::Is(Key::DestinationPort, port.clone()),
                            S::within(&keys, live),
                            S::accept(),
                        ]
                        .into(),
                    );
                }
            }
        }
        rules.push([S::goto("refuse")].into());
        rules
    }

    /// What the gate itself sends: tailscaled by the uplink, the resolver by the workload's way, answers to workloads.
    fn output(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = vec![
            [S::to_link("lo"), S::accept()].into(),
            [S::Is(Key::Oifname, self.workload_prefix.as_bytes().to_vec()), S::accept()].into(),
            neighbour("nd_all"),
        ];
        let uid = |statements: Vec<S>| {
            let user = self.tailscaled_uid.map(|uid| S::Is(Key::SkUid, uid.to_ne_bytes().into()));
            Rule { statements: user.into_iter().chain(statements).collect() }
        };
        rules.push(uid(vec![bypass_mark(), S::within(&[Key::NfProto], "daemon"), S::accept()]));
        // tailscaled answers its own peers through the TUN.
        rules.push(uid(vec![
            S::to_link(&self.tunnel),
            S::reply(),
            S::within(&[Key::NfProto], "daemon"),
            S::accept(),
        ]));
        if let (Some(_), Some(resolver)) = (self.tailscaled_uid, &self.resolver) {
            rules.extend(resolver.statements().map(|line| {
                uid(line.into_iter().chain([S::within(&[Key::NfProto], "daemon"), S::accept()]).collect())
            }));
        }
        rules.extend(ways_out(&S::to_link(&self.tunnel), &S::not_to_link(&self.tunnel)));
        rules.extend(refuse("own_refused"));
        rules
    }
}

pub(super) fn base(kind: Kind, hook: Hook, priority: i32, policy: Policy) -> Option<Base> {
    Some(Base { kind, hook, priority, policy })
}

/// tailscaled's bypass mark.
pub(super) fn bypass_mark() -> S {
    S::Masked {
        key: Key::Mark,
        mask: TAILSCALE_MARK_MASK.to_ne_bytes().into(),
        value: TAILSCALE_BYPASS_MARK.to_ne_bytes().into(),
    }
}

/// The forwarder's mark.
pub(super) fn forwarder_mark() -> S {
    S::Masked {
        key: Key::Mark,
        mask: FORWARDER_MARK_MASK.to_ne_bytes().into(),
        value: FORWARDER_MARK.to_ne_bytes().into(),
    }
}

/// Neighbour discovery of the types in a set, which no router forwards (hop limit 255, RFC 4861 7.1).
pub(super) fn neighbour(types: &str) -> Rule {
    [
        S::Is(Key::L4Proto, vec![58]),
        S::Is(Key::Ip6HopLimit, vec![255]),
        S::within(&[Key::Icmp6Type], types),
        S::accept(),
    ]
    .into()
}

/// The sets of ways that a policy opens, the same in every table.
pub(super) fn add_ways(add: &mut impl FnMut(&str, Set), policy: &GatePolicy, family: Family) {
    use FieldKind::{Port, Protocol, V4, V6};
    let layer3 = |v4: bool, v6: bool| layer3(family, [v4, v6]);
    let daemon = policy.tailscaled == Passage::Open;
    let (tunnel, uplink) = match policy.internet {
        Internet::Shut => ([false; 2], false),
        Internet::Uplink => ([false; 2], true),
        Internet::ExitNode { ipv4, ipv6 } => {
            ([ipv4, ipv6].map(|family| family == ExitNodeFamily::Allowed), false)
        }
    };
    add("daemon", layer3(daemon, daemon));
    add("by_tunnel", layer3(tunnel[0], tunnel[1]));
    add("by_uplink", layer3(uplink, uplink));
    for (via, name) in [(Via::Tailnet, "tailnet"), (Via::Uplink, "uplink")] {
        let open = ranges::destinations(via, &policy.tailnet, &policy.allow);
        add(&format!("{name}4"), Set::new(Shape::Interval, [V4, Protocol, Port]).with(open.v4));
        add(&format!("{name}6"), Set::new(Shape::Interval, [V6, Protocol, Port]).with(open.v6));
    }
    add("closed4", Set::new(Shape::Interval, [V4]).with(ranges::closed4()));
    add("public6", Set::new(Shape::Interval, [V6]).with(ranges::public6()));
    let types = |types: &[u8]| {
        // A protocol number and an ICMPv6 type are both one byte.
        Set::new(Shape::Exact, [Protocol])
            .with(types.iter().map(|kind| [Field::Protocol(*kind, *kind)].into()))
    };
    add("nd_neighbour", types(&[135, 136]));
    add("nd_all", types(&[133, 135, 136]));
}

/// The set that keeps open flows waiting.
pub(super) fn add_wait(add: &mut impl FnMut(&str, Set), policy: &GatePolicy) {
    let wait = policy.established == Established::Wait;
    add("wait", layer3(Family::Inet, [wait; 2]));
}

/// IPv4 and IPv6 as far as open, in the key of the table's family.
pub(super) fn layer3(family: Family, open: [bool; 2]) -> Set {
    let (kind, both): (_, [Element; 2]) = match family {
        Family::Inet => (FieldKind::Layer3, [[Field::Layer3(2)].into(), [Field::Layer3(10)].into()]),
        Family::Netdev => {
            (FieldKind::EtherType, [[Field::EtherType(0x0800)].into(), [Field::EtherType(0x86dd)].into()])
        }
    };
    let chosen = both.into_iter().zip(open).filter(|(_, open)| *open).map(|(element, _)| element);
    Set::new(Shape::Exact, [kind]).with(chosen)
}

/// The rules that let a packet out: what is spelled out first, then the Internet by the open way.
pub(super) fn ways_out(to_tunnel: &S, not_to_tunnel: &S) -> Vec<Rule> {
    let out4 = [Key::Ip4Destination, Key::L4Proto, Key::DestinationPort];
    let out6 = [Key::Ip6Destination, Key::L4Proto, Key::DestinationPort];
    let mut rules: Vec<Rule> = [
        ("tailnet4", out4, to_tunnel),
        ("tailnet6", out6, to_tunnel),
        ("uplink4", out4, not_to_tunnel),
        ("uplink6", out6, not_to_tunnel),
    ]
    .into_iter()
    .map(|(set, keys, link)| [link.clone(), S::within(&keys, set), S::accept()].into())
    .collect();
    for (link, way) in [(to_tunnel, "by_tunnel"), (not_to_tunnel, "by_uplink")] {
        let open = || [link.clone(), S::within(&[Key::NfProto], way)];
        let [a, b] = open();
        rules.push([a, b, S::NotIn(vec![Key::Ip4Destination], "closed4".into()), S::accept()].into());
        let [a, b] = open();
        rules.push([a, b, S::within(&[Key::Ip6Destination], "public6"), S::accept()].into());
    }
    rules
}

/// The rules that refuse, telling the sender: TCP by a reset (an ICMP error may be taken for a passing trouble, and the
/// kernel limits those), all else by "administratively prohibited". Open flows may be kept waiting instead.
pub(super) fn refuse(counter: &str) -> Vec<Rule> {
    vec![
        [
            S::within(&[Key::NfProto], "wait"),
            S::state(Key::ESTABLISHED | Key::RELATED),
            S::count("waiting"),
            S::drop(),
        ]
        .into(),
        [S::tcp(), S::count(counter), S::Reject(Rejection::TcpReset)].into(),
        [S::count(counter), S::Reject(Rejection::AdminProhibited)].into(),
    ]
}
