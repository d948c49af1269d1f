//! The questions: may a source reach a destination, may it use an exit node.
//!
//! Every part of a rule fits, does not fit, or depends on something that is not known. A rule allows where all parts
//! fit; what no rule allows, and none might, is refused. Rules only ever add, so their order decides nothing but which
//! of several is named.

use std::net::IpAddr;

use super::fit::{self, Fit, Outside, Stands};
use super::missing;
use super::model::{Ipv4, Policy, Rule, RuleRef, Selector, Tag, Target};
use super::place::Place;
use super::service::{Lack, Service};
use super::verdict::{Answer, Approval, Doubt, Near, Refusal, Verdict};
use super::world::{Approved, Destination, Family, Host, Identity, Source, World};

/// Answers whether `source` may open this flow.
///
/// A public address counts as Internet, which is reached by an exit node, unless a known device or
/// `autoApprovers.routes` serves it as a subnet. Whether an exit node is selected, up, or approved is not asked here:
/// see [`may_use_exit`].
pub fn may_reach(policy: &Policy, world: &World, source: &Source, destination: &Destination) -> Answer {
    let place = Place::find(policy, world, &destination.host);
    let question = Question { policy, world, source, place: &place, host: &destination.host };
    question.answer(|family| {
        let judge = |rule: &Rule| question.flow(rule, destination, family);
        let missing = || missing::for_flow(policy, source, &place, destination, family);
        question.verdict(family, judge, missing)
    })
}

/// Answers whether `source` may send its Internet traffic through this exit node.
///
/// A rule with `autogroup:internet` must let it, the rule's `via` must not exclude the node, and the node's default
/// route must be approved; the file alone does not tell the last.
pub fn may_use_exit(policy: &Policy, world: &World, source: &Source, exit: &Host) -> Answer {
    let place = match Place::find(policy, world, exit) {
        Place::Outside(address) => Place::Nowhere(Some(address)),
        Place::Many(_) => Place::Nowhere(None),
        place @ (Place::Device { .. } | Place::Nowhere(_)) => place,
    };
    let question = Question { policy, world, source, place: &place, host: exit };
    question.answer(|family| {
        let judge = |rule: &Rule| question.exit(rule, family);
        let verdict = question.verdict(family, judge, || missing::for_exit(policy, source));
        question.approved(verdict, family)
    })
}

/// What a rule says to a question.
enum Said {
    Allows(Vec<Service>),
    Depends(Vec<Doubt>),
    Lacks(Vec<Lack>),
}

struct Question<'a> {
    policy: &'a Policy,
    world: &'a World,
    source: &'a Source,
    place: &'a Place<'a>,
    host: &'a Host,
}

