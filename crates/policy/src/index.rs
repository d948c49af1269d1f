//! Targets by what they can hold, so that a rule or a flow meets only those that may hold it.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::flow::Far;
use crate::grant::{Entitlement, Grant, Target};
use crate::label::TenantScope;
use crate::name::Pattern;
use crate::platform;

/// Positions in the list, by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    any: Vec<u32>,
    every_name: Vec<u32>,
    names: HashMap<Box<str>, Vec<u32>>,
    children: HashMap<Box<str>, Vec<u32>>,
    tenants: [Vec<u32>; 2],
    selectors: HashMap<(Box<str>, Box<str>), Vec<u32>>,
    v4: Forest,
    v6: Forest,
}

/// Prefixes sorted by first address, wide before narrow, each with the next wider one around it.
#[derive(Clone, Debug, Default)]
struct Forest(Vec<Node>);

#[derive(Clone, Debug)]
struct Node {
    first: u128,
    last: u128,
    around: Option<usize>,
    entitlements: Vec<u32>,
}

impl Index {
    pub(crate) fn new<'a>(targets: impl Iterator<Item = &'a Target> + Clone) -> Self {
        let mut index = Self::default();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        // The label that fewest selectors ask for leads to a selector.
        let mut asked: HashMap<(&str, &str), u32> = HashMap::new();
        for target in targets.clone() {
            if let Target::Selector(selector) = target {
                for pair in selector.pod().iter() {
                    *asked.entry(pair).or_default() += 1;
                }
            }
        }
        for (at, target) in targets.enumerate() {
            let at = u32::try_from(at).expect("a list has at most 10,000 entitlements");
            match target {
                Target::Any => index.any.push(at),
                Target::Names(block) => match block.pattern() {
                    Pattern::Every => index.every_name.push(at),
                    Pattern::Exact(name) => index.names.entry(name.as_str().into()).or_default().push(at),
                    Pattern::Children(name) => {
                        index.children.entry(name.as_str().into()).or_default().push(at)
                    }
                },
                Target::Tenant(scope) => index.tenants[tenant(*scope)].push(at),
                Target::Selector(selector) => {
                    let rarest =
                        selector.pod().iter().min_by_key(|pair| asked.get(pair).copied().unwrap_or(0));
                    let (key, value) = rarest.expect("a selector has a pod label");
                    index.selectors.entry((key.into(), value.into())).or_default().push(at);
                }
                Target::Cidr(block) => {
                    let (first, last) = block.cidr().ends();
                    let family = if first.is_ipv4() { &mut v4 } else { &mut v6 };
                    family.push((word(first), word(last), at));
                }
            }
        }
        index.v4 = Forest::new(v4);
        index.v6 = Forest::new(v6);
        index
    }

    /// Visits every place whose target may hold `far`, narrow prefixes before wide ones. Whether it does is the
    /// target's to say.
    pub(crate) fn visit(&self, far: &Far, mut visit: impl FnMut(usize)) {
        let mut all = |places: &[u32]| places.iter().for_each(|at| visit(*at as usize));
        match far {
            Far::Address(address) => {
                let forest = if address.is_ipv4() { &self.v4 } else { &self.v6 };
                forest.around(word(*address), word(*address)).for_each(|node| all(&node.entitlements));
                all(&self.any);
            }
            Far::Name(name) => {
                all(self.names.get(name.as_str()).map_or(&[], Vec::as_slice));
                all(name.parent().and_then(|parent| self.children.get(parent)).map_or(&[], Vec::as_slice));
                all(&self.every_name);
                all(&self.any);
            }
            Far::Workload(workload) => {
                for (key, value) in workload.labels.iter() {
                    all(self.selectors.get(&Pair(key, value) as &dyn Key).map_or(&[], Vec::as_slice));
                }
                self.tenants.iter().for_each(|places| all(places));
            }
        }
    }

    /// The place of an entitlement that holds the whole rule.
    pub(crate) fn cover(&self, list: &[Entitlement], rule: &Grant) -> Option<usize> {
        let fits = |at: &u32| {
            let entitlement = &list[*at as usize];
            rule.ports.is_subset(&entitlement.ports) && rule.route.is_subset(&entitlement.route)
        };
        let found = match &rule.target {
            Target::Any => self.any.iter().copied().find(|at| fits(at)),
            Target::Names(block) => {
                let holds = |at: &&u32| {
                    fits(at) && crate::gap::target_gap(&rule.target, &list[**at as usize].target).is_none()
                };
                let (near, parent): (&[u32], &[u32]) = match block.pattern() {
                    Pattern::Exact(name) => (
                        self.names.get(name.as_str()).map_or(&[], Vec::as_slice),
                        name.parent().and_then(|parent| self.children.get(parent)).map_or(&[], Vec::as_slice),
                    ),
                    Pattern::Children(name) => {
                        (&[], self.children.get(name.as_str()).map_or(&[], Vec::as_slice))
                    }
                    Pattern::Every => (&[], &[]),
                };
                let any = self.any.iter().copied().find(|at| fits(at));
                let plain = |at: &&u32| match (&list[**at as usize].target, block.pattern()) {
                    // The common case without allocation: one exact name against a pattern.
                    (Target::Names(theirs), Pattern::Exact(name)) => fits(at) && theirs.matches(name),
                    _ => holds(at),
                };
                any.or_else(|| near.iter().chain(parent).chain(&self.every_name).find(plain).copied())
            }
            Target::Tenant(scope) => self.tenants[tenant(*scope)].iter().copied().find(|at| fits(at)),
            Target::Selector(mine) => mine.pod().iter().find_map(|(key, value)| {
                let candidates = self.selectors.get(&Pair(key, value) as &dyn Key)?;
                candidates.iter().copied().find(|at| {
                    let Target::Selector(theirs) = &list[*at as usize].target else { return false };
                    fits(at) && theirs.holds(mine)
                })
            }),
            Target::Cidr(block) => {
                let set = block.set();
                let (first, last) = set.first().zip(set.last()).expect("a cidr block is never empty");
                let forest = if first.is_ipv4() { &self.v4 } else { &self.v6 };
                let inside =
                    forest.around(word(first), word(last)).flat_map(|node| &node.entitlements).copied();
                let explicit = inside.into_iter().find(|at| {
                    let Target::Cidr(theirs) = &list[*at as usize].target else { return false };
                    fits(at) && set.is_subset(theirs.set())
                });
                explicit.or_else(|| {
                    let any = self.any.iter().copied().find(|at| fits(at));
                    any.filter(|_| set.is_subset(platform::public_like(set)))
                })
            }
        };
        found.map(|at| at as usize)
    }
}

