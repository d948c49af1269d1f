//! Times of containment, evaluate and compile on the sizes that have targets.
#![expect(clippy::expect_used, reason = "a benchmark stops at the first surprise")]

use criterion::{Criterion, criterion_group, criterion_main};
use sallyport_policy::raw::{RawAllowance, RawCeiling, RawCidr, RawPort, RawRule, RawRuleSet, RawSelector};
use sallyport_policy::{Ceiling, Edge, Flow, Platform, RuleSet, compile, contains, evaluate};

/// The n-th of many mixed entitlements: three of four kinds by turns, each its own.
fn mixed(n: usize, narrow: bool) -> RawRule {
    let ports =
        Some(vec![RawPort { protocol: "TCP".into(), port: 443, end_port: if narrow { 0 } else { 500 } }]);
    let (a, b) = (n / 250 % 200, n % 250);
    match n % 3 {
        0 => RawRule {
            cidr: Some(RawCidr {
                cidr: format!("11.{a}.{b}.0/{}", if narrow { 26 } else { 24 }),
                except: None,
            }),
            ports,
            ..RawRule::default()
        },
        1 => RawRule {
            name: Some(if narrow { format!("a.h{n}.example.org") } else { format!("*.h{n}.example.org") }),
            ..RawRule::default()
        },
        _ => {
            let mut pod_labels: std::collections::BTreeMap<_, _> =
                [("app".to_owned(), format!("s{n}"))].into();
            if narrow {
                pod_labels.insert("tier".into(), "db".into());
            }
            RawRule {
                selector: Some(RawSelector { pod_labels, namespace_labels: None }),
                ports,
                ..RawRule::default()
            }
        }
    }
}

fn ceiling(n: usize) -> Ceiling {
    let list = (0..n).map(|i| mixed(i, false)).collect();
    Ceiling::from_raw(
        &RawCeiling { allowed_egress: RawAllowance::List(list), ..RawCeiling::default() },
        Edge::Wire,
    )
    .expect("sound")
}

fn rules(n: usize) -> RuleSet {
    RuleSet::from_raw(
        &RawRuleSet { egress: (0..n).map(|i| mixed(i, true)).collect(), ..RawRuleSet::default() },
        Edge::Wire,
    )
    .expect("sound")
}

fn benches(c: &mut Criterion) {
    for (declared, entitled) in [(32, 64), (1000, 1000)] {
        let (ceiling, rules) = (ceiling(entitled), rules(declared));
        assert!(contains(&ceiling, &rules).is_allowed());
        c.bench_function(&format!("contains_{declared}_in_{entitled}"), |b| {
            b.iter(|| contains(&ceiling, &rules).is_allowed())
        });
    }
    let (open, many) = (Ceiling::unrestricted(), rules(10_000));
    c.bench_function("compile_10000", |b| {
        b.iter(|| compile(&open, &many, &Platform::standard()).expect("sound"))
    });
    let program = compile(&open, &many, &Platform::standard()).expect("sound");
    for flow in [
        "tcp:11.12.3.9:443",
        "a.h3001.example.org:443",
        "tcp:{app=s5000,tier=db}+own_namespace:443",
        "tcp:8.8.8.8:443",
    ] {
        let flow: Flow = flow.parse().expect("a flow");
        c.bench_function(&format!("evaluate_10000 {flow}"), |b| {
            b.iter(|| evaluate(&program, &flow).is_allowed())
        });
    }
}

criterion_group!(group, benches);
criterion_main!(group);
