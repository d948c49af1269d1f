//! The slow, obvious twin: a small world of packets, every rule read naively into the set of the packets that it
//! allows. The same generator serves the property tests, the fuzz targets and the oracle.
//!
//! The world holds one packet of every class that rules of this vocabulary can tell apart.
#![expect(
    dead_code,
    clippy::unwrap_used,
    reason = "shared by several tests; the twin reads only what it wrote"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sallyport_policy::raw::{
    RawAllowance, RawCeiling, RawCidr, RawPort, RawRoute, RawRule, RawRuleSet, RawSelector,
};
use sallyport_policy::{Far, Flow, Labels, Packet, Protocol, Relation, Transport, Via, Workload};

/// Numbers below a bound, from whatever source.
pub(crate) trait Draw {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize;
}

/// A generator with a seed (splitmix64).
pub(crate) struct Seeded(pub(crate) u64);

impl Draw for Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}

/// Bytes of a fuzzer or of a property test; zeros after their end.
pub(crate) struct Bytes<'b>(pub(crate) &'b [u8]);

impl Draw for Bytes<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % bound
    }
}

const WINDOWS: [&str; 3] = ["168.63.129.16", "10.0.0.0", "2001:db8::"];
const NAMES: [&str; 7] = ["a.p.net", "b.p.net", "p.net", "x.a.p.net", "z.p.net", "z.a.p.net", "other.org"];
const PATTERNS: [&str; 7] = ["a.p.net", "b.p.net", "p.net", "x.a.p.net", "*.p.net", "*.a.p.net", "*"];

fn plus(window: &str, offset: u32) -> IpAddr {
    match window.parse().unwrap() {
        IpAddr::V4(v4) => IpAddr::from((v4.to_bits() + offset).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() + u128::from(offset)).to_be_bytes()),
    }
}

fn pick<'a, T>(draw: &mut impl Draw, items: &'a [T]) -> &'a T {
    &items[draw.below(items.len())]
}

/// A prefix of a window of eight addresses, or everything of its family.
fn prefix(draw: &mut impl Draw, window: &str) -> String {
    let v6 = window.contains(':');
    let full = if v6 { 128 } else { 32 };
    let free = draw.below(5);
    if free == 4 {
        return if v6 { "::/0".to_owned() } else { "0.0.0.0/0".to_owned() };
    }
    let offset = draw.below(8) >> free << free;
    format!("{}/{}", plus(window, u32::try_from(offset).unwrap()), full - free)
}

/// One rule; an entitlement may hold `*` and excepts on names.
pub(crate) fn rule(draw: &mut impl Draw, entitled: bool) -> RawRule {
    let mut rule = RawRule::default();
    match draw.below(8) {
        0 => rule.any = Some(true),
        1..=3 => {
            let window = *pick(draw, &WINDOWS);
            let cidr = prefix(draw, window);
            let except = (0..draw.below(4)).map(|_| prefix(draw, window)).collect();
            rule.cidr = Some(RawCidr { cidr, except: Some(except) });
        }
        4 | 5 => {
            let legal = if entitled { 7 } else { 6 };
            rule.name = Some(PATTERNS[draw.below(legal)].to_owned());
            if entitled {
                rule.name_except =
                    Some((0..draw.below(3)).map(|_| PATTERNS[draw.below(6)].to_owned()).collect());
            }
        }
        6 => rule.tenant = Some(["same_user", "same_org"][draw.below(2)].to_owned()),
        _ => {
            let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            let mut pod_labels =
                BTreeMap::from([[pair("k", "x"), pair("k", "y"), pair("l", "x")][draw.below(3)].clone()]);
            if draw.below(2) == 1 {
                pod_labels.extend([pair("l", "x")]);
            }
            let namespace_labels = (draw.below(2) == 1).then(|| BTreeMap::from([pair("n", "x")]));
            rule.selector = Some(RawSelector { pod_labels, namespace_labels });
        }
    }
    if rule.name.is_none() {
        let port = |draw: &mut dyn FnMut(usize) -> usize| {
            let protocol = ["TCP", "udp", "sctp"][[0, 0, 0, 1, 2][draw(5)]].to_owned();
            let port = [443, 8080, 8081, 8082, 8083][draw(5)];
            RawPort {
                protocol,
                port,
                end_port: if port == 443 { 0 } else { port + i64::try_from(draw(4)).unwrap() }.min(8083),
            }
        };
        let ports = (0..draw.below(4)).map(|_| port(&mut |bound| draw.below(bound))).collect();
        rule.ports = Some(ports);
    }
    if rule.tenant.is_none() && rule.selector.is_none() {
        rule.route = match draw.below(12) {
            0 => Some(RawRoute::Word("uplink".to_owned())),
            1 => Some(RawRoute::ExitNodes(vec!["a".to_owned()])),
            2 => Some(RawRoute::ExitNodes(vec!["b".to_owned(), "a".to_owned()])),
            _ => None,
        };
    }
    rule
}

