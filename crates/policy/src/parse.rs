//! From what was said to what it means: every check of a declared rule, each mistake with its field path.

use std::collections::BTreeSet;

use crate::cidr::{Cidr, CidrBlock};
use crate::grant::{Grant, Target};
use crate::label::{self, Labels, Namespace, Selector, TenantScope};
use crate::mistake::{Fault, Mistakes, Path, shortened};
use crate::name::{NameBlock, Pattern};
use crate::platform;
use crate::ports::{PortSet, PortSpan, Protocol};
use crate::raw::{RawCidr, RawPort, RawRoute, RawRule, RawSelector};
use crate::route::{ExitNode, Route, ServiceRef};

/// The documented limits of inputs.
pub mod limits {
    /// Rules in one list of a workload or a ceiling.
    pub const RULES: usize = 10_000;
    /// Names, excepts included, in one ceiling or rule set.
    pub const NAMES: usize = 10_000;
    /// Excepts of one rule.
    pub const EXCEPTS: usize = 1_000;
    /// Port ranges of one rule.
    pub const PORTS: usize = 256;
    /// Labels of one map.
    pub const LABELS: usize = 64;
    /// Exit nodes of one route.
    pub const EXIT_NODES: usize = 32;
    /// Bytes of one file.
    pub const FILE_BYTES: usize = 4 << 20;
    /// Values of one file, after YAML aliases are followed.
    pub const FILE_VALUES: usize = 500_000;
    /// Levels of nesting of one file.
    pub const FILE_DEPTH: usize = 32;
}

/// Where an input came from: the wire cannot tell absent from empty, a file can and must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The sandbox API: absent and empty are the same, doubles are merged, no additions of ours.
    Wire,
    /// A file of ours: empty lists and doubles are mistakes.
    File,
}

/// What a rule is said as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Declared,
    Entitled,
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Egress,
    Ingress,
}

pub(crate) struct Checker {
    pub(crate) edge: Edge,
    pub(crate) mistakes: Mistakes,
    names: usize,
}

impl Checker {
    pub(crate) fn new(edge: Edge) -> Self {
        Self { edge, mistakes: Mistakes::default(), names: 0 }
    }

    /// Every rule of a list.
    pub(crate) fn rules(
        &mut self,
        raw: &[RawRule],
        at: &Path,
        role: Role,
        direction: Direction,
    ) -> Vec<Grant> {
        if raw.len() > limits::RULES {
            self.mistakes.add(
                at,
                Fault::Limit,
                format!("{} rules; the limit is {}", raw.len(), limits::RULES),
            );
            return Vec::new();
        }
        let mut seen = std::collections::HashMap::new();
        let mut grants = Vec::with_capacity(raw.len());
        for (i, rule) in raw.iter().enumerate() {
            let Some(grant) = self.rule(rule, &at.index(i), role, direction) else { continue };
            if self.edge == Edge::File
                && let Some(first) = seen.insert(grant.clone(), i)
            {
                self.mistakes.add(
                    &at.index(i),
                    Fault::Duplicate,
                    format!("says the same as {at}[{first}]; leave one out"),
                );
            }
            grants.push(grant);
        }
        grants
    }

