//! Containment, evaluate and diff against the slow twin, and their laws as properties.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/twin.rs"]
mod twin;

use std::time::Instant;

use proptest::prelude::*;
use sallyport_policy::{
    Ceiling, ChangeKind, Edge, Far, Outcome, Platform, Reason, Region, Route, RuleChange, RuleSet, Target,
    compile, compile_ceiling, contains, diff, evaluate, gap,
};
use twin::{Bytes, Draw, Seeded, World};

fn ceiling(list: &[sallyport_policy::raw::RawRule]) -> Ceiling {
    Ceiling::from_raw(&twin::ceiling(list.to_vec()), Edge::Wire).unwrap()
}

fn rule_set(list: &[sallyport_policy::raw::RawRule]) -> RuleSet {
    RuleSet::from_raw(&twin::rule_set(list.to_vec()), Edge::Wire).unwrap()
}

/// One case: the decision, every witness and every suggestion, against the twin.
fn case(world: &World, draw: &mut impl Draw) {
    let entitlements = twin::legal(twin::rules(draw, 4, true), true);
    let declared = twin::legal(twin::rules(draw, 3, false), false);
    let (policy, rules) = (ceiling(&entitlements), rule_set(&declared));
    let decision = contains(&policy, &rules);
    let masks: Vec<_> = entitlements.iter().map(|rule| world.mask(rule)).collect();
    for (i, raw) in declared.iter().enumerate() {
        let mine = world.mask(raw);
        let covered =
            entitlements.is_empty() || masks.iter().any(|theirs| world.outside(&mine, theirs).is_none());
        assert_eq!(
            matches!(decision.egress[i], Outcome::Covered(_)),
            covered,
            "{raw:?} under {entitlements:?}"
        );
        // A witness exists exactly where the twin finds one, and is one by the rule's own meaning.
        for (entitlement, theirs) in policy.allowed_egress().entitlements().iter().zip(&masks) {
            let witness = gap(&rules.egress().rules()[i], entitlement);
            assert_eq!(
                witness.is_some(),
                world.outside(&mine, theirs).is_some(),
                "{raw:?} against {entitlement}"
            );
            if let Some(packet) = witness {
                assert!(
                    twin::reaches(raw, &packet.flow.far) && twin::carries(raw, packet.flow.transport),
                    "{packet}"
                );
                assert!(
                    rules.egress().rules()[i].admits(&packet) && !entitlement.admits(&packet),
                    "{packet}"
                );
            }
        }
    }
    for refusal in decision.refusals() {
        assert_eq!(refusal.witnesses.len(), entitlements.len());
        if let RuleChange::Replace(instead) = &refusal.rule_change {
            let nearest = &policy.allowed_egress().entitlements()[refusal.nearest.unwrap()];
            assert_eq!(gap(instead, nearest), None, "{instead} within {nearest}");
        }
        let added = refusal.ceiling_change.add.clone().unwrap();
        assert_eq!(gap(&rules.egress().rules()[refusal.rule], &added), None);
    }
}