/// A list of rules.
pub(crate) fn rules(draw: &mut impl Draw, most: usize, entitled: bool) -> Vec<RawRule> {
    (0..draw.below(most + 1)).map(|_| rule(draw, entitled)).collect()
}

/// A ceiling of a list of entitlements; empty is unrestricted, as on the wire.
pub(crate) fn ceiling(list: Vec<RawRule>) -> RawCeiling {
    RawCeiling { allowed_egress: RawAllowance::List(list), ..RawCeiling::default() }
}

/// A rule set of egress rules.
pub(crate) fn rule_set(egress: Vec<RawRule>) -> RawRuleSet {
    RawRuleSet { egress, ..RawRuleSet::default() }
}

/// The small world.
pub(crate) struct World {
    pub(crate) fars: Vec<Far>,
    pub(crate) transports: Vec<Transport>,
    pub(crate) vias: Vec<Via>,
}

/// The packets that a rule allows: far ends, transports and ways as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    pub(crate) fars: [u64; 3],
    pub(crate) transports: u32,
    pub(crate) vias: u32,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut fars: Vec<Far> = Vec::new();
        for window in WINDOWS {
            fars.extend((0..8).map(|offset| Far::Address(plus(window, offset))));
        }
        let outside = ["8.8.8.8", "192.168.0.1", "127.0.0.1", "2600::1", "fd00::1", "fe80::1"];
        fars.extend(outside.map(|address| Far::Address(address.parse().unwrap())));
        fars.extend(NAMES.map(|name| Far::Name(sallyport_policy::DnsName::parse(name).unwrap())));
        let labels = |pairs: &[(&str, &str)]| {
            Labels::new(
                &pairs
                    .iter()
                    .filter(|(_, v)| !v.is_empty())
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
            )
            .unwrap()
        };
        for k in ["", "x", "y"] {
            for l in ["", "x"] {
                for n in ["", "x"] {
                    for bits in 0..8 {
                        let all = [Relation::OwnNamespace, Relation::SameUser, Relation::SameOrg];
                        let relations = (0..3).filter(|i| bits >> i & 1 == 1).map(|i| all[i]).collect();
                        let workload = Workload {
                            labels: labels(&[("k", k), ("l", l)]),
                            namespace_labels: labels(&[("n", n)]),
                            relations,
                        };
                        fars.push(Far::Workload(workload));
                    }
                }
            }
        }
        let mut transports =
            vec![Transport::ICMP, Transport::Port(Protocol::Tcp, 0), Transport::Port(Protocol::Tcp, 1)];
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
            transports.extend([443, 8080, 8081, 8082, 8083].map(|port| Transport::Port(protocol, port)));
        }
        let node = |name: &str| Via::ExitNode(sallyport_policy::ExitNode::parse(name).unwrap());
        assert!(fars.len() <= 192 && transports.len() <= 32);
        Self { fars, transports, vias: vec![Via::Posture, Via::Uplink, node("a"), node("b")] }
    }

    /// What a rule allows, read naively.
    pub(crate) fn mask(&self, rule: &RawRule) -> Mask {
        let mut mask = Mask { fars: [0; 3], transports: 0, vias: 0 };
        for (i, far) in self.fars.iter().enumerate() {
            mask.fars[i / 64] |= u64::from(reaches(rule, far)) << (i % 64);
        }
        for (i, transport) in self.transports.iter().enumerate() {
            mask.transports |= u32::from(carries(rule, *transport)) << i;
        }
        for (i, via) in self.vias.iter().enumerate() {
            let goes = match (&rule.route, via) {
                (None, Via::Posture) => true,
                (Some(RawRoute::Word(_)), Via::Uplink) => true,
                (Some(RawRoute::ExitNodes(nodes)), Via::ExitNode(node)) => {
                    nodes.iter().any(|name| name == node.as_str())
                }
                _ => false,
            };
            mask.vias |= u32::from(goes) << i;
        }
        mask
    }

    /// A packet in the first set and not in the second, packet by packet.
    pub(crate) fn outside(&self, mine: &Mask, theirs: &Mask) -> Option<Packet> {
        for (t, transport) in
            self.transports.iter().enumerate().filter(|(t, _)| mine.transports >> t & 1 == 1)
        {
            for (v, via) in self.vias.iter().enumerate().filter(|(v, _)| mine.vias >> v & 1 == 1) {
                let shared = theirs.transports >> t & 1 == 1 && theirs.vias >> v & 1 == 1;
                for word in 0..3 {
                    let left = mine.fars[word] & !(if shared { theirs.fars[word] } else { 0 });
                    if left != 0 {
                        let far =
                            self.fars[word * 64 + usize::try_from(left.trailing_zeros()).unwrap()].clone();
                        return Some(Packet { flow: Flow { far, transport: *transport }, via: via.clone() });
                    }
                }
            }
        }
        None
    }

    /// Every flow.
    pub(crate) fn flows(&self) -> impl Iterator<Item = Flow> + '_ {
        self.fars.iter().flat_map(|far| {
            self.transports.iter().map(|transport| Flow { far: far.clone(), transport: *transport })
        })
    }
}