impl Question<'_> {
    fn answer(&self, verdict: impl Fn(Family) -> Verdict) -> Answer {
        let known = self.source.addresses.as_deref();
        let of = |family: Family| {
            let sends = known.is_none_or(|known| known.iter().any(|address| family.is_of(*address)));
            (sends && self.place.is_in(family)).then(|| verdict(family))
        };
        Answer { v4: of(Family::V4), v6: of(Family::V6) }
    }

    fn verdict(
        &self,
        family: Family,
        judge: impl Fn(&Rule) -> Said,
        missing: impl FnOnce() -> String,
    ) -> Verdict {
        match self.place {
            Place::Nowhere(_) => {
                return Verdict::Refused { why: Refusal::NoSuchDevice(self.host.to_string()) };
            }
            Place::Many(_) => {
                return Verdict::Indeterminate {
                    rule: None,
                    why: vec![Doubt::ManyAddresses(self.host.to_string())],
                };
            }
            Place::Device { .. } | Place::Outside(_) => {}
        }
        let Some(rules) = &self.policy.rules else {
            return doubted(
                Verdict::Indeterminate { rule: None, why: vec![Doubt::NoRules] },
                self.doubts(family),
            );
        };
        let mut allowed: Option<(&Rule, Vec<Service>)> = None;
        let mut depends: Vec<(RuleRef, Vec<Doubt>)> = Vec::new();
        let mut nearest: Option<Near> = None;
        for rule in rules {
            match judge(rule) {
                Said::Allows(opens) if rule.doubts.is_empty() => {
                    let wider = opens.iter().any(Service::is_everything);
                    let known = allowed.as_ref().map(|(_, opens)| opens.iter().any(Service::is_everything));
                    if known.is_none() || known == Some(false) && wider {
                        allowed = Some((rule, opens));
                    }
                }
                Said::Allows(_) => depends.push((rule.at, rule.doubts.clone())),
                Said::Depends(doubts) => depends.push((rule.at, [doubts, rule.doubts.clone()].concat())),
                Said::Lacks(lacks) => nearest = nearer(nearest, Near { rule: rule.at, lacks }),
            }
        }
        let verdict = match (allowed, depends.first()) {
            (Some((rule, opens)), _) => {
                Verdict::Allowed { rule: rule.at, opens, via: rule.via.iter().cloned().collect() }
            }
            (None, Some((rule, _))) => Verdict::Indeterminate {
                rule: Some(*rule),
                why: in_order(depends.iter().flat_map(|(_, doubts)| doubts.clone()).collect()),
            },
            (None, None) => Verdict::Refused { why: Refusal::NoRule { nearest, missing: missing() } },
        };
        doubted(self.undefined_tag(verdict), self.doubts(family))
    }

    /// What may change the meaning of every rule.
    fn doubts(&self, family: Family) -> Vec<Doubt> {
        let mut doubts = self.policy.doubts.clone();
        if let (Ipv4::Off(at), Family::V4) = (self.policy.ipv4, family)
            && (self.source.addresses.is_none() || !self.place.has_known_address())
        {
            doubts.push(Doubt::Ipv4Disabled(at));
        }
        doubts
    }

    /// A tag that the file does not define: no rule can name it, though `*` still holds for who has kept it.
    fn undefined_tag(&self, verdict: Verdict) -> Verdict {
        let of_place = match self.place {
            Place::Device { identity, .. } => Some(identity),
            Place::Outside(_) | Place::Many(_) | Place::Nowhere(_) => None,
        };
        let tags =
            [Some(&self.source.identity), of_place].into_iter().flatten().filter_map(
                |identity| match identity {
                    Identity::Tags(tags) => Some(tags),
                    Identity::User(_) | Identity::Somebody | Identity::Unknown => None,
                },
            );
        let Some(tag) = tags.flatten().find(|tag| !self.policy.tags.contains(tag)) else { return verdict };
        match verdict {
            Verdict::Refused { why: Refusal::NoRule { .. } } => {
                Verdict::Refused { why: Refusal::UndefinedTag(tag.clone()) }
            }
            other => doubted(other, vec![Doubt::UndefinedTag(tag.clone())]),
        }
    }

    fn flow(&self, rule: &Rule, destination: &Destination, family: Family) -> Said {
        let passes = |target: &Target| {
            let lacks =
                target.services.iter().map(|service| service.passes(destination.protocol, destination.port));
            // Nothing opened is a grant of capabilities: no flow has a port in it.
            match lacks.min_by_key(|result| result.err()) {
                Some(Ok(())) => Fit::Yes,
                Some(Err(lack)) => Fit::No(lack),
                None => Fit::No(Lack::Protocol),
            }
        };
        let source = self.source_fit(rule, family);
        best(rule.targets.iter().map(|target| {
            let parts = [source.clone(), self.target_fit(rule, &target.selector, family), passes(target)];
            together(&parts, &target.services)
        }))
    }

    fn exit(&self, rule: &Rule, family: Family) -> Said {
        let source = self.source_fit(rule, family);
        best(rule.targets.iter().map(|target| {
            let internet = match &target.selector {
                _ if target.services.is_empty() => Fit::No(Lack::Destination),
                Selector::Internet => Fit::Yes,
                Selector::Opaque(word) => Fit::Depends(vec![Doubt::Opaque(rule.at, word.clone())]),
                Selector::Prefix(prefix) if prefix.prefix_len() == 0 && family.is_of(prefix.addr()) => {
                    Fit::Depends(vec![Doubt::EveryAddress(rule.at)])
                }
                _ => Fit::No(Lack::Destination),
            };
            together(&[source.clone(), internet, self.via_fit(rule)], &target.services)
        }))
    }

    fn via_fit(&self, rule: &Rule) -> Fit {
        let identity = match self.place {
            Place::Device { identity, .. } => identity,
            Place::Outside(_) | Place::Many(_) | Place::Nowhere(_) => &Identity::Unknown,
        };
        if rule.via.is_empty() {
            return Fit::Yes;
        }
        match fit::has_any(identity, &rule.via) {
            Stands::Yes => Fit::Yes,
            Stands::No => Fit::No(Lack::Via),
            Stands::Unknown | Stands::Members | Stands::Opaque => {
                let tags: Vec<&str> = rule.via.iter().map(Tag::as_str).collect();
                Fit::Depends(vec![Doubt::UnknownDestination(rule.at, tags.join(" or "))])
            }
        }
    }

    fn source_fit(&self, rule: &Rule, family: Family) -> Fit {
        let addresses: Option<Vec<IpAddr>> = self
            .source
            .addresses
            .as_ref()
            .map(|all| all.iter().copied().filter(|address| family.is_of(*address)).collect());
        let fits = rule.sources.iter().map(|selector| {
            let identity = &self.source.identity;
            let stands = fit::device(selector, identity, addresses.as_deref(), family, self.policy);
            fit_of(stands, rule.at, selector, Doubt::UnknownSource, Lack::Source)
        });
        Fit::any(fits, Lack::Source)
    }

    fn target_fit(&self, rule: &Rule, selector: &Selector, family: Family) -> Fit {
        match self.place {
            Place::Device { identity, addresses, .. } => {
                let stands = match selector {
                    Selector::Own => fit::same_user(&self.source.identity, identity),
                    selector => {
                        let addresses: Option<Vec<IpAddr>> = addresses.as_ref().map(|all| {
                            all.iter().copied().filter(|address| family.is_of(*address)).collect()
                        });
                        fit::device(selector, identity, addresses.as_deref(), family, self.policy)
                    }
                };
                fit_of(stands, rule.at, selector, Doubt::UnknownDestination, Lack::Destination)
            }
            Place::Outside(address) => {
                match fit::outside(selector, *address, &rule.via, self.policy, self.world) {
                    Outside::Yes => Fit::Yes,
                    Outside::No(lack) => Fit::No(lack),
                    Outside::NoKnownRouter => Fit::Depends(vec![Doubt::NoKnownRouter(rule.at)]),
                    Outside::EveryAddress => Fit::Depends(vec![Doubt::EveryAddress(rule.at)]),
                    Outside::Opaque => Fit::Depends(vec![Doubt::Opaque(rule.at, selector.to_string())]),
                }
            }
            Place::Many(_) | Place::Nowhere(_) => Fit::No(Lack::Destination),
        }
    }

    /// Holds a verdict of the rules against the node's approval.
    fn approved(&self, verdict: Verdict, family: Family) -> Verdict {
        let Place::Device { identity, device, .. } = self.place else { return verdict };
        if matches!(verdict, Verdict::Refused { .. }) {
            return verdict;
        }
        match device.and_then(|device| device.exit_approved(family)) {
            Some(Approved::Yes) => verdict,
            Some(Approved::No) => Verdict::Refused {
                why: Refusal::NotApproved {
                    device: self.host.to_string(),
                    approval: self.approval(identity),
                },
            },
            None => doubted(verdict, vec![Doubt::ApprovalUnknown(self.host.to_string())]),
        }
    }

    fn approval(&self, identity: &Identity) -> Approval {
        let by = |selector: &Selector| {
            fit::device(selector, identity, None, Family::V4, self.policy) == Stands::Yes
        };
        if self.policy.approvers.exit_node.iter().any(by) { Approval::Automatic } else { Approval::ByHand }
    }
}

