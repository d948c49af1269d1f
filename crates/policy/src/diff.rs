//! Which flows open and which close between two programs, exactly, each region with a witness.
//!
//! The world of flows falls into classes that neither program can tell apart: runs of addresses between the edges of
//! any range, names by what is mentioned of them, spans of ports. One flow of each class decides for all of it. For
//! workloads the least one that a selector or scope holds decides: what holds that one holds the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cidr::{Cidr, FamilySet};
use crate::evaluate::{evaluate, evaluate_ingress};
use crate::flow::{Far, Flow, Workload};
use crate::grant::Target;
use crate::name::{DnsName, Pattern, fresh_child, stranger};
use crate::platform;
use crate::port_map::{Class, PortMap};
use crate::ports::{PortSet, PortSpan};
use crate::program::{Program, Table};
use crate::route::Route;

/// What happens to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// Refused before, allowed now.
    Opens,
    /// Allowed before, refused now.
    Closes,
    /// Allowed both times, by another route.
    Reroutes,
}

impl ChangeKind {
    /// The stable word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Opens => "opens",
            Self::Closes => "closes",
            Self::Reroutes => "reroutes",
        }
    }
}

/// A set of far ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// Ascending ranges of addresses, both ends included.
    Addresses(Vec<(IpAddr, IpAddr)>),
    /// One name.
    Name(DnsName),
    /// The names one label below another, less some.
    Children {
        /// The name above.
        parent: DnsName,
        /// The children that are not meant.
        except: Vec<DnsName>,
    },
    /// Every name but those that the two programs mention.
    OtherNames {
        /// The names and wildcards that are mentioned, and told apart.
        except: Vec<Pattern>,
    },
    /// Workloads that a selector or scope holds, less those that others hold.
    Workloads {
        /// What holds them; `None`: every workload.
        target: Option<Target>,
        /// What does not change because these hold it on the other side.
        except: Vec<Target>,
    },
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// `egress` or `ingress`.
    pub direction: &'static str,
    /// What happens.
    pub kind: ChangeKind,
    /// To which far ends.
    pub region: Region,
    /// On which listed ports.
    pub ports: Vec<PortSpan>,
    /// On port 0 and protocols without ports, too.
    pub portless: bool,
    /// The route before, if it was allowed.
    pub before: Option<Route>,
    /// The route now, if it is allowed.
    pub after: Option<Route>,
    /// One flow that changes like this.
    pub witness: Flow,
}

/// All changes, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The changes.
    pub changes: Vec<Change>,
}

/// The exact difference between what two programs let pass.
#[must_use]
pub fn diff(old: &Program, new: &Program) -> Diff {
    let mut changes = Vec::new();
    for (direction, old_table, new_table) in
        [("egress", &old.egress, &new.egress), ("ingress", &old.ingress, &new.ingress)]
    {
        let found = addresses(old_table, new_table)
            .into_iter()
            .chain(names(old_table, new_table))
            .chain(workloads(old_table, new_table));
        changes.extend(gathered(direction, found));
    }
    let differs = |change: &Change| {
        let ask = if change.direction == "egress" { evaluate } else { evaluate_ingress };
        let (before, after) = (ask(old, &change.witness), ask(new, &change.witness));
        before.route != after.route
    };
    debug_assert!(changes.iter().all(differs), "every witness is one");
    changes.sort();
    Diff { changes }
}

/// Changes of one class of transports.
struct Found {
    region: Region,
    class: Class,
    before: Option<Route>,
    after: Option<Route>,
    witness: Far,
}

