//! Names, addresses and ids of a small tailnet.

use proptest::prelude::*;

use super::*;

fn peer(id: &str, fqdn: &str, last: u8) -> PeerStatus {
    PeerStatus {
        id: StableId::new(id),
        dns_name: format!("{fqdn}."),
        tailscale_ips: vec![
            IpAddr::from([100, 64, 0, last]),
            format!("fd7a:115c:a1e0::{last}").parse().expect("v6"),
        ],
        online: true,
        exit_node_option: true,
        ..PeerStatus::default()
    }
}

fn tailnet(peers: Vec<PeerStatus>) -> Status {
    Status {
        backend_state: BackendState::Running,
        magic_dns_suffix: "tail1234.ts.net".into(),
        this_node: peer("nSelf", "worker.tail1234.ts.net", 10),
        peers: peers.into_iter().enumerate().map(|(n, peer)| (format!("nodekey:{n}"), peer)).collect(),
        ..Status::default()
    }
}

fn two() -> Status {
    tailnet(vec![
        peer("nA", "exit-a.tail1234.ts.net", 7),
        peer("nB", "exit-b.tail1234.ts.net", 8),
        peer("nM", "se-sto-wg-006.mullvad.ts.net", 9),
    ])
}

fn find(status: &Status, text: &str) -> Result<String, ResolveError> {
    resolve(status, &text.parse().expect("an argument"), None).map(|node| node.id.to_string())
}

#[test]
fn every_spelling_of_a_node_finds_it() {
    for text in [
        "exit-a",
        "EXIT-A",
        " exit-a ",
        "exit-a.tail1234.ts.net",
        "Exit-A.tail1234.ts.net.",
        "100.64.0.7",
        "fd7a:115c:a1e0::7",
        "::ffff:100.64.0.7",
        "id:nA",
    ] {
        assert_eq!(find(&two(), text), Ok("nA".into()), "{text}");
    }
    assert_eq!(find(&two(), "se-sto-wg-006.mullvad.ts.net"), Ok("nM".into()));
}

#[test]
fn a_shared_node_has_no_short_name_here() {
    assert!(matches!(find(&two(), "se-sto-wg-006"), Err(ResolveError::NotFound { .. })));
}

#[test]
fn an_unknown_name_lists_what_there_is() {
    let mut status = two();
    status.peers.get_mut("nodekey:1").expect("exit-b").online = false;
    let error = find(&status, "exit-x").expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "no node of the tailnet is exit-x; exit nodes: exit-a (online), exit-b (offline), \
         se-sto-wg-006.mullvad.ts.net (online)"
    );
}

#[test]
fn a_host_name_that_a_machine_claims_means_nothing() {
    let mut status = two();
    status.peers.get_mut("nodekey:1").expect("exit-b").host_name = "trusted".into();
    assert!(matches!(find(&status, "trusted"), Err(ResolveError::NotFound { .. })));
}

#[test]
fn an_id_needs_its_prefix_and_follows_no_name() {
    assert!(matches!(find(&two(), "nA"), Err(ResolveError::NotFound { .. })));
    let replaced = tailnet(vec![peer("nNew", "exit-a.tail1234.ts.net", 20)]);
    assert_eq!(find(&replaced, "exit-a"), Ok("nNew".into()));
    assert!(matches!(find(&replaced, "id:nA"), Err(ResolveError::NotFound { .. })));
}

#[test]
fn each_way_to_fail_is_told_apart() {
    let mut status = two();
    status.peers.get_mut("nodekey:0").expect("exit-a").exit_node_option = false;
    assert!(matches!(find(&status, "exit-a"), Err(ResolveError::NotOffering { .. })));
    status.peers.get_mut("nodekey:0").expect("exit-a").expired = true;
    assert!(matches!(find(&status, "exit-a"), Err(ResolveError::Expired { .. })));
    for own in ["worker", "100.64.0.10", "id:nSelf"] {
        assert!(matches!(find(&status, own), Err(ResolveError::IsSelf { .. })), "{own}");
    }
    let twins = tailnet(vec![peer("n2", "exit.tail1234.ts.net", 1), peer("n1", "exit.tail1234.ts.net", 2)]);
    let error = find(&twins, "exit").expect_err("two of them");
    assert_eq!(error.to_string(), "exit is the name of several nodes: id:n1, id:n2");
    let starting = Status { backend_state: BackendState::Starting, ..Status::default() };
    assert!(matches!(find(&starting, "exit-a"), Err(ResolveError::StillStarting { .. })));
}

#[test]
fn auto_takes_the_suggestion_then_one_that_is_online_by_name() {
    let mut status = two();
    status.peers.get_mut("nodekey:0").expect("exit-a").online = false;
    assert_eq!(find(&status, "auto:any"), Ok("nB".into()));
    let suggested = StableId::new("nA");
    assert_eq!(resolve(&status, &ExitNodeArg::Auto, Some(&suggested)).expect("a node").id, suggested);
    assert!(matches!(find(&tailnet(vec![]), "auto:any"), Err(ResolveError::NotFound { .. })));
}

#[test]
fn words_that_name_nothing_are_refused_before_any_lookup() {
    for text in ["", "  ", "auto:", "auto:best", "id:", "id:a b", "a b", "exit_a!", "a..b", &"x".repeat(64)] {
        assert!(text.parse::<ExitNodeArg>().is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn garbage_never_panics_and_what_parses_reads_back(text in ".{0,300}") {
        if let Ok(arg) = text.parse::<ExitNodeArg>() {
            prop_assert_eq!(arg.to_string().parse::<ExitNodeArg>(), Ok(arg.clone()));
            let _ = resolve(&two(), &arg, None);
        }
    }
}