    fn rule(&mut self, raw: &RawRule, at: &Path, role: Role, direction: Direction) -> Option<Grant> {
        if raw.damaged {
            return None;
        }
        let before = self.mistakes.told().len() + self.mistakes.more();
        let name_key = if self.edge == Edge::Wire { "https_hostname" } else { "dns_name" };
        let said: Vec<&str> = [
            (raw.cidr.is_some(), "cidr"),
            (raw.name.is_some(), name_key),
            (raw.tenant.is_some(), "tenant"),
            (raw.any.is_some(), "any"),
            (raw.selector.is_some(), "selector"),
        ]
        .into_iter()
        .filter_map(|(said, key)| said.then_some(key))
        .collect();
        if said.len() != 1 {
            let which = if said.is_empty() {
                "none is there".to_owned()
            } else {
                format!("{} are there", said.join(" and "))
            };
            let message =
                format!("a rule has exactly one of cidr, {name_key}, tenant, any, selector; {which}");
            self.mistakes.add(at, Fault::Destination, message);
        }
        if direction == Direction::Ingress {
            for (said, key) in [
                (raw.name.is_some(), name_key),
                (raw.selector.is_some(), "selector"),
                (raw.route.is_some(), "route"),
            ] {
                if said {
                    let message =
                        format!("an ingress rule has no {key}; it has cidr, tenant or any, and ports");
                    self.mistakes.add(&at.key(key), Fault::NotForIngress, message);
                }
            }
        }
        if raw.name.is_none() && raw.name_except.is_some() {
            let key = format!("{name_key}_except");
            self.mistakes.add(
                &at.key(&key),
                Fault::ExceptOutside,
                format!("excepts need a {name_key} to be taken from"),
            );
        }
        let mut targets = Vec::new();
        if let Some(cidr) = &raw.cidr {
            targets.push(self.cidr(cidr, at).map(Target::Cidr));
        }
        if let Some(name) = &raw.name {
            targets.push(self.name(name, raw.name_except.as_deref(), at, name_key, role).map(Target::Names));
        }
        if let Some(tenant) = &raw.tenant {
            targets.push(self.tenant(tenant, &at.key("tenant")).map(Target::Tenant));
        }
        match raw.any {
            Some(true) => targets.push(Some(Target::Any)),
            Some(false) => self.mistakes.add(&at.key("any"), Fault::AnyFalse, "any is true or left out"),
            None => {}
        }
        if let Some(selector) = &raw.selector {
            targets.push(self.selector(selector, &at.key("selector")).map(Target::Selector));
        }
        let ports = self.ports(raw.ports.as_deref(), &at.key("ports"));
        let route =
            raw.route.as_ref().map_or(Some(Route::Posture), |route| self.route(route, &at.key("route")));
        let (Some(Some(target)), 1, Some(mut ports), Some(route)) = (targets.pop(), said.len(), ports, route)
        else {
            return None;
        };
        match target {
            Target::Names(_) => {
                if ports != PortSet::Everything && ports != PortSet::https() {
                    let message = format!(
                        "a {name_key} rule (dns_name) reaches TCP 443 only; leave ports out or say 443"
                    );
                    self.mistakes.add(&at.key("ports"), Fault::NamePorts, message);
                }
                ports = PortSet::https();
            }
            Target::Selector(_) | Target::Tenant(_) if route != Route::Posture => {
                let message = "workloads of the platform are reached inside it; leave route out";
                self.mistakes.add(&at.key("route"), Fault::Route, message);
            }
            Target::Any | Target::Cidr(_) | Target::Selector(_) | Target::Tenant(_) => {}
        }
        let sound = before == self.mistakes.told().len() + self.mistakes.more();
        sound.then_some(Grant { target, ports, route })
    }

    fn cidr(&mut self, raw: &RawCidr, at: &Path) -> Option<CidrBlock> {
        let at = at.key("cidr");
        let read = |checker: &mut Self, text: &str, at: &Path| match text.parse::<Cidr>() {
            Ok(cidr) => Some(cidr),
            Err(error) => {
                checker.mistakes.add(at, Fault::Cidr, format!("{:?}: {error}", shortened(text)));
                None
            }
        };
        let cidr = read(self, &raw.cidr, &at);
        let raw_except = self.list(raw.except.as_deref(), &at.key("except"), limits::EXCEPTS)?;
        let mut except = BTreeSet::new();
        let mut sound = true;
        for (i, text) in raw_except.iter().enumerate() {
            let at = at.key("except").index(i);
            let Some(hole) = read(self, text, &at) else {
                sound = false;
                continue;
            };
            if cidr.is_some_and(|cidr| !cidr.covers(&hole)) {
                self.mistakes.add(&at, Fault::ExceptOutside, format!("{hole} is not inside {}", raw.cidr));
                sound = false;
            }
            if !except.insert(hole) {
                self.double(&at, &hole.to_string());
            }
        }
        let cidr = cidr.filter(|_| sound)?;
        let Some(block) = CidrBlock::new(cidr, except) else {
            self.mistakes.add(
                &at,
                Fault::MatchesNothing,
                "the excepts take out every address, so this can never match",
            );
            return None;
        };
        let set = block.set();
        if set.is_subset(platform::never_like(set)) {
            let what = set.first().and_then(platform::line_of).map_or("not global unicast", |line| line.what);
            let message = format!("no rule ever opens {block} ({what}), so this can never match");
            self.mistakes.add(&at, Fault::MatchesNothing, message);
            return None;
        }
        Some(block)
    }

