//! The smallest changes that make a refused rule pass: to the rule, and to the ceiling.

use std::collections::BTreeSet;

use crate::cidr::{CidrBlock, FamilySet};
use crate::flow::Transport;
use crate::grant::{Entitlement, Grant, Target};
use crate::label::{Namespace, Selector};
use crate::name::{NameBlock, Pattern};
use crate::parse::limits;
use crate::platform;
use crate::ports::PortSet;

/// What to do with a refused rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleChange {
    /// Say this instead: what the rule and the nearest entitlement share; where they share nothing in one part, that
    /// part as the entitlement has it.
    Replace(Box<Grant>),
    /// Leave it out: no rule of this kind is near any entitlement.
    Drop,
}

/// What to do to the ceiling. Adding the rule itself opens what was asked for and not a packet more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CeilingChange {
    /// Take `deny_https_hostname_rules` away.
    pub permit_hostname_rules: bool,
    /// Add this entitlement; to a ceiling of `none`, as the first of a list.
    pub add: Option<Entitlement>,
}

/// The rule, changed as little as possible so that `entitlement` holds it. `None` when the two have nothing to do
/// with each other.
pub(crate) fn narrowed(rule: &Grant, entitlement: &Grant) -> Option<Grant> {
    let target = target(&rule.target, &entitlement.target)?;
    let ports = match target {
        Target::Names(_)
            if !rule.ports.contains(Transport::HTTPS) || !entitlement.ports.contains(Transport::HTTPS) =>
        {
            return None;
        }
        Target::Names(_) => PortSet::https(),
        Target::Any | Target::Cidr(_) | Target::Selector(_) | Target::Tenant(_) => {
            rule.ports.and(&entitlement.ports).unwrap_or_else(|| entitlement.ports.clone())
        }
    };
    let route = rule.route.and(&entitlement.route).unwrap_or_else(|| entitlement.route.clone());
    Some(Grant { target, ports, route })
}

fn target(mine: &Target, theirs: &Target) -> Option<Target> {
    match (mine, theirs) {
        (Target::Any, Target::Any) => Some(Target::Any),
        (Target::Any, Target::Cidr(block)) | (Target::Cidr(block), Target::Any) => {
            public_part(block).map(Target::Cidr)
        }
        (Target::Names(_), Target::Any) => Some(mine.clone()),
        (Target::Any, Target::Names(block)) => declarable(block.clone()),
        (Target::Cidr(mine), Target::Cidr(theirs)) => both(mine, theirs).map(Target::Cidr),
        (Target::Names(mine), Target::Names(theirs)) => names(mine, theirs),
        (Target::Selector(mine), Target::Selector(theirs)) => selector(mine, theirs).map(Target::Selector),
        (Target::Tenant(_), Target::Tenant(theirs)) => Some(Target::Tenant(*theirs)),
        (Target::Any | Target::Cidr(_) | Target::Names(_) | Target::Selector(_) | Target::Tenant(_), _) => {
            None
        }
    }
}

/// A block less what is not public.
fn public_part(block: &CidrBlock) -> Option<CidrBlock> {
    less(block, &block.set().minus(platform::public_like(block.set())))
}

/// A block less `holes`, whose prefixes are added to its excepts.
fn less(block: &CidrBlock, holes: &FamilySet) -> Option<CidrBlock> {
    let mut except: BTreeSet<_> = block.except().clone();
    except.extend(holes.prefixes());
    (except.len() <= limits::EXCEPTS).then(|| CidrBlock::new(block.cidr(), except))?.filter(openable)
}

/// Whether a rule could say it: something of it may be opened.
fn openable(block: &CidrBlock) -> bool {
    !block.set().is_subset(platform::never_like(block.set()))
}

/// What both hold: the narrower prefix less everything that either takes out.
fn both(mine: &CidrBlock, theirs: &CidrBlock) -> Option<CidrBlock> {
    let (narrow, wide) = if mine.cidr().covers(&theirs.cidr()) { (theirs, mine) } else { (mine, theirs) };
    if !wide.cidr().covers(&narrow.cidr()) {
        return None;
    }
    less(narrow, &narrow.set().minus(wide.set()))
}

/// A name block as a workload may declare it, if it may.
fn declarable(block: NameBlock) -> Option<Target> {
    let legal = block.except().is_empty() && *block.pattern() != Pattern::Every;
    legal.then_some(Target::Names(block))
}

fn names(mine: &NameBlock, theirs: &NameBlock) -> Option<Target> {
    let narrow = if mine.pattern().covers(theirs.pattern()) { theirs.pattern() } else { mine.pattern() };
    let block = NameBlock::new(narrow.clone(), BTreeSet::new())?;
    let within = |wide: &NameBlock| {
        crate::gap::target_gap(&Target::Names(block.clone()), &Target::Names(wide.clone())).is_none()
    };
    if within(theirs) { declarable(block) } else { None }
}

/// Every label that either asks for, in the namespaces that the entitlement names.
fn selector(mine: &Selector, theirs: &Selector) -> Option<Selector> {
    let pod = mine.pod().and(theirs.pod())?;
    let namespace = match (mine.namespace(), theirs.namespace()) {
        (Namespace::Labelled(mine), Namespace::Labelled(theirs)) => Namespace::Labelled(mine.and(theirs)?),
        (_, theirs) => theirs.clone(),
    };
    Selector::new(pod, namespace)
}
