//! The reference semantics: what becomes of one flow under a program. The gate is tested against this.

use crate::flow::{Far, Flow};
use crate::platform;
use crate::program::{Program, Table};
use crate::route::Route;
use crate::rule_set::Source;

/// A rule in force, by its place in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleRef {
    /// The place, from 0.
    pub index: usize,
    /// The list.
    pub source: Source,
}

/// Why a flow passes or not, with its stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A rule allows it.
    RuleMatches,
    /// Nothing is restricted.
    Unrestricted,
    /// No rule has to do with the far end.
    NoRule,
    /// A rule opens the far end, but not this protocol and port.
    PortNotAllowed,
    /// The address is the platform's, private, or reserved, and no rule opens it.
    PlatformInternal,
}

impl Reason {
    /// The stable word, shared by API, audit log, metrics and `explain`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::RuleMatches => "rule-matches",
            Self::Unrestricted => "unrestricted",
            Self::NoRule => "no-rule",
            Self::PortNotAllowed => "port-not-allowed",
            Self::PlatformInternal => "platform-internal",
        }
    }
}

/// What becomes of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<'p> {
    /// The rule that allows it.
    pub rule: Option<RuleRef>,
    /// Why.
    pub reason: Reason,
    /// Where it leaves, when it may.
    pub route: Option<&'p Route>,
}

impl Verdict<'_> {
    /// Whether the flow passes.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self.reason, Reason::RuleMatches | Reason::Unrestricted)
    }
}

/// What becomes of a flow that leaves the workload.
#[must_use]
pub fn evaluate<'p>(program: &'p Program, flow: &Flow) -> Verdict<'p> {
    decide(&program.egress, flow)
}

/// What becomes of a flow that enters the workload; the far end is its source, the port is ours.
#[must_use]
pub fn evaluate_ingress<'p>(program: &'p Program, flow: &Flow) -> Verdict<'p> {
    decide(&program.ingress, flow)
}

fn decide<'p>(table: &'p Table, flow: &Flow) -> Verdict<'p> {
    let refused = |reason| Verdict { rule: None, reason, route: None };
    if let Far::Address(address) = flow.far
        && table.is_shut(address)
    {
        return refused(Reason::PlatformInternal);
    }
    if table.unrestricted {
        return Verdict { rule: None, reason: Reason::Unrestricted, route: Some(&Route::Posture) };
    }
    let (mut best, mut touched) = (None, false);
    table.visit(&flow.far, |map| {
        touched = true;
        best = match (best, map.best(flow.transport)) {
            (Some(a), Some(b)) => Some(std::cmp::min::<u32>(a, b)),
            (a, b) => a.or(b),
        };
    });
    let internal = |flow: &Flow| matches!(flow.far, Far::Address(address) if !platform::is_public(address));
    match best {
        Some(rank) => {
            let (grant, rule) = table.rule(rank);
            Verdict { rule: Some(*rule), reason: Reason::RuleMatches, route: Some(&grant.route) }
        }
        None if touched => refused(Reason::PortNotAllowed),
        None if internal(flow) && table.opens_any() => refused(Reason::PlatformInternal),
        None => refused(Reason::NoRule),
    }
}