fn bit(address: IpAddr, i: u32) -> bool {
    match address {
        IpAddr::V4(v4) => v4.to_bits() >> (31 - i) & 1 == 1,
        IpAddr::V6(v6) => v6.to_bits() >> (127 - i) & 1 == 1,
    }
}

/// Whether an address has a prefix, bit by bit.
pub(crate) fn within(cidr: &str, address: IpAddr) -> bool {
    let (network, length) = cidr.split_once('/').unwrap();
    let network: IpAddr = network.parse().unwrap();
    network.is_ipv4() == address.is_ipv4()
        && (0..length.parse().unwrap()).all(|i| bit(network, i) == bit(address, i))
}

/// Whether an address is in no line of the table.
pub(crate) fn public(address: IpAddr) -> bool {
    !sallyport_policy::platform::TABLE.iter().any(|line| within(line.cidr, address))
}

fn named(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some("") => true,
        Some(suffix) => {
            name.strip_suffix(suffix).is_some_and(|label| !label.is_empty() && !label.contains('.'))
        }
        None => pattern == name,
    }
}

/// Whether a rule's destination holds a far end, read naively.
pub(crate) fn reaches(rule: &RawRule, far: &Far) -> bool {
    match far {
        Far::Address(address) => match &rule.cidr {
            Some(block) => {
                within(&block.cidr, *address)
                    && !block.except.iter().flatten().any(|hole| within(hole, *address))
            }
            None => rule.any == Some(true) && public(*address),
        },
        Far::Name(name) => match &rule.name {
            Some(pattern) => {
                named(pattern, name.as_str())
                    && !rule.name_except.iter().flatten().any(|hole| named(hole, name.as_str()))
            }
            None => rule.any == Some(true),
        },
        Far::Workload(workload) => {
            let has = |labels: &Labels, wanted: &BTreeMap<String, String>| {
                wanted.iter().all(|(k, v)| labels.value(k) == Some(v))
            };
            let tenant = match rule.tenant.as_deref() {
                Some("same_user") => workload.relations.contains(&Relation::SameUser),
                Some(_) => workload.relations.contains(&Relation::SameOrg),
                None => false,
            };
            let selected = rule.selector.as_ref().is_some_and(|selector| {
                has(&workload.labels, &selector.pod_labels)
                    && match &selector.namespace_labels {
                        None => workload.relations.contains(&Relation::OwnNamespace),
                        Some(wanted) => has(&workload.namespace_labels, wanted),
                    }
            });
            tenant || selected
        }
    }
}

/// Whether a rule's ports hold a transport, read naively.
pub(crate) fn carries(rule: &RawRule, transport: Transport) -> bool {
    if rule.name.is_some() {
        return transport == Transport::HTTPS;
    }
    let ports = rule.ports.as_deref().unwrap_or_default();
    let Transport::Port(protocol, port) = transport else { return ports.is_empty() };
    let listed = |raw: &RawPort| {
        raw.protocol.eq_ignore_ascii_case(protocol.word())
            && (raw.port..=raw.end_port.max(raw.port)).contains(&i64::from(port))
    };
    ports.is_empty() || ports.iter().any(listed)
}

/// The rules without those that the parser refuses (excepts outside, nothing left).
pub(crate) fn legal(rules: Vec<RawRule>, entitled: bool) -> Vec<RawRule> {
    let sound = |rule: &RawRule| {
        let list = vec![rule.clone()];
        if entitled {
            sallyport_policy::Ceiling::from_raw(&ceiling(list), sallyport_policy::Edge::Wire).is_ok()
        } else {
            sallyport_policy::RuleSet::from_raw(&rule_set(list), sallyport_policy::Edge::Wire).is_ok()
        }
    };
    rules.into_iter().filter(sound).collect::<Vec<_>>()
}

/// The names of all far ends, for messages.
pub(crate) fn spoken(fars: &BTreeSet<Far>) -> Vec<String> {
    fars.iter().map(|far| Flow { far: far.clone(), transport: Transport::HTTPS }.to_string()).collect()
}