/// Puts the transports of one region together.
fn gathered(direction: &'static str, found: impl Iterator<Item = Found>) -> Vec<Change> {
    type Key = (Region, Option<Route>, Option<Route>);
    let mut together: BTreeMap<Key, (Vec<Class>, Far)> = BTreeMap::new();
    for Found { region, class, before, after, witness } in found {
        together.entry((region, before, after)).or_insert_with(|| (Vec::new(), witness)).0.push(class);
    }
    let change = |((region, before, after), (classes, far)): (_, (Vec<Class>, Far))| {
        let spans = classes.iter().filter_map(|class| match class {
            Class::Span(span) => Some(*span),
            Class::Portless => None,
        });
        let ports = PortSet::listed(spans.collect()).map_or_else(Vec::new, |set| set.spans().to_vec());
        let kind = match (&before, &after) {
            (None, _) => ChangeKind::Opens,
            (_, None) => ChangeKind::Closes,
            (Some(_), Some(_)) => ChangeKind::Reroutes,
        };
        let witness = Flow { far, transport: classes[0].sample() };
        Change {
            direction,
            kind,
            region,
            ports,
            portless: classes.contains(&Class::Portless),
            before,
            after,
            witness,
        }
    };
    together.into_iter().map(change).collect()
}

/// What a table decides for one far end.
fn map_at(table: &Table, far: &Far) -> Option<PortMap> {
    if table.unrestricted {
        let shut = matches!(far, Far::Address(address) if table.is_shut(*address));
        return if shut { Some(PortMap::default()) } else { None };
    }
    let mut maps = Vec::new();
    table.visit(far, |map| maps.push(map));
    Some(PortMap::merged(maps))
}

/// The classes of transports on which two tables differ at one far end. `None` stands for everything; `finer`
/// are maps that the classes shall not straddle either.
fn differences(
    old: &Table,
    new: &Table,
    far: &Far,
    finer: &[&PortMap],
) -> Vec<(Class, Option<Route>, Option<Route>)> {
    let (before, after) = (map_at(old, far), map_at(new, far));
    if [&before, &after].iter().all(|map| map.as_ref().is_some_and(PortMap::is_empty)) {
        return Vec::new();
    }
    let empty = PortMap::default();
    let route = |table: &Table, map: &Option<PortMap>, class: Class| match map {
        None => Some(Route::Posture),
        Some(map) => map.best(class.sample()).map(|rank| table.rule(rank).0.route.clone()),
    };
    let maps: Vec<&PortMap> = [before.as_ref().unwrap_or(&empty), after.as_ref().unwrap_or(&empty)]
        .into_iter()
        .chain(finer.iter().copied())
        .collect();
    PortMap::classes(&maps)
        .into_iter()
        .map(|class| (class, route(old, &before, class), route(new, &after, class)))
        .filter(|(_, before, after)| before != after)
        .collect()
}

fn addresses(old: &Table, new: &Table) -> Vec<Found> {
    let mut edges = [BTreeSet::from([0u128]), BTreeSet::from([0u128])];
    let mut edge = |first: IpAddr, last: IpAddr| match (first, last) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            edges[0].extend([u128::from(a.to_bits()), u128::from(b.to_bits()) + 1])
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            edges[1].extend(std::iter::once(a.to_bits()).chain(b.to_bits().checked_add(1)))
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
    };
    for table in [old, new] {
        table.shut.iter().flat_map(FamilySet::ranges).for_each(|(first, last)| edge(first, last));
        for (target, _) in table.groups() {
            match target {
                Target::Cidr(block) => block.ranges().into_iter().for_each(|(first, last)| edge(first, last)),
                Target::Any => platform::public()
                    .iter()
                    .flat_map(FamilySet::ranges)
                    .for_each(|(first, last)| edge(first, last)),
                Target::Names(_) | Target::Selector(_) | Target::Tenant(_) => {}
            }
        }
    }
    type Key = (bool, Span, Option<Route>, Option<Route>);
    let mut runs: BTreeMap<Key, Vec<(IpAddr, IpAddr)>> = BTreeMap::new();
    for (v6, edges) in [(false, &edges[0]), (true, &edges[1])] {
        let end = if v6 { u128::MAX } else { u32::MAX.into() };
        let starts: Vec<u128> = edges.iter().copied().filter(|&start| start <= end).collect();
        for (i, &start) in starts.iter().enumerate() {
            let last = starts.get(i + 1).map_or(end, |next| next - 1);
            let (first, last) = (address(v6, start), address(v6, last));
            for (class, before, after) in differences(old, new, &Far::Address(first), &[]) {
                let run = runs.entry((v6, class.into(), before, after)).or_default();
                match run.last_mut() {
                    Some(open) if following(open.1) == Some(first) => open.1 = last,
                    _ => run.push((first, last)),
                }
            }
        }
    }
    let found = runs.into_iter().map(|((_, span, before, after), ranges)| {
        let witness = Far::Address(ranges[0].0);
        Found { region: Region::Addresses(ranges), class: span.into(), before, after, witness }
    });
    found.collect()
}