#[test]
fn a_million_random_cases_decide_as_the_twin_does() {
    let world = World::new();
    let seed = std::env::var("SALLYPORT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5a11);
    let mut draw = Seeded(seed);
    let start = Instant::now();
    let cases = if cfg!(debug_assertions) && std::env::var_os("SALLYPORT_SLOW").is_some() {
        10_000
    } else {
        1_000_000
    };
    for _ in 0..cases {
        case(&world, &mut draw);
    }
    assert!(start.elapsed().as_secs() < 600, "{cases} cases from seed {seed}");
}

#[test]
fn evaluate_lets_pass_exactly_what_some_rule_holds() {
    let world = World::new();
    let mut draw = Seeded(7);
    for _ in 0..2_000 {
        let declared = twin::legal(twin::rules(&mut draw, 5, false), false);
        let rules = rule_set(&declared);
        let program = compile(&Ceiling::unrestricted(), &rules, &Platform::declared_only()).unwrap();
        let shut = compile(&Ceiling::unrestricted(), &rules, &Platform::standard()).unwrap();
        for flow in world.flows() {
            let allowed = declared
                .iter()
                .any(|rule| twin::reaches(rule, &flow.far) && twin::carries(rule, flow.transport));
            let verdict = evaluate(&program, &flow);
            assert_eq!(verdict.is_allowed(), allowed, "{flow} under {declared:?}");
            if let Some(rule) = verdict.rule {
                let raw = &declared[rule.index];
                assert!(twin::reaches(raw, &flow.far) && twin::carries(raw, flow.transport));
                assert_eq!(verdict.route, Some(rules.egress().rules()[rule.index].route()));
            }
            let never =
                matches!(flow.far, Far::Address(address) if sallyport_policy::platform::is_never(address));
            let real = evaluate(&shut, &flow);
            assert_eq!(real.is_allowed(), allowed && !never, "{flow} on a platform");
            assert!(!never || real.reason == Reason::PlatformInternal);
        }
    }
}

#[test]
fn diff_tells_exactly_the_flows_whose_verdict_changes() {
    let world = World::new();
    let mut draw = Seeded(11);
    for _ in 0..1_500 {
        let mut side = || twin::legal(twin::rules(&mut draw, 4, false), false);
        let (old, new) = (rule_set(&side()), rule_set(&side()));
        let program = |rules| compile(&Ceiling::unrestricted(), rules, &Platform::standard()).unwrap();
        let (old, new) = (program(&old), program(&new));
        let difference = diff(&old, &new);
        for flow in world.flows() {
            let (before, after) = (evaluate(&old, &flow).route, evaluate(&new, &flow).route);
            let told: Vec<_> =
                difference.changes.iter().filter(|change| speaks(change, &flow, &world)).collect();
            if before == after {
                assert!(told.is_empty(), "{flow}: {told:?}");
            } else {
                assert!(!told.is_empty(), "{flow}: {before:?} to {after:?} is not told in {difference:?}");
                assert!(
                    told.iter()
                        .all(|change| (change.before.as_ref(), change.after.as_ref()) == (before, after))
                );
            }
        }
        for change in &difference.changes {
            let (before, after) = (evaluate(&old, &change.witness), evaluate(&new, &change.witness));
            let kind = match (before.is_allowed(), after.is_allowed()) {
                (false, true) => ChangeKind::Opens,
                (true, false) => ChangeKind::Closes,
                _ => ChangeKind::Reroutes,
            };
            assert_eq!(kind, change.kind);
        }
        assert_eq!(diff(&new, &new).changes, Vec::new());
    }
}

/// Whether a change speaks of a flow.
fn speaks(change: &sallyport_policy::Change, flow: &sallyport_policy::Flow, _world: &World) -> bool {
    let transport = match flow.transport {
        sallyport_policy::Transport::Port(_, 0) | sallyport_policy::Transport::Other(_) => change.portless,
        sallyport_policy::Transport::Port(protocol, port) => change
            .ports
            .iter()
            .any(|span| span.protocol() == protocol && (span.first()..=span.last()).contains(&port)),
    };
    let far = match (&change.region, &flow.far) {
        (Region::Addresses(ranges), Far::Address(address)) => {
            ranges.iter().any(|(first, last)| first <= address && address <= last)
        }
        (Region::Name(mine), Far::Name(name)) => mine == name,
        (Region::Children { parent, except }, Far::Name(name)) => {
            name.parent() == Some(parent.as_str()) && !except.contains(name)
        }
        (Region::OtherNames { except }, Far::Name(name)) => !except.iter().any(|known| known.matches(name)),
        (Region::Workloads { target, except }, far @ Far::Workload(_)) => {
            target.as_ref().is_none_or(|target: &Target| target.contains(far))
                && !except.iter().any(|held| held.contains(far))
        }
        _ => false,
    };
    transport && far
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn containment_agrees_with_the_twin_and_shrinks(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        case(&World::new(), &mut Bytes(&bytes));
    }

    #[test]
    fn containment_is_a_preorder_and_monotone(bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
        let mut draw = Bytes(&bytes);
        let list = twin::legal(twin::rules(&mut draw, 6, true), true);
        let policy = ceiling(&list);
        let grants = policy.allowed_egress().entitlements();
        for a in grants {
            prop_assert_eq!(gap(a, a), None);
            for b in grants {
                for c in grants {
                    prop_assert!(!(gap(a, b).is_none() && gap(b, c).is_none()) || gap(a, c).is_none(), "{} in {} in {}", a, b, c);
                }
            }
        }
        // Fewer rules, or more entitlements in a list that is one already, never turn a yes into a no.
        let declared = twin::legal(twin::rules(&mut draw, 4, false), false);
        let all = rule_set(&declared);
        if contains(&policy, &all).is_allowed() && !list.is_empty() {
            let fewer = rule_set(&declared[..declared.len() / 2]);
            prop_assert!(contains(&policy, &fewer).is_allowed());
            let mut more = list.clone();
            more.push(twin::rule(&mut draw, true));
            prop_assert!(contains(&ceiling(&twin::legal(more, true)), &all).is_allowed());
        }
        if contains(&policy, &all).is_allowed() && !list.is_empty() {
            let (rules, entitled) = (compile(&Ceiling::unrestricted(), &all, &Platform::standard()).unwrap(), compile_ceiling(&policy, &Platform::standard()));
            for flow in World::new().flows() {
                prop_assert!(!evaluate(&rules, &flow).is_allowed() || evaluate(&entitled, &flow).is_allowed());
            }
        }
    }

    #[test]
    fn explain_contains_and_evaluate_agree_on_every_witness(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let mut draw = Bytes(&bytes);
        let policy = ceiling(&twin::legal(twin::rules(&mut draw, 4, true), true));
        let rules = rule_set(&twin::legal(twin::rules(&mut draw, 3, false), false));
        let decision = contains(&policy, &rules);
        let tree = decision.explain();
        prop_assert_eq!(tree.mark == sallyport_policy::Mark::Allowed, decision.is_allowed());
        for refusal in decision.refusals() {
            for (entitlement, witness) in policy.allowed_egress().entitlements().iter().zip(&refusal.witnesses) {
                let alone = RuleSet::from_raw(&twin::rule_set(Vec::new()), Edge::Wire).unwrap();
                prop_assert!(alone.egress().rules().is_empty());
                let one = compile(&Ceiling::unrestricted(), &rules, &Platform::declared_only()).unwrap();
                prop_assert!(evaluate(&one, &witness.flow).is_allowed());
                let theirs = compile_ceiling(&Ceiling::from_entitlements(vec![entitlement.clone()]), &Platform::declared_only());
                let verdict = evaluate(&theirs, &witness.flow);
                prop_assert!(!verdict.is_allowed() || !verdict.route.is_some_and(|route: &Route| route.contains(&witness.via)));
                prop_assert_eq!(witness.flow.to_string().parse::<sallyport_policy::Flow>().unwrap(), witness.flow.clone());
            }
        }
    }

    #[test]
    fn what_is_written_reads_back(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        use sallyport_policy::file::{Format, parse_ceiling, parse_rules};
        let mut draw = Bytes(&bytes);
        let mut list = twin::legal(twin::rules(&mut draw, 4, true), true);
        list.dedup();
        let distinct = ceiling(&list);
        let set: std::collections::BTreeSet<_> = distinct.allowed_egress().entitlements().iter().cloned().collect();
        let policy = Ceiling::from_entitlements(set.into_iter().collect());
        let rules: std::collections::BTreeSet<_> = rule_set(&twin::legal(twin::rules(&mut draw, 4, false), false)).egress().rules().iter().cloned().collect();
        let rules = serde_json::json!({ "egress": rules.into_iter().collect::<Vec<_>>() }).to_string();
        let rules = parse_rules(rules.as_bytes(), Format::Json).unwrap();
        for (format, written) in [
            (Format::Json, [serde_json::to_string(&policy).unwrap(), serde_json::to_string(&rules).unwrap()]),
            (Format::Yaml, [serde_saphyr::to_string(&policy).unwrap(), serde_saphyr::to_string(&rules).unwrap()]),
            (Format::Toml, [toml::to_string(&policy).unwrap(), toml::to_string(&rules).unwrap()]),
        ] {
            prop_assert_eq!(&parse_ceiling(written[0].as_bytes(), format).unwrap(), &policy);
            prop_assert_eq!(&parse_rules(written[1].as_bytes(), format).unwrap(), &rules);
        }
    }

    #[test]
    fn the_order_of_lists_never_matters(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let mut draw = Bytes(&bytes);
        let list = twin::legal(twin::rules(&mut draw, 5, true), true);
        let declared = twin::legal(twin::rules(&mut draw, 4, false), false);
        let reversed = |list: &[sallyport_policy::raw::RawRule]| list.iter().rev().cloned().collect::<Vec<_>>();
        let (policy, rules) = (ceiling(&list), rule_set(&declared));
        let (ycilop, selur) = (ceiling(&reversed(&list)), rule_set(&reversed(&declared)));
        let (one, other) = (contains(&policy, &rules), contains(&ycilop, &selur));
        let outcomes: Vec<bool> = one.egress.iter().map(|outcome| *outcome == Outcome::Refused).collect();
        let semoctuo: Vec<bool> = other.egress.iter().rev().map(|outcome| *outcome == Outcome::Refused).collect();
        prop_assert_eq!(outcomes, semoctuo);
        let changes: Vec<_> = one.refusals().into_iter().map(|refusal| refusal.rule_change).collect();
        let segnahc: Vec<_> = other.refusals().into_iter().rev().map(|refusal| refusal.rule_change).collect();
        prop_assert_eq!(changes, segnahc);
        let program = |rules| compile(&Ceiling::unrestricted(), rules, &Platform::standard()).unwrap();
        let (program, margorp) = (program(&rules), program(&selur));
        prop_assert!(diff(&program, &margorp).changes.is_empty());
        for flow in World::new().flows() {
            prop_assert_eq!(evaluate(&program, &flow).route, evaluate(&margorp, &flow).route);
        }
    }
}
