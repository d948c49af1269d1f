//! The reason tree: what a decision, and a verdict, were made from, for people and for programs.

use serde::Serialize;

use crate::ceiling::Ceiling;
use crate::containment::{Cover, Decision, Outcome, PostureOutcome};
use crate::evaluate::Verdict;
use crate::flow::Flow;
use crate::grant::{Grant, Target};
use crate::parse::Direction;
use crate::ports::Protocol;
use crate::refusal::Refusal;
use crate::rule_set::{RuleSet, Source};
use crate::suggest::RuleChange;

/// What a line of the tree says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Allowed.
    Allowed,
    /// Refused.
    Refused,
    /// Neither: a fact, or advice.
    Note,
}

/// A line, a stable word, and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// What the line says.
    pub mark: Mark,
    /// A stable word for programs.
    pub word: &'static str,
    /// The line.
    pub text: String,
    /// What it rests on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<Tree>,
}

impl Tree {
    /// A line that rests on nothing.
    #[must_use]
    pub fn leaf(mark: Mark, word: &'static str, text: impl Into<String>) -> Self {
        Self { mark, word, text: text.into(), because: Vec::new() }
    }

    fn note(word: &'static str, text: impl Into<String>) -> Self {
        Self::leaf(Mark::Note, word, text)
    }
}

impl Decision<'_> {
    /// The tree of the decision.
    #[must_use]
    pub fn explain(&self) -> Tree {
        let mut refusals = self.refusals().into_iter();
        let mut because = Vec::new();
        if let PostureOutcome::TooWeak { declared, minimum } = self.posture {
            let text = format!(
                "posture {} is weaker than {}, the ceiling's minimum",
                declared.word(),
                minimum.word()
            );
            because.push(Tree::leaf(Mark::Refused, "posture_too_weak", text));
        }
        for (direction, word, outcomes) in
            [(Direction::Egress, "egress", &self.egress), (Direction::Ingress, "ingress", &self.ingress)]
        {
            for (i, (grant, outcome)) in self.grants(direction).into_iter().zip(outcomes).enumerate() {
                let list = if direction == Direction::Egress && self.source == Source::Default {
                    "default_egress"
                } else {
                    word
                };
                let line = format!("{list}[{i}] {grant}");
                because.push(match outcome {
                    Outcome::Covered(cover) => self.covered(line, *cover, direction, grant),
                    Outcome::Refused => match refusals.next() {
                        Some(refusal) => self.refused(line, &refusal, direction, grant),
                        None => Tree::leaf(Mark::Refused, "not_covered", line),
                    },
                });
            }
        }
        if because.is_empty() {
            because.push(Tree::note(
                "no_rules",
                "no rules in force: nothing passes but lookups of names that the platform answers",
            ));
        }
        let (mark, word, text) = if self.is_allowed() {
            (Mark::Allowed, "contained", "every rule in force lies within the ceiling")
        } else {
            (Mark::Refused, "not_contained", "the ceiling does not hold every rule")
        };
        Tree { mark, word, text: text.to_owned(), because }
    }

    fn covered(&self, line: String, cover: Cover, direction: Direction, grant: &Grant) -> Tree {
        let (word, text) = match cover {
            Cover::Unrestricted => ("unrestricted", "the ceiling is unrestricted".to_owned()),
            Cover::Entitlement(at) => {
                let entitlement = &self.ceiling.allowance(direction).entitlements()[at];
                ("covered", format!("{}[{at}] {entitlement}", allowed(direction)))
            }
        };
        let mut because = vec![Tree::leaf(Mark::Allowed, word, text)];
        because.extend(notes(grant));
        Tree { mark: Mark::Allowed, word, text: line, because }
    }

    fn refused(&self, line: String, refusal: &Refusal, direction: Direction, grant: &Grant) -> Tree {
        let entitlements = self.ceiling.allowance(direction).entitlements();
        let mut because = Vec::new();
        for (at, (entitlement, witness)) in entitlements.iter().zip(&refusal.witnesses).enumerate() {
            let near = if refusal.nearest == Some(at) { " (nearest)" } else { "" };
            let text = format!("{}[{at}] {entitlement}{near} does not hold {witness}", allowed(direction));
            because.push(Tree::leaf(Mark::Refused, "witness", text));
        }
        let change = match &refusal.rule_change {
            RuleChange::Replace(instead) => format!("declare instead: {instead}"),
            RuleChange::Drop => "leave the rule out: no entitlement is near it".to_owned(),
        };
        because.push(Tree::note("rule_change", change));
        let mut change = Vec::new();
        if refusal.ceiling_change.permit_hostname_rules {
            change.push("take deny_https_hostname_rules away".to_owned());
        }
        if let Some(entitlement) = &refusal.ceiling_change.add {
            change.push(format!("add to {}: {entitlement}", allowed(direction)));
        }
        because.push(Tree::note("ceiling_change", format!("or in the ceiling: {}", change.join(", and "))));
        because.extend(notes(grant));
        let text = format!(
            "{line}: {}",
            match refusal.reason {
                crate::RefusalReason::NotCovered => "no entitlement holds it",
                crate::RefusalReason::CeilingNone => "the ceiling allows nothing",
                crate::RefusalReason::HostnameRulesDenied => "the ceiling refuses every dns_name",
            }
        );
        Tree { mark: Mark::Refused, word: refusal.reason.word(), text, because }
    }
}