/// A class as an ordered key: `None` is the portless one.
type Span = Option<PortSpan>;

impl From<Class> for Span {
    fn from(class: Class) -> Self {
        match class {
            Class::Span(span) => Some(span),
            Class::Portless => None,
        }
    }
}

impl From<Span> for Class {
    fn from(span: Span) -> Self {
        span.map_or(Self::Portless, Self::Span)
    }
}

fn address(v6: bool, word: u128) -> IpAddr {
    match u32::try_from(word) {
        Ok(word) if !v6 => IpAddr::V4(Ipv4Addr::from_bits(word)),
        _ => IpAddr::V6(Ipv6Addr::from_bits(word)),
    }
}

fn following(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_add(1).map(|word| IpAddr::V4(Ipv4Addr::from_bits(word))),
        IpAddr::V6(v6) => v6.to_bits().checked_add(1).map(|word| IpAddr::V6(Ipv6Addr::from_bits(word))),
    }
}

fn names(old: &Table, new: &Table) -> Vec<Found> {
    let mut mentioned: BTreeSet<DnsName> = BTreeSet::new();
    let mut parents: BTreeSet<DnsName> = BTreeSet::new();
    for (target, _) in old.groups().iter().chain(new.groups()) {
        let Target::Names(block) = target else { continue };
        for pattern in std::iter::once(block.pattern()).chain(block.except()) {
            match pattern {
                Pattern::Exact(name) => drop(mentioned.insert(name.clone())),
                Pattern::Children(parent) => drop(parents.insert(parent.clone())),
                Pattern::Every => {}
            }
        }
    }
    let mut cells: Vec<(Region, DnsName)> =
        mentioned.iter().map(|name| (Region::Name(name.clone()), name.clone())).collect();
    for parent in &parents {
        let except =
            mentioned.iter().filter(|name| name.parent() == Some(parent.as_str())).cloned().collect();
        let child = fresh_child(parent.as_str(), &mentioned);
        cells.extend(child.map(|child| (Region::Children { parent: parent.clone(), except }, child)));
    }
    let known: BTreeSet<&str> = parents.iter().map(DnsName::as_str).collect();
    let exact = mentioned.iter().cloned().map(Pattern::Exact);
    let except = exact.chain(parents.iter().cloned().map(Pattern::Children)).collect();
    cells.extend(stranger(&mentioned, &known).map(|name| (Region::OtherNames { except }, name)));
    let found = cells.into_iter().flat_map(|(region, name)| {
        let far = Far::Name(name);
        let differences = differences(old, new, &far, &[]);
        differences.into_iter().map(move |(class, before, after)| Found {
            region: region.clone(),
            class,
            before,
            after,
            witness: far.clone(),
        })
    });
    found.collect()
}

