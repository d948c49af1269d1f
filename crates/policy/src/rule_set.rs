//! What a workload declares: egress, ingress, DNS, posture.

use crate::grant::{EgressRule, IngressRule};
use crate::mistake::{Fault, Mistakes, Path};
use crate::parse::{Checker, Direction, Edge, Role};
use crate::raw::RawRuleSet;
use crate::route::Posture;

/// What is declared in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Declared<R> {
    /// Nothing was said: the ceiling's default rules apply.
    Unset,
    /// Nothing passes, and the default does not apply.
    Deny,
    /// These rules; at least one.
    Rules(Vec<R>),
}

impl<R> Declared<R> {
    /// The rules that were declared.
    #[must_use]
    pub fn rules(&self) -> &[R] {
        match self {
            Self::Unset | Self::Deny => &[],
            Self::Rules(rules) => rules,
        }
    }
}

/// Where the rules in force come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The workload declared them.
    Declared,
    /// The ceiling's default.
    Default,
}

/// Whether the workload may ask the platform's resolver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DnsEgress {
    /// It may.
    #[default]
    Allow,
    /// It may not.
    Deny,
}

/// Everything that a workload declares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleSet {
    pub(crate) egress: Declared<EgressRule>,
    pub(crate) ingress: Declared<IngressRule>,
    pub(crate) dns_egress: DnsEgress,
    pub(crate) posture: Posture,
}

impl Default for RuleSet {
    fn default() -> Self {
        Self {
            egress: Declared::Unset,
            ingress: Declared::Unset,
            dns_egress: DnsEgress::default(),
            posture: Posture::default(),
        }
    }
}

impl RuleSet {
    /// Reads what was said.
    ///
    /// # Errors
    ///
    /// All mistakes together.
    pub fn from_raw(raw: &RawRuleSet, edge: Edge) -> Result<Self, Mistakes> {
        let root = Path::default();
        let mut checker = Checker::new(edge);
        let egress = checker.rules(&raw.egress, &root.key("egress"), Role::Declared, Direction::Egress);
        let ingress = checker.rules(&raw.ingress, &root.key("ingress"), Role::Declared, Direction::Ingress);
        let denies =
            [(raw.deny_egress, !raw.egress.is_empty(), "egress"), (raw.deny_ingress, false, "ingress")];
        for (deny, rules, direction) in denies {
            if deny == Some(true) && rules {
                let message = format!("deny_{direction} and {direction} rules exclude each other; keep one");
                checker.mistakes.add(&root.key(&format!("deny_{direction}")), Fault::Contradiction, message);
            }
        }
        let dns_egress = raw.dns_egress.as_deref().map_or(Some(DnsEgress::Allow), |word| {
            checker.word(word, &root.key("dns_egress"), "allow, deny", |word| {
                match word.strip_prefix("DNS_EGRESS_MODE_").unwrap_or(word).to_ascii_lowercase().as_str() {
                    "allow" | "unspecified" => Some(DnsEgress::Allow),
                    "deny" => Some(DnsEgress::Deny),
                    _ => None,
                }
            })
        });
        let posture = raw.posture.as_deref().map_or(Some(Posture::None), |word| {
            checker.word(word, &root.key("posture"), "none, preferred, required, pinned", Posture::named)
        });
        let set = dns_egress.zip(posture).map(|(dns_egress, posture)| Self {
            egress: declared(raw.deny_egress, egress.into_iter().map(EgressRule).collect()),
            ingress: declared(raw.deny_ingress, ingress.into_iter().map(IngressRule).collect()),
            dns_egress,
            posture,
        });
        checker.mistakes.or(set)
    }

    /// What leaves.
    #[must_use]
    pub fn egress(&self) -> &Declared<EgressRule> {
        &self.egress
    }

    /// What enters.
    #[must_use]
    pub fn ingress(&self) -> &Declared<IngressRule> {
        &self.ingress
    }

    /// Whether the platform's resolver may be asked.
    #[must_use]
    pub fn dns_egress(&self) -> DnsEgress {
        self.dns_egress
    }

    /// The posture; `none` when nothing was said.
    #[must_use]
    pub fn posture(&self) -> Posture {
        self.posture
    }
}

fn declared<R>(deny: Option<bool>, rules: Vec<R>) -> Declared<R> {
    match (deny, rules.is_empty()) {
        (Some(true), _) => Declared::Deny,
        (_, true) => Declared::Unset,
        (_, false) => Declared::Rules(rules),
    }
}