fn fit_of(
    stands: Stands,
    rule: RuleRef,
    selector: &Selector,
    unknown: impl Fn(RuleRef, String) -> Doubt,
    lack: Lack,
) -> Fit {
    let word = selector.to_string();
    match stands {
        Stands::Yes => Fit::Yes,
        Stands::No => Fit::No(lack),
        Stands::Unknown => Fit::Depends(vec![unknown(rule, word)]),
        Stands::Members => Fit::Depends(vec![Doubt::GroupMembers(rule, word)]),
        Stands::Opaque => Fit::Depends(vec![Doubt::Opaque(rule, word)]),
    }
}

/// What parts that must all fit come to.
fn together(parts: &[Fit], opens: &[Service]) -> Said {
    let lacks: Vec<Lack> = parts
        .iter()
        .filter_map(|fit| match fit {
            Fit::No(lack) => Some(*lack),
            Fit::Yes | Fit::Depends(_) => None,
        })
        .collect();
    if !lacks.is_empty() {
        return Said::Lacks(lacks);
    }
    let doubts: Vec<Doubt> = parts
        .iter()
        .flat_map(|fit| match fit {
            Fit::Depends(doubts) => doubts.clone(),
            Fit::Yes | Fit::No(_) => Vec::new(),
        })
        .collect();
    if doubts.is_empty() { Said::Allows(opens.to_vec()) } else { Said::Depends(doubts) }
}

