//! The checker finds nothing in what we render, and finds what we break.

use super::*;
use crate::kill_switch::{
    AllowRule, Dhcp, Established, ExitNodeFamily as F, GatePolicy, OwnNamespace, Passage, PortRange,
    Protocol, Resolver, SharedNamespace, Tailnet, Via, WorkloadEnd,
};
use crate::nf_tables::Rule;

fn own() -> OwnNamespace {
    OwnNamespace {
        owner: "test".into(),
        tunnel: "tailscale0".into(),
        workload_prefix: "gw".into(),
        tailscaled_uid: Some(64100),
        resolver: Some(Resolver { addresses: ["203.0.113.53".parse().expect("valid")].into() }),
        dns_port: Some(53),
        workloads: [WorkloadEnd {
            link: "gw1".into(),
            ipv4: Some("10.88.1.2".parse().expect("valid")),
            ipv6: Some("fd88:1::2".parse().expect("valid")),
            passage: Passage::Open,
        }]
        .into(),
    }
}

fn shared() -> SharedNamespace {
    SharedNamespace {
        owner: "test".into(),
        tunnel: "tailscale0".into(),
        uplinks: ["u0".to_string(), "u1".to_string()].into(),
        tailscaled_uid: 64100,
        resolver: own().resolver,
        forwarder_port: Some(5353),
        dhcp: Dhcp::Client,
    }
}

fn policies() -> Vec<GatePolicy> {
    let rule = AllowRule::new(
        "10.1.0.0/16".parse().expect("valid"),
        Protocol::Tcp,
        PortRange::one(5432),
        Via::Uplink,
    );
    vec![
        GatePolicy::shut(),
        GatePolicy::bootstrap(),
        GatePolicy::exit_node(F::Allowed, F::Allowed),
        GatePolicy::exit_node(F::Allowed, F::Rejected).with_tailnet(Tailnet::All),
        GatePolicy::bootstrap().with_established(Established::Wait),
        GatePolicy::uplink().with_allow([rule]).with_ingress([8080]),
    ]
}

#[test]
fn no_policy_in_any_shape_is_rendered_into_a_violation() {
    for policy in policies() {
        for ruleset in [own().ruleset(&policy), shared().ruleset(&policy)] {
            assert_eq!(invariants(&ruleset), Vec::new(), "{policy:?}");
        }
    }
}

#[test]
fn each_breach_is_found() {
    type Breach = (Fault, fn(&mut Ruleset));
    let breaches: [Breach; 8] = [
        (Fault::NothingDecides, |r| r.tables[0].chains.clear()),
        (Fault::NoOwner, |r| r.tables[1].comment.clear()),
        (Fault::OpenPolicy, |r| {
            let chain = r.tables[0].chains.get_mut("output").expect("rendered");
            chain.base.as_mut().expect("a base chain").policy = Policy::Accept;
        }),
        (Fault::Dangling, |r| drop(r.tables[0].sets.remove("by_tunnel"))),
        (Fault::UnconditionalAccept, |r| {
            let chain = r.tables[0].chains.get_mut("output").expect("rendered");
            chain.rules.insert(0, Rule::from([Statement::accept()]));
        }),
        (Fault::HalfAnIdentity, |r| {
            let chain = r.tables[1].chains.get_mut("egress").expect("rendered");
            let mark = Statement::Masked { key: Key::Mark, mask: vec![0; 4], value: vec![0; 4] };
            chain.rules.insert(0, Rule::from([mark, Statement::accept()]));
        }),
        (Fault::TwoWaysOut, |r| {
            let open = r.tables[0].sets["by_tunnel"].elements.clone();
            r.tables[0].sets.get_mut("by_uplink").expect("rendered").elements = open;
        }),
        (Fault::NoFrames, |r| r.tables[1].chains.retain(|name, _| name == "egress")),
    ];
    for (fault, breach) in breaches {
        let mut ruleset = shared().ruleset(&GatePolicy::exit_node(F::Allowed, F::Allowed));
        breach(&mut ruleset);
        assert!(invariants(&ruleset).iter().any(|v| v.fault == fault), "{fault:?} was not found");
    }
    let mut ruleset = own().ruleset(&GatePolicy::bootstrap());
    ruleset.tables[0].sets.get_mut("here4").expect("rendered").elements.clear();
    assert!(invariants(&ruleset).iter().any(|v| v.fault == Fault::UnknownWorkload));
    let mut gate = own();
    gate.workloads = gate
        .workloads
        .into_iter()
        .map(|end| WorkloadEnd { ipv4: Some("100.88.1.2".parse().expect("valid")), ..end })
        .collect();
    let ruleset = gate.ruleset(&GatePolicy::bootstrap());
    assert!(invariants(&ruleset).iter().any(|v| v.fault == Fault::TailnetAddress));
    let service = AllowRule::new(
        "100.100.100.100/32".parse().expect("valid"),
        Protocol::Any,
        PortRange::ALL,
        Via::Tailnet,
    );
    let ruleset = own().ruleset(&GatePolicy::bootstrap().with_allow([service]));
    assert!(invariants(&ruleset).iter().any(|v| v.fault == Fault::ServiceAddress));
}

#[test]
fn opening_and_shutting_change_elements_only() {
    use crate::kill_switch::plan;
    use crate::nf_tables::Change;
    for a in policies() {
        for b in policies() {
            for (from, to) in
                [(own().ruleset(&a), own().ruleset(&b)), (shared().ruleset(&a), shared().ruleset(&b))]
            {
                let changes = plan(&from, &to).changes;
                assert!(changes.iter().all(|change| matches!(change, Change::Add(..) | Change::Remove(..))));
                assert_eq!(changes.is_empty(), from == to);
            }
        }
    }
    let mut more = shared();
    more.uplinks.insert("u2".into());
    let policy = GatePolicy::bootstrap();
    let changes = plan(&shared().ruleset(&policy), &more.ruleset(&policy)).changes;
    assert!(
        matches!(&changes[..], [Change::Replace(table)] if table.family == Family::Netdev),
        "{changes:?}"
    );
}
