//! Why a rule is refused: a witness against every entitlement, the nearest one, and what would make the rule pass.

use crate::ceiling::{Allowance, HostnameRules};
use crate::containment::{Decision, Outcome};
use crate::flow::Packet;
use crate::gap::{gap, target_gap};
use crate::grant::{Entitlement, Grant, Target};
use crate::parse::Direction;
use crate::suggest::{CeilingChange, RuleChange, narrowed};

/// The reason, with its stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// No entitlement holds the whole rule.
    NotCovered,
    /// The ceiling allows nothing to be declared.
    CeilingNone,
    /// The ceiling refuses hostname rules.
    HostnameRulesDenied,
}

impl RefusalReason {
    /// The stable word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::NotCovered => "not_covered",
            Self::CeilingNone => "ceiling_none",
            Self::HostnameRulesDenied => "hostname_rules_denied",
        }
    }
}

/// One refused rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// `egress` or `ingress`.
    pub direction: &'static str,
    /// The rule's place among the rules in force.
    pub rule: usize,
    /// Why.
    pub reason: RefusalReason,
    /// For each entitlement in order, a packet that the rule allows and that entitlement does not.
    pub witnesses: Vec<Packet>,
    /// The place of the entitlement that comes nearest.
    pub nearest: Option<usize>,
    /// The smallest change to the rule that makes it pass.
    pub rule_change: RuleChange,
    /// The smallest change to the ceiling that makes the rule pass.
    pub ceiling_change: CeilingChange,
}

impl Decision<'_> {
    /// One refusal for each refused rule, egress before ingress.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        let directions = [(Direction::Egress, &self.egress), (Direction::Ingress, &self.ingress)];
        directions
            .into_iter()
            .flat_map(|(direction, outcomes)| {
                let grants = self.grants(direction);
                let refused = grants.into_iter().zip(outcomes).enumerate();
                refused
                    .filter(|(_, (_, outcome))| **outcome == Outcome::Refused)
                    .map(move |(i, (grant, _))| (direction, i, grant))
            })
            .map(|(direction, i, grant)| self.refusal(direction, i, grant))
            .collect()
    }

    fn refusal(&self, direction: Direction, rule: usize, grant: &Grant) -> Refusal {
        let allowance = self.ceiling.allowance(direction);
        let denied =
            self.ceiling.hostname_rules == HostnameRules::Denied && matches!(grant.target, Target::Names(_));
        let entitlements = if denied { &[] } else { allowance.entitlements() };
        let reason = match allowance {
            _ if denied => RefusalReason::HostnameRulesDenied,
            Allowance::None => RefusalReason::CeilingNone,
            Allowance::Unrestricted | Allowance::List(_) => RefusalReason::NotCovered,
        };
        let nearest = nearest(grant, entitlements);
        let held = denied
            && match allowance {
                Allowance::Unrestricted => true,
                Allowance::None => false,
                Allowance::List(list) => list.cover(grant).is_some(),
            };
        Refusal {
            direction: match direction {
                Direction::Egress => "egress",
                Direction::Ingress => "ingress",
            },
            rule,
            reason,
            // A refused rule has a gap towards every entitlement: the laws in tests/laws.rs and the twin say so.
            witnesses: entitlements.iter().filter_map(|entitlement| gap(grant, entitlement)).collect(),
            nearest,
            rule_change: nearest
                .and_then(|at| narrowed(grant, &entitlements[at]))
                .map_or(RuleChange::Drop, |grant| RuleChange::Replace(Box::new(grant))),
            ceiling_change: CeilingChange {
                permit_hostname_rules: denied,
                add: (!held).then(|| Entitlement(grant.clone())),
            },
        }
    }
}

/// The entitlement that fails in the fewest parts; of those the one whose kind is the rule's; of those the least in
/// the order of grants, so that the order of the list does not matter.
fn nearest(rule: &Grant, entitlements: &[Entitlement]) -> Option<usize> {
    let distance = |entitlement: &Entitlement| {
        let narrow = narrowed(rule, entitlement);
        let target = target_gap(&rule.target, &entitlement.target).is_some();
        let ports = !rule.ports.is_subset(&entitlement.ports);
        let route = !rule.route.is_subset(&entitlement.route);
        let kind = rule.target.kind() != entitlement.target.kind();
        (narrow.is_none(), kind && target, u8::from(target) + u8::from(ports) + u8::from(route))
    };
    let best =
        entitlements.iter().enumerate().min_by_key(|(_, entitlement)| (distance(entitlement), *entitlement));
    best.map(|(at, _)| at)
}