/// What a rule says by the target that says most.
fn best(said: impl Iterator<Item = Said>) -> Said {
    let mut opens: Option<Vec<Service>> = None;
    let mut doubts = Vec::new();
    let mut fewest: Option<Vec<Lack>> = None;
    for said in said {
        match said {
            Said::Allows(more) => opens.get_or_insert_default().extend(more),
            Said::Depends(more) => doubts.extend(more),
            Said::Lacks(lacks) => {
                if fewest.as_ref().is_none_or(|fewest| (lacks.len(), &lacks) < (fewest.len(), fewest)) {
                    fewest = Some(lacks);
                }
            }
        }
    }
    match (opens, doubts.is_empty()) {
        (Some(mut opens), _) => {
            opens.sort();
            opens.dedup();
            Said::Allows(opens)
        }
        (None, false) => Said::Depends(doubts),
        (None, true) => Said::Lacks(fewest.unwrap_or_else(|| vec![Lack::Source, Lack::Destination])),
    }
}

/// The nearer of two rules, if it lacks one thing only: more is not near.
fn nearer(known: Option<Near>, other: Near) -> Option<Near> {
    if other.lacks.len() != 1 || known.as_ref().is_some_and(|known| known.lacks <= other.lacks) {
        return known;
    }
    Some(other)
}

/// A verdict that these doubts are cast on.
fn doubted(verdict: Verdict, doubts: Vec<Doubt>) -> Verdict {
    if doubts.is_empty() {
        return verdict;
    }
    match verdict {
        Verdict::Allowed { rule, .. } => Verdict::Indeterminate { rule: Some(rule), why: in_order(doubts) },
        Verdict::Refused { .. } => Verdict::Indeterminate { rule: None, why: in_order(doubts) },
        Verdict::Indeterminate { rule, why } => {
            Verdict::Indeterminate { rule, why: in_order([why, doubts].concat()) }
        }
    }
}

fn in_order(mut doubts: Vec<Doubt>) -> Vec<Doubt> {
    doubts.sort();
    doubts.dedup();
    doubts
}