impl Forest {
    fn new(mut prefixes: Vec<(u128, u128, u32)>) -> Self {
        prefixes.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2)));
        let mut nodes: Vec<Node> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        for (first, last, at) in prefixes {
            if let Some(same) = nodes.last_mut().filter(|node| (node.first, node.last) == (first, last)) {
                same.entitlements.push(at);
                continue;
            }
            while open.last().is_some_and(|&top| nodes[top].last < first) {
                open.pop();
            }
            nodes.push(Node { first, last, around: open.last().copied(), entitlements: vec![at] });
            open.push(nodes.len() - 1);
        }
        Self(nodes)
    }

    /// The nodes around a range, narrow before wide.
    fn around(&self, first: u128, last: u128) -> impl Iterator<Item = &Node> {
        let mut at = self.0.partition_point(|node| node.first <= first).checked_sub(1);
        std::iter::from_fn(move || {
            let node = &self.0[at?];
            at = node.around;
            Some(node)
        })
        .filter(move |node| node.first <= first && last <= node.last)
    }
}

fn word(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn tenant(scope: TenantScope) -> usize {
    match scope {
        TenantScope::SameUser => 0,
        TenantScope::SameOrg => 1,
    }
}

/// A label pair that can be looked up without owning it.
pub(crate) trait Key {
    fn pair(&self) -> (&str, &str);
}

pub(crate) struct Pair<'a>(pub(crate) &'a str, pub(crate) &'a str);

impl Key for Pair<'_> {
    fn pair(&self) -> (&str, &str) {
        (self.0, self.1)
    }
}

impl Key for (Box<str>, Box<str>) {
    fn pair(&self) -> (&str, &str) {
        (&self.0, &self.1)
    }
}

impl std::hash::Hash for dyn Key + '_ {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.pair().hash(state);
    }
}

impl PartialEq for dyn Key + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.pair() == other.pair()
    }
}

impl Eq for dyn Key + '_ {}

impl<'a> std::borrow::Borrow<dyn Key + 'a> for (Box<str>, Box<str>) {
    fn borrow(&self) -> &(dyn Key + 'a) {
        self
    }
}
