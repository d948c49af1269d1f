//! Containment: whether every rule in force lies within one entitlement of the ceiling. Exact, never inconclusive.

use crate::ceiling::{Allowance, Ceiling, HostnameRules};
use crate::grant::{Grant, Target};
use crate::parse::Direction;
use crate::route::Posture;
use crate::rule_set::{Declared, RuleSet, Source};

/// Why a rule may be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// The ceiling is unrestricted.
    Unrestricted,
    /// The entitlement at this place holds it.
    Entitlement(usize),
}

/// What became of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It may be declared.
    Covered(Cover),
    /// It may not: [`Decision::refusals`] says why.
    Refused,
}

/// What became of the posture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostureOutcome {
    /// As strong as the ceiling asks for, or stronger.
    Enough,
    /// Weaker than the ceiling asks for.
    TooWeak {
        /// What was declared.
        declared: Posture,
        /// What the ceiling asks for.
        minimum: Posture,
    },
}

/// The decision on a whole rule set. Deciding is quick; the reasons are worked out when asked for, from the same
/// rules and entitlements.
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    pub(crate) ceiling: &'a Ceiling,
    pub(crate) rules: &'a RuleSet,
    /// Where the egress rules in force come from.
    pub source: Source,
    /// What became of each egress rule in force, in their order.
    pub egress: Vec<Outcome>,
    /// What became of each ingress rule in force, in their order.
    pub ingress: Vec<Outcome>,
    /// What became of the posture.
    pub posture: PostureOutcome,
}

/// Decides whether everything that `rules` puts in force lies within `ceiling`.
#[must_use]
pub fn contains<'a>(ceiling: &'a Ceiling, rules: &'a RuleSet) -> Decision<'a> {
    let (egress, source) = in_force(&rules.egress, &ceiling.default_egress);
    let (ingress, _) = in_force(&rules.ingress, &ceiling.default_ingress);
    let posture = if rules.posture < ceiling.minimum_posture {
        PostureOutcome::TooWeak { declared: rules.posture, minimum: ceiling.minimum_posture }
    } else {
        PostureOutcome::Enough
    };
    Decision {
        ceiling,
        rules,
        source,
        egress: egress.iter().map(|rule| decide(ceiling, rule, Direction::Egress)).collect(),
        ingress: ingress.iter().map(|rule| decide(ceiling, rule, Direction::Ingress)).collect(),
        posture,
    }
}

/// The rules that apply: the declared ones, else the default's, else none.
pub(crate) fn in_force<'a, R>(declared: &'a Declared<R>, default: &'a [R]) -> (&'a [R], Source) {
    match declared {
        Declared::Rules(rules) => (rules, Source::Declared),
        Declared::Deny => (&[], Source::Declared),
        Declared::Unset => (default, Source::Default),
    }
}

fn decide(ceiling: &Ceiling, rule: &Grant, direction: Direction) -> Outcome {
    if matches!(rule.target, Target::Names(_)) && ceiling.hostname_rules == HostnameRules::Denied {
        return Outcome::Refused;
    }
    match ceiling.allowance(direction) {
        Allowance::Unrestricted => Outcome::Covered(Cover::Unrestricted),
        Allowance::None => Outcome::Refused,
        Allowance::List(list) => {
            list.cover(rule).map_or(Outcome::Refused, |at| Outcome::Covered(Cover::Entitlement(at)))
        }
    }
}

impl Ceiling {
    pub(crate) fn allowance(&self, direction: Direction) -> &Allowance {
        match direction {
            Direction::Egress => &self.allowed_egress,
            Direction::Ingress => &self.allowed_ingress,
        }
    }
}

impl Decision<'_> {
    /// Whether the workload may exist.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        let covered = |outcome: &Outcome| matches!(outcome, Outcome::Covered(_));
        self.posture == PostureOutcome::Enough
            && self.egress.iter().all(covered)
            && self.ingress.iter().all(covered)
    }

    /// The rules in force of one direction, as grants.
    pub(crate) fn grants(&self, direction: Direction) -> Vec<&Grant> {
        match direction {
            Direction::Egress => in_force(&self.rules.egress, &self.ceiling.default_egress)
                .0
                .iter()
                .map(|rule| &rule.0)
                .collect(),
            Direction::Ingress => in_force(&self.rules.ingress, &self.ceiling.default_ingress)
                .0
                .iter()
                .map(|rule| &rule.0)
                .collect(),
        }
    }
}
