//! Rules outlive us, and come back when others take them away.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use sallyport_gate::kill_switch::{
    Condition, ExitNodeFamily as F, Gate, GatePolicy, Keeper, LinkNews, Tailnet, Watch,
};
use sallyport_gate::nf_tables::{Monitor, NfTables};

use crate::own::{World, own};
use crate::probe::Try;
use crate::world::{Arrived, nft, unable};

fn policy() -> GatePolicy {
    GatePolicy::exit_node(F::Allowed, F::Allowed).with_tailnet(Tailnet::All)
}

#[test]
fn the_rules_stay_when_their_maker_is_gone() {
    if unable() {
        return;
    }
    let mut world = World::new();
    drop(world.keeper(policy()));
    assert_eq!(world.attempt(Try::Udp, false), Arrived { uplink: 0, tunnel: 0 });
    let text = nft(&world.gate, &["list", "ruleset"]);
    assert!(text.contains("table inet sallyport") && !text.contains("flags owner"), "{text}");
    // A successor takes the place over without a moment between.
    let successor = world.keeper(policy());
    assert_eq!(world.attempt(Try::Udp, false), Arrived { uplink: 0, tunnel: 0 });
    successor.release().unwrap();
    assert_eq!(nft(&world.gate, &["list", "ruleset"]), "");
}

#[test]
fn what_others_change_is_back_within_250_ms_and_counted() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let keeper = Arc::new(Mutex::new(world.keeper(policy())));
    let monitor = Monitor::inside(&world.gate).unwrap();
    let links = world.gate.run(LinkNews::open).unwrap().unwrap();
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let watch = Watch::start(Arc::clone(&keeper), monitor, links, move |condition| {
        drop(tell.lock().unwrap().send(condition));
    })
    .unwrap();
    let whole = nft(&world.gate, &["-n", "list", "ruleset"]);
    let edits: [&[&str]; 6] = [
        &["delete", "table", "inet", "sallyport"],
        &["flush", "ruleset"],
        &["flush", "chain", "inet", "sallyport", "forward"],
        &["insert", "rule", "inet", "sallyport", "leave", "accept"],
        &["add", "element", "inet", "sallyport", "by_uplink", "{ ipv4 }"],
        &["flush", "set", "inet", "sallyport", "live4"],
    ];
    for (at, edit) in edits.iter().enumerate() {
        let began = Instant::now();
        nft(&world.gate, edit);
        let condition = told.recv_timeout(Duration::from_secs(2)).unwrap().unwrap();
        let Condition::Repaired(gap) = condition else { panic!("{edit:?}: {condition:?}") };
        assert!(
            began.elapsed() < Duration::from_millis(250),
            "{edit:?}: repaired after {:?}",
            began.elapsed()
        );
        assert!(gap.at_most < Duration::from_millis(250), "{gap:?}");
        assert_eq!(gap.by.as_ref().map(|by| by.name.as_str()), Some("nft"), "{gap:?}");
        assert!(!gap.differences.is_empty());
        assert_eq!(keeper.lock().unwrap().gaps(), at as u64 + 1);
        let now = nft(&world.gate, &["-n", "list", "ruleset"]);
        assert_eq!(without_counts(&now), without_counts(&whole), "{edit:?}");
        assert_eq!(world.attempt(Try::Udp, false), Arrived { uplink: 0, tunnel: 0 });
    }
    // Other people's tables are their own business.
    nft(&world.gate, &["add", "table", "inet", "theirs"]);
    keeper.lock().unwrap().set_policy(GatePolicy::bootstrap()).unwrap();
    assert_eq!(keeper.lock().unwrap().check().unwrap(), Condition::Intact);
    assert_eq!(keeper.lock().unwrap().gaps(), 6);
    drop(watch);
    assert!(told.try_recv().is_err(), "nothing else was told");
}

fn without_counts(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("packets ")).collect()
}

#[test]
fn an_unsafe_rule_set_is_not_applied() {
    if unable() {
        return;
    }
    let world = World::new();
    let gate = sallyport_gate::kill_switch::OwnNamespace { owner: String::new(), ..own() };
    let nf = NfTables::inside(&world.gate).unwrap();
    let error = Keeper::install(nf, Gate::Own(gate), policy()).unwrap_err();
    assert!(error.to_string().contains("NoOwner"), "{error}");
    assert_eq!(nft(&world.gate, &["list", "ruleset"]), "");
}

#[test]
fn a_refusal_names_the_object_and_leaves_nothing_half_done() {
    use sallyport_gate::nf_tables::{Chain, Change, Family, Statement as S, Table, Transaction};
    if unable() {
        return;
    }
    let world = World::new();
    let mut nf = NfTables::inside(&world.gate).unwrap();
    let good = Table::new(Family::Inet, "good", "test");
    let mut bad = Table::new(Family::Inet, "bad", "test");
    bad.chains.insert(
        "c".into(),
        Chain { base: None, rules: vec![[S::accept()].into(), [S::goto("nowhere")].into()] },
    );
    let transaction = Transaction { changes: vec![Change::Replace(good), Change::Replace(bad)] };
    let error = nf.commit(&transaction).unwrap_err();
    assert!(error.to_string().contains("rule 2 of chain c of table inet bad"), "{error}");
    assert!(error.is_missing());
    assert_eq!(nft(&world.gate, &["list", "ruleset"]), "");
}