    fn name(
        &mut self,
        raw: &str,
        except: Option<&[String]>,
        at: &Path,
        key: &str,
        role: Role,
    ) -> Option<NameBlock> {
        self.names += 1 + except.map_or(0, <[String]>::len);
        if self.names > limits::NAMES {
            self.mistakes.add(at, Fault::Limit, format!("more than {} names", limits::NAMES));
            return None;
        }
        let read = |checker: &mut Self, text: &str, at: &Path| match Pattern::parse(text) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                let fault = match error {
                    crate::name::NameError::NeverPublic(_) | crate::name::NameError::NoRoom => {
                        Fault::MatchesNothing
                    }
                    _ => Fault::Name,
                };
                checker.mistakes.add(at, fault, format!("dns_name {:?}: {error}", shortened(text)));
                None
            }
        };
        let pattern = read(self, raw, &at.key(key));
        if pattern == Some(Pattern::Every) && role != Role::Entitled {
            let message = "dns_name * may stand in a ceiling only; name the hosts, or use any";
            self.mistakes.add(&at.key(key), Fault::EveryName, message);
            return None;
        }
        let except_at = at.key(&format!("{key}_except"));
        if role != Role::Entitled
            && except.is_some_and(|except| !except.is_empty() || self.edge == Edge::File)
        {
            self.mistakes.add(
                &except_at,
                Fault::NameExcept,
                "excepts on names may stand in a ceiling only; leave them out",
            );
            return None;
        }
        let texts = self.list(except, &except_at, limits::EXCEPTS)?;
        let mut holes = BTreeSet::new();
        let mut sound = true;
        for (i, text) in texts.iter().enumerate() {
            let at = except_at.index(i);
            let Some(hole) = read(self, text, &at) else {
                sound = false;
                continue;
            };
            if pattern.as_ref().is_some_and(|pattern| !pattern.covers(&hole)) {
                self.mistakes.add(
                    &at,
                    Fault::ExceptOutside,
                    format!("{hole} is not within {}", shortened(raw)),
                );
                sound = false;
            }
            let text = hole.to_string();
            if !holes.insert(hole) {
                self.double(&at, &text);
            }
        }
        let block = NameBlock::new(pattern.filter(|_| sound)?, holes);
        if block.is_none() {
            self.mistakes.add(
                at,
                Fault::MatchesNothing,
                "the excepts take out every name, so this can never match",
            );
        }
        block
    }

    fn tenant(&mut self, raw: &str, at: &Path) -> Option<TenantScope> {
        let word = raw.strip_prefix("TENANT_SCOPE_").unwrap_or(raw);
        let scope = [TenantScope::SameUser, TenantScope::SameOrg]
            .into_iter()
            .find(|scope| scope.word().eq_ignore_ascii_case(word));
        if scope.is_none() {
            let message = if word.eq_ignore_ascii_case("sandbox_network") {
                "the scope sandbox_network is not offered; use same_user, same_org or a selector".to_owned()
            } else {
                format!("{:?} is no tenant scope; it is same_user or same_org", shortened(raw))
            };
            self.mistakes.add(at, Fault::Tenant, message);
        }
        scope
    }

    fn selector(&mut self, raw: &RawSelector, at: &Path) -> Option<Selector> {
        let pod_at = at.key("pod_labels");
        if raw.pod_labels.is_empty() {
            let message = "a selector needs at least one pod label; there is no form for every workload";
            self.mistakes.add(&pod_at, Fault::NoPodLabels, message);
            return None;
        }
        let pod = self.labels(&raw.pod_labels, &pod_at);
        let namespace_at = at.key("namespace_labels");
        let namespace = match &raw.namespace_labels {
            None => Some(Namespace::Own),
            Some(map) if map.is_empty() && self.edge == Edge::Wire => Some(Namespace::Own),
            Some(map) if map.is_empty() => {
                let message = "no labels could be read as every namespace; leave namespace_labels out for the workload's own";
                self.mistakes.add(&namespace_at, Fault::EmptyList, message);
                None
            }
            Some(map) => self.labels(map, &namespace_at).map(Namespace::Labelled),
        };
        Selector::new(pod?, namespace?)
    }

    fn labels(&mut self, map: &std::collections::BTreeMap<String, String>, at: &Path) -> Option<Labels> {
        if map.len() > limits::LABELS {
            self.mistakes.add(
                at,
                Fault::Limit,
                format!("{} labels; the limit is {}", map.len(), limits::LABELS),
            );
            return None;
        }
        for (key, value) in map {
            if let Err(error) = label::check(key, value) {
                let message = format!("{:?}: {:?}: {error}", shortened(key), shortened(value));
                self.mistakes.add(&at.key(key), Fault::Label, message);
            }
        }
        Labels::new(map).ok()
    }

    fn ports(&mut self, raw: Option<&[RawPort]>, at: &Path) -> Option<PortSet> {
        let raw = self.list(raw, at, limits::PORTS)?;
        let mut spans = Vec::new();
        let mut sound = true;
        for (i, port) in raw.iter().enumerate() {
            match self.port(port, &at.index(i)) {
                Some(span) if spans.contains(&span) => self.double(&at.index(i), &span.to_string()),
                Some(span) => spans.push(span),
                None => sound = false,
            }
        }
        if !sound {
            return None;
        }
        Some(PortSet::listed(spans).unwrap_or(PortSet::Everything))
    }

    fn port(&mut self, raw: &RawPort, at: &Path) -> Option<PortSpan> {
        let protocol =
            if raw.protocol.is_empty() { Some(Protocol::Tcp) } else { Protocol::named(&raw.protocol) };
        if protocol.is_none() {
            let message = format!("{:?} is no protocol; it is TCP, UDP or SCTP", shortened(&raw.protocol));
            self.mistakes.add(&at.key("protocol"), Fault::Protocol, message);
        }
        let number = |checker: &mut Self, port: i64, key: &str| {
            let number = u16::try_from(port).ok().filter(|&port| port != 0);
            if number.is_none() {
                checker.mistakes.add(&at.key(key), Fault::Port, format!("port {port} is not in 1 to 65535"));
            }
            number
        };
        let first = number(self, raw.port, "port");
        let last = if raw.end_port == 0 { first } else { number(self, raw.end_port, "end_port") };
        let (first, last) = (first?, last?);
        if last < first {
            let message = format!("the range ends before it begins; write {last} to {first}");
            self.mistakes.add(&at.key("end_port"), Fault::PortRange, message);
        }
        PortSpan::new(protocol?, first, last)
    }

    fn route(&mut self, raw: &RawRoute, at: &Path) -> Option<Route> {
        match raw {
            RawRoute::Word(word) if word == "uplink" => Some(Route::Uplink),
            RawRoute::Word(word) if word == "posture" => Some(Route::Posture),
            RawRoute::Word(word) => {
                let message = format!(
                    "{:?} is no route; it is posture, uplink, {{exit_nodes: [...]}} or {{service: NAMESPACE/NAME}}",
                    shortened(word)
                );
                self.mistakes.add(at, Fault::Route, message);
                None
            }
            RawRoute::Service(text) => {
                let service = ServiceRef::parse(text);
                if service.is_none() {
                    let message = format!("{:?} is no egress service; write NAMESPACE/NAME", shortened(text));
                    self.mistakes.add(&at.key("service"), Fault::Route, message);
                }
                service.map(Route::Service)
            }
            RawRoute::ExitNodes(texts) => {
                let at = at.key("exit_nodes");
                let texts = self.list(Some(texts), &at, limits::EXIT_NODES)?;
                let mut nodes = BTreeSet::new();
                for (i, text) in texts.iter().enumerate() {
                    match ExitNode::parse(text) {
                        Some(node) if nodes.contains(&node) => self.double(&at.index(i), node.as_str()),
                        Some(node) => {
                            nodes.insert(node);
                        }
                        None => {
                            let message = format!(
                                "{:?} is no exit node; write its name, tailnet address or id:ID",
                                shortened(text)
                            );
                            self.mistakes.add(&at.index(i), Fault::Route, message);
                        }
                    }
                }
                if nodes.is_empty() && self.mistakes.is_empty() {
                    self.mistakes.add(&at, Fault::EmptyList, "name at least one exit node");
                }
                (!nodes.is_empty()).then_some(Route::ExitNodes(nodes))
            }
        }
    }

    /// A list as it counts: absent is empty; said and empty is a mistake in a file.
    fn list<'a, T>(&mut self, list: Option<&'a [T]>, at: &Path, limit: usize) -> Option<&'a [T]> {
        let list = match list {
            None => return Some(&[]),
            Some([]) if self.edge == Edge::File => {
                self.mistakes.add(
                    at,
                    Fault::EmptyList,
                    "the list is empty and says nothing; leave the key out",
                );
                return None;
            }
            Some(list) => list,
        };
        if list.len() > limit {
            self.mistakes.add(at, Fault::Limit, format!("{} items; the limit is {limit}", list.len()));
            return None;
        }
        Some(list)
    }

    fn double(&mut self, at: &Path, what: &str) {
        if self.edge == Edge::File {
            self.mistakes.add(
                at,
                Fault::Duplicate,
                format!("{} is there already; leave one out", shortened(what)),
            );
        }
    }

    /// A word of ours, or a mistake that lists the possible ones.
    pub(crate) fn word<T>(
        &mut self,
        raw: &str,
        at: &Path,
        words: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = read(raw);
        if value.is_none() {
            self.mistakes.add(at, Fault::Word, format!("{:?} is none of {words}", shortened(raw)));
        }
        value
    }
}
