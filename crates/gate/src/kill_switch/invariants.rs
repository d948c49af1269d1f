//! A checker that knows only what must always hold of a rendered rule set, and complains. It knows nothing of how a
//! policy is rendered, so that it catches a renderer that forgot something.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::nf_tables::{Chain, Family, Field, Hook, Key, Kind, Policy, Ruleset, Statement, Table, Verdict};

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where: table and object.
    pub place: String,
    /// What is wrong.
    pub fault: Fault,
}

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is no `inet` table, or it has neither output nor forward chain that decides.
    NothingDecides,
    /// A deciding chain lets through what no rule decided.
    OpenPolicy,
    /// A rule names a chain, set or counter that is not there.
    Dangling,
    /// A rule lets everything through.
    UnconditionalAccept,
    /// A rule on frames believes a mark without a uid, or a uid without a mark or a destination.
    HalfAnIdentity,
    /// Internet traffic may leave by the tailnet interface and by the uplink at once.
    TwoWaysOut,
    /// The tailnet interface is open while tailscaled may not speak.
    OpenWithoutDaemon,
    /// tailscaled's own service addresses are within reach.
    ServiceAddress,
    /// A workload may send that is not known by its address.
    UnknownWorkload,
    /// A workload's address lies in the tailnet's range: Tailscale's own rules drop it.
    TailnetAddress,
    /// Nobody could tell whose the table is.
    NoOwner,
    /// No chain watches the frames of a link.
    NoFrames,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.place, self.fault)
    }
}

/// Every violation of a rule set; empty is good.
#[must_use]
pub fn invariants(ruleset: &Ruleset) -> Vec<Violation> {
    let mut found = Vec::new();
    let decides = ruleset.table(Family::Inet).is_some_and(|table| {
        table.chains.values().any(|chain| matches!(deciding(chain), Some(Hook::Forward | Hook::Output)))
    });
    if !decides {
        found.push(Violation { place: "the rule set".into(), fault: Fault::NothingDecides });
    }
    for table in &ruleset.tables {
        let mut complain = |object: &str, fault| {
            found.push(Violation { place: format!("{} {}: {object}", table.family, table.name), fault });
        };
        if table.comment.is_empty() {
            complain("comment", Fault::NoOwner);
        }
        for (name, chain) in &table.chains {
            check_chain(table, name, chain, &mut complain);
        }
        check_sets(table, &mut complain);
    }
    found
}

/// The hook of a chain that has to shut: forward, output, egress.
fn deciding(chain: &Chain) -> Option<&Hook> {
    let base = chain.base.as_ref().filter(|base| base.kind == Kind::Filter)?;
    matches!(base.hook, Hook::Forward | Hook::Output | Hook::Egress { .. }).then_some(&base.hook)
}

fn check_chain(table: &Table, name: &str, chain: &Chain, complain: &mut impl FnMut(&str, Fault)) {
    let shuts = deciding(chain).is_some();
    if shuts && chain.base.as_ref().is_some_and(|base| base.policy == Policy::Accept) {
        complain(&format!("chain {name}"), Fault::OpenPolicy);
    }
    for (at, rule) in chain.rules.iter().enumerate() {
        let place = format!("chain {name} rule {}", at + 1);
        let mut tests = 0;
        let (mut mark, mut user, mut destination) = (false, false, false);
        for statement in &rule.statements {
            let keys: &[Key] = match statement {
                Statement::Is(key, _)
                | Statement::IsNot(key, _)
                | Statement::Masked { key, .. }
                | Statement::IsNotMasked { key, .. }
                | Statement::AnyBit { key, .. } => std::slice::from_ref(key),
                Statement::In(keys, set) | Statement::NotIn(keys, set) => {
                    let fits = table.sets.get(set).is_some_and(|set| set.fields.len() == keys.len());
                    if !fits {
                        complain(&place, Fault::Dangling);
                    }
                    keys
                }
                Statement::CountIn(counter) => {
                    if !table.counters.contains(counter) {
                        complain(&place, Fault::Dangling);
                    }
                    &[]
                }
                Statement::Verdict(Verdict::Jump(to) | Verdict::Goto(to)) => {
                    if !table.chains.contains_key(to) {
                        complain(&place, Fault::Dangling);
                    }
                    &[]
                }
                _ => &[],
            };
            tests += keys.len();
            mark |= keys.contains(&Key::Mark);
            user |= keys.contains(&Key::SkUid);
            destination |= keys.contains(&Key::Ip4Destination) || keys.contains(&Key::Ip6Destination);
        }
        if rule.statements.last() == Some(&Statement::accept()) {
            if tests == 0 {
                complain(&place, Fault::UnconditionalAccept);
            }
            if table.family == Family::Netdev && mark != user && !(user && destination) {
                complain(&place, Fault::HalfAnIdentity);
            }
        }
    }
}

fn check_sets(table: &Table, complain: &mut impl FnMut(&str, Fault)) {
    let elements = |name: &str| table.sets.get(name).map(|set| &set.elements);
    let empty = |name: &str| elements(name).is_none_or(std::collections::BTreeSet::is_empty);
    if !empty("by_tunnel") && !empty("by_uplink") {
        complain("set by_uplink", Fault::TwoWaysOut);
    }
    if !empty("by_tunnel") && empty("daemon") {
        complain("set by_tunnel", Fault::OpenWithoutDaemon);
    }
    for (here, live) in [("here4", "live4"), ("here6", "live6")] {
        if let (Some(here), Some(live)) = (elements(here), elements(live))
            && !live.is_subset(here)
        {
            complain("set live", Fault::UnknownWorkload);
        }
    }
    let quad = Ipv4Addr::new(100, 100, 100, 100);
    let twin = Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0x53);
    let tailnet = Ipv4Addr::new(100, 64, 0, 0)..=Ipv4Addr::new(100, 127, 255, 255);
    for name in ["tailnet4", "tailnet6"] {
        let reaches = |field: &Field| match field {
            Field::V4(first, last) => (first..=last).contains(&&quad),
            Field::V6(first, last) => (first..=last).contains(&&twin),
            _ => false,
        };
        if elements(name).into_iter().flatten().flat_map(|element| &element.fields).any(reaches) {
            complain(&format!("set {name}"), Fault::ServiceAddress);
        }
    }
    let ours = elements("here4").into_iter().flatten().flat_map(|element| &element.fields);
    if ours.into_iter().any(|field| matches!(field, Field::V4(address, _) if tailnet.contains(address))) {
        complain("set here4", Fault::TailnetAddress);
    }
    if table.family == Family::Netdev && !table.chains.values().any(|chain| deciding(chain).is_some()) {
        complain("chains", Fault::NoFrames);
    }
}

#[cfg(test)]
mod tests;