fn allowed(direction: Direction) -> &'static str {
    match direction {
        Direction::Egress => "allowed_egress",
        Direction::Ingress => "allowed_ingress",
    }
}

/// What a person should know about a rule that is legal.
fn notes(grant: &Grant) -> Vec<Tree> {
    let dns = [Protocol::Tcp, Protocol::Udp]
        .into_iter()
        .any(|protocol| grant.ports.contains(crate::Transport::Port(protocol, 53)));
    match grant.target {
        Target::Cidr(_) if dns && grant.ports != crate::PortSet::Everything => vec![Tree::note(
            "foreign_resolver",
            "opens port 53 of that range: lookups there pass the platform's resolver by",
        )],
        Target::Tenant(_) => {
            vec![Tree::note("receiver_too", "the receiver's ingress rules must allow it as well")]
        }
        Target::Any | Target::Cidr(_) | Target::Names(_) | Target::Selector(_) => Vec::new(),
    }
}

/// The tree of a verdict on one egress flow.
#[must_use]
pub(crate) fn verdict_tree(ceiling: &Ceiling, rules: &RuleSet, flow: &Flow, verdict: &Verdict<'_>) -> Tree {
    let mark = if verdict.is_allowed() { Mark::Allowed } else { Mark::Refused };
    let mut because = Vec::new();
    if let Some(rule) = verdict.rule {
        let (list, grants) = match rule.source {
            Source::Declared => ("egress", rules.egress.rules()),
            Source::Default => ("default_egress", ceiling.default_egress.as_slice()),
        };
        because.extend(
            grants
                .get(rule.index)
                .map(|grant| Tree::leaf(Mark::Allowed, "rule", format!("{list}[{}] {grant}", rule.index))),
        );
    }
    because.extend(verdict.route.map(|route| Tree::note("route", format!("leaves by {route}"))));
    let text = match (&flow.far, verdict.reason) {
        (crate::Far::Address(address), crate::Reason::PlatformInternal) => {
            let what = crate::platform::line_of(*address).map_or("not global unicast", |line| line.what);
            format!("{flow}: {address} is platform-internal ({what})")
        }
        (_, crate::Reason::PortNotAllowed) => format!("{flow}: a rule opens the far end, but not this port"),
        (_, crate::Reason::NoRule) => format!("{flow}: no rule opens it"),
        (_, _) => format!("{flow}: passes"),
    };
    Tree { mark, word: verdict.reason.word(), text, because }
}

impl Verdict<'_> {
    /// The tree of this verdict on `flow`, of the rules that `rules` puts in force under `ceiling`.
    #[must_use]
    pub fn explain(&self, ceiling: &Ceiling, rules: &RuleSet, flow: &Flow) -> Tree {
        verdict_tree(ceiling, rules, flow, self)
    }
}
