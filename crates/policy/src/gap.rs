//! One rule against one entitlement: a packet that the first allows and the second does not, if there is one.

use std::net::IpAddr;

use crate::cidr::FamilySet;
use crate::flow::{Far, Flow, Packet, Relation, Workload};
use crate::grant::{Grant, Target};
use crate::label::{Namespace, Selector};
use crate::name::representatives;
use crate::platform;

/// A witness against `rule` being within `entitlement`: `None` exactly when every packet of the one is in the other.
///
/// A grant is a product (far ends x transports x ways), so it is within another exactly when each part is; the
/// witness takes its failing parts from outside and, where it can, the others from what both share.
#[must_use]
pub fn gap(rule: &Grant, entitlement: &Grant) -> Option<Packet> {
    let far = target_gap(&rule.target, &entitlement.target);
    let transport = rule.ports.outside(&entitlement.ports);
    let via = rule.route.outside(&entitlement.route);
    if far.is_none() && transport.is_none() && via.is_none() {
        return None;
    }
    let shared =
        || rule.ports.and(&entitlement.ports).map_or_else(|| rule.ports.sample(), |both| both.sample());
    let flow = Flow {
        far: far.unwrap_or_else(|| rule.target.sample()),
        transport: transport.unwrap_or_else(shared),
    };
    Some(Packet { flow, via: via.unwrap_or_else(|| rule.route.ways().swap_remove(0)) })
}

/// A far end of the first target that is none of the second.
pub(crate) fn target_gap(mine: &Target, theirs: &Target) -> Option<Far> {
    match (mine, theirs) {
        (Target::Any, Target::Any) | (Target::Names(_), Target::Any) => None,
        (Target::Cidr(mine), Target::Any) => address_outside(mine.set(), platform::public_like(mine.set())),
        (Target::Cidr(mine), Target::Cidr(theirs)) => address_outside(mine.set(), theirs.set()),
        (Target::Any, Target::Cidr(theirs)) => {
            platform::public().iter().find_map(|family| address_outside(family, theirs.set()))
        }
        (Target::Names(mine), Target::Names(theirs)) => representatives(&[mine, theirs])
            .into_iter()
            .find(|name| mine.matches(name) && !theirs.matches(name))
            .map(Far::Name),
        (Target::Selector(mine), Target::Selector(theirs)) => {
            selector_outside(mine, theirs).map(Far::Workload)
        }
        (Target::Tenant(mine), Target::Tenant(theirs)) => {
            (mine != theirs).then(|| Far::Workload(mine.least()))
        }
        // The kinds are disjoint but for `any`, and a selector and a tenant scope each hold workloads that the other
        // does not.
        (Target::Any | Target::Cidr(_) | Target::Names(_) | Target::Selector(_) | Target::Tenant(_), _) => {
            Some(mine.sample())
        }
    }
}

/// An address of the first set that is not in the second: one that some rule may open, if there is one.
fn address_outside(mine: &FamilySet, theirs: &FamilySet) -> Option<Far> {
    let outside: FamilySet = if mine.is_subset(theirs) { return None } else { mine.minus(theirs) };
    let openable = outside.minus(platform::never_like(&outside)).first();
    openable.or_else(|| outside.first()).map(|address: IpAddr| Far::Address(address))
}

/// The least workload of the first selector, unless the second selects it, too: then it selects all the others.
fn selector_outside(mine: &Selector, theirs: &Selector) -> Option<Workload> {
    let least = mine.least();
    debug_assert!(match mine.namespace() {
        Namespace::Own => least.relations.contains(&Relation::OwnNamespace),
        Namespace::Labelled(_) => least.relations.is_empty(),
    });
    (!theirs.matches(&least)).then_some(least)
}
