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
fn peers_without_an_id_are_no_network_map() {
    let mut status = tailnet(vec![PeerStatus { public_key: "nodekey:00".into(), ..PeerStatus::default() }]);
    status.backend_state = BackendState::NeedsLogin;
    for text in ["exit-a", "auto:any", "id:nA", "100.64.0.7"] {
        assert!(matches!(find(&status, text), Err(ResolveError::StillStarting { .. })), "{text}");
    }
}

#[test]
fn an_id_without_its_prefix_is_told_what_to_write() {
    let error = find(&two(), "nA").expect_err("not a name");
    assert!(
        error.to_string().contains("it is the stable id of exit-a.tail1234.ts.net: write id:nA"),
        "{error}"
    );
}

#[test]
fn a_machine_named_like_an_id_is_found_by_that_name() {
    let status = tailnet(vec![peer("nA", "exit-a.tail1234.ts.net", 1), peer("nB", "na.tail1234.ts.net", 2)]);
    assert_eq!(find(&status, "nA"), Ok("nB".into()));
    assert_eq!(find(&status, "id:nA"), Ok("nA".into()));
}

#[test]
fn auto_takes_one_that_is_online_the_suggestion_first_then_by_name() {
    let mut status = two();
    let auto = |status: &Status, suggested: Option<&str>| {
        let suggested = suggested.map(StableId::new);
        resolve(status, &ExitNodeArg::Auto, suggested.as_ref()).map(|node| node.id.to_string())
    };
    assert_eq!(auto(&status, None), Ok("nA".into()));
    assert_eq!(auto(&status, Some("nB")), Ok("nB".into()));
    status.peers.get_mut("nodekey:0").expect("exit-a").online = false;
    assert_eq!(auto(&status, None), Ok("nB".into()));
    assert_eq!(auto(&status, Some("nA")), Ok("nB".into()), "the suggestion has gone offline since");
    assert_eq!(auto(&status, Some("nGone")), Ok("nB".into()));
    for peer in status.peers.values_mut() {
        peer.online = false;
    }
    assert_eq!(auto(&status, None), Ok("nA".into()), "control's word is no proof");
    assert!(matches!(auto(&tailnet(vec![]), None), Err(ResolveError::NotFound { .. })));
}

#[test]
fn a_node_without_a_name_is_never_meant() {
    let mut nameless = peer("nA", "", 7);
    nameless.dns_name = String::new();
    let mut status = tailnet(vec![nameless]);
    status.magic_dns_suffix = String::new();
    status.this_node = PeerStatus::default();
    assert!(matches!(find(&status, "exit-a"), Err(ResolveError::NotFound { .. })));
    assert_eq!(find(&status, "id:nA"), Ok("nA".into()));
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

/// Names, ids and flags from pools so small that they collide.
fn any_status() -> impl Strategy<Value = Status> {
    let one = (0..4u8, 0..4u8, any::<[bool; 3]>()).prop_map(|(id, name, [online, offers, expired])| {
        let mut peer = peer(&format!("n{id}"), &format!("exit-{name}.tail1234.ts.net"), 20 + id);
        (peer.online, peer.exit_node_option, peer.expired) = (online, offers, expired);
        peer
    });
    // Ids are unique; names need not be.
    prop::collection::vec(one, 0..6).prop_map(|mut peers| {
        peers.sort_by(|one, other| one.id.cmp(&other.id));
        peers.dedup_by(|one, other| one.id == other.id);
        tailnet(peers)
    })
}

proptest! {
    #[test]
    fn what_is_resolved_exists_offers_itself_and_has_not_expired(
        status in any_status(),
        text in "(auto:any|id:n[0-4]|(exit|EXIT)-[0-4](\\.tail1234\\.ts\\.net\\.?)?|100\\.64\\.0\\.2[0-4])",
        suggested in prop::option::of("n[0-4]"),
    ) {
        let arg: ExitNodeArg = text.parse().expect("an argument");
        let suggested = suggested.map(StableId::new);
        if let Ok(node) = resolve(&status, &arg, suggested.as_ref()) {
            let same = |peer: &&PeerStatus| peer.id == node.id && peer.fqdn() == node.fqdn;
            prop_assert!(status.peers.values().filter(same).any(|peer| peer.exit_node_option && !peer.expired));
        }
    }

    #[test]
    fn the_order_in_which_peers_are_told_never_matters(status in any_status(), suggested in prop::option::of("n[0-4]")) {
        let mut turned = status.clone();
        turned.peers =
            status.peers.values().rev().enumerate().map(|(n, peer)| (format!("nodekey:{n}"), peer.clone())).collect();
        let suggested = suggested.map(StableId::new);
        prop_assert_eq!(candidates(&status, suggested.as_ref()), candidates(&turned, suggested.as_ref()));
        for text in ["exit-0", "exit-1", "id:n2", "100.64.0.23"] {
            let arg = text.parse().expect("an argument");
            prop_assert_eq!(resolve(&status, &arg, None), resolve(&turned, &arg, None));
        }
    }
}