fn workloads(old: &Table, new: &Table) -> Vec<Found> {
    let mut found = Vec::new();
    for (mine, theirs, opens) in [(new, old, true), (old, new, false)] {
        let held = mine
            .groups()
            .iter()
            .filter_map(|(target, _)| least(target).map(|least| (Some(target.clone()), least)));
        let every = mine.unrestricted.then(|| (None, Workload::default()));
        // What the other side holds on a class of ports must be the same all over the class.
        let workload = |target: &Target| matches!(target, Target::Selector(_) | Target::Tenant(_));
        let finer: Vec<&PortMap> =
            theirs.groups().iter().filter(|(target, _)| workload(target)).map(|(_, map)| map).collect();
        for (target, least) in held.chain(every) {
            let far = Far::Workload(least);
            for (class, before, after) in differences(old, new, &far, &finer) {
                if opens != (before.is_none() && after.is_some()) {
                    continue;
                }
                let other = theirs.groups().iter().filter(|(other, map)| {
                    map.best(class.sample()).is_some() && overlap(target.as_ref(), other)
                });
                let except = other.map(|(other, _)| other.clone()).collect();
                let region = Region::Workloads { target: target.clone(), except };
                found.push(Found { region, class, before, after, witness: far.clone() });
            }
        }
    }
    found
}

/// The least workload of a selector or scope.
fn least(target: &Target) -> Option<Workload> {
    match target {
        Target::Selector(selector) => Some(selector.least()),
        Target::Tenant(scope) => Some(scope.least()),
        Target::Any | Target::Cidr(_) | Target::Names(_) => None,
    }
}

/// Whether some workload is held by both. Only two values of one label keep selectors apart.
fn overlap(mine: Option<&Target>, theirs: &Target) -> bool {
    match (mine, theirs) {
        (Some(Target::Selector(mine)), Target::Selector(theirs)) => {
            let empty = crate::label::Labels::default();
            let labels = |selector: &crate::label::Selector| match selector.namespace() {
                crate::label::Namespace::Own => empty.clone(),
                crate::label::Namespace::Labelled(labels) => labels.clone(),
            };
            mine.pod().and(theirs.pod()).is_some() && labels(mine).and(&labels(theirs)).is_some()
        }
        (_, Target::Selector(_) | Target::Tenant(_)) => true,
        (_, Target::Any | Target::Cidr(_) | Target::Names(_)) => false,
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |parts: Vec<String>| parts.join(", ");
        match self {
            Self::Addresses(ranges) => {
                let range = |(first, last): &(IpAddr, IpAddr)| match Cidr::of_range(*first, *last).as_slice()
                {
                    [cidr] => cidr.to_string(),
                    _ => format!("{first} to {last}"),
                };
                f.write_str(&join(ranges.iter().map(range).collect()))
            }
            Self::Name(name) => write!(f, "dns_name {name}"),
            Self::Children { parent, except } if except.is_empty() => write!(f, "dns_name *.{parent}"),
            Self::Children { parent, except } => {
                write!(
                    f,
                    "dns_name *.{parent} except {}",
                    join(except.iter().map(DnsName::to_string).collect())
                )
            }
            Self::OtherNames { except } if except.is_empty() => f.write_str("every dns_name"),
            Self::OtherNames { except } => {
                write!(f, "every dns_name except {}", join(except.iter().map(Pattern::to_string).collect()))
            }
            Self::Workloads { target, except } => {
                match target {
                    Some(target) => write!(f, "{target}")?,
                    None => f.write_str("every workload")?,
                }
                if except.is_empty() {
                    Ok(())
                } else {
                    write!(f, " but for {}", join(except.iter().map(Target::to_string).collect()))
                }
            }
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}, ", self.direction, self.kind.word(), self.region)?;
        let whole = self.portless
            && self.ports.len() == 3
            && self.ports.iter().all(|span| (span.first(), span.last()) == (1, u16::MAX));
        if whole {
            f.write_str("every port and protocol")?;
        } else {
            let mut parts: Vec<String> = self.ports.iter().map(PortSpan::to_string).collect();
            parts.extend(self.portless.then(|| "protocols without ports".to_owned()));
            f.write_str(&parts.join(", "))?;
        }
        let said =
            |route: &Option<Route>| route.as_ref().map_or_else(|| "refused".to_owned(), Route::to_string);
        if self.before.as_ref().or(self.after.as_ref()) != Some(&Route::Posture)
            || self.kind == ChangeKind::Reroutes
        {
            write!(f, ", from {} to {}", said(&self.before), said(&self.after))?;
        }
        write!(f, "; for example {}", self.witness)
    }
}
