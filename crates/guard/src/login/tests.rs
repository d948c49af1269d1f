//! Logins that are necessary, and those that are not.

use super::*;
use crate::env;
use crate::machine::play::{Daemon, config};

fn need_of(daemon: &Daemon, variables: &[(&str, &str)]) -> Need {
    need(&config(variables), &daemon.snapshot.status, &daemon.snapshot.prefs)
}

#[test]
fn a_node_that_is_in_the_right_tailnet_with_the_right_tags_needs_nothing() {
    let mut daemon = Daemon::running(&["exit-a"]);
    assert_eq!(need_of(&daemon, &[]), Need::Nothing);
    daemon.snapshot.prefs.advertise_tags = vec!["tag:worker".into()];
    daemon.snapshot.status.this_node.tags = vec!["tag:worker".into()];
    assert_eq!(need_of(&daemon, &[(env::ADVERTISE_TAGS, "worker")]), Need::Nothing);
    assert_eq!(need_of(&daemon, &[]), Need::Nothing, "tags that nobody asked for are left alone");
}

#[test]
fn tags_beyond_those_asked_for_are_no_reason_to_log_in_again() {
    let mut daemon = Daemon::running(&[]);
    daemon.snapshot.prefs.advertise_tags = vec!["tag:worker".into()];
    daemon.snapshot.status.this_node.tags = vec!["tag:worker".into(), "tag:by-key".into()];
    assert_eq!(need_of(&daemon, &[(env::ADVERTISE_TAGS, "worker")]), Need::Nothing);
}

#[test]
fn tags_left_over_from_a_refused_login_are_corrected_without_another() {
    let mut daemon = Daemon::running(&[]);
    daemon.snapshot.status.this_node.tags = vec!["tag:worker".into()];
    daemon.snapshot.prefs.advertise_tags = vec!["tag:refused".into()];
    let variables = [(env::ADVERTISE_TAGS, "worker")];
    assert_eq!(need_of(&daemon, &variables), Need::Nothing);
    let change = settings(&config(&variables), &daemon.snapshot.prefs);
    assert_eq!(change.fields().collect::<Vec<_>>(), ["AdvertiseTags"]);
}

#[test]
fn complaints_are_told_without_their_preamble_and_replaced_attempts_not_at_all() {
    let refused = "You are logged out. The last login error was: fetch control key: connection refused";
    assert_eq!(complaint(refused), Some("fetch control key: connection refused"));
    assert_eq!(
        complaint("You are logged out. The last login error was: Get \"http://x\": context canceled"),
        None
    );
}

#[test]
fn other_tags_and_another_server_are_reasons_to_log_in_again() {
    let daemon = Daemon::running(&[]);
    let tags = need_of(&daemon, &[(env::ADVERTISE_TAGS, "worker")]);
    assert!(matches!(&tags, Need::Login(why @ Why::OtherTags { .. }) if why.needs_key() && why.forces()));
    let server = need_of(&daemon, &[(env::LOGIN_SERVER, "http://10.77.0.1:8080")]);
    assert!(matches!(&server, Need::Login(why @ Why::OtherServer { .. }) if why.needs_key()));
}

#[test]
fn a_node_with_its_own_key_is_not_new_whatever_state_it_is_in() {
    let mut daemon = Daemon::running(&[]);
    daemon.snapshot.status.backend_state = BackendState::NoState;
    assert_eq!(need_of(&daemon, &[]), Need::Nothing, "it has just started, and is on its way");
    daemon.snapshot.status.backend_state = BackendState::NeedsLogin;
    assert_eq!(need_of(&daemon, &[]), Need::Login(Why::KeyNoLongerGood));
    daemon.snapshot.status.backend_state = BackendState::Stopped;
    assert_eq!(need_of(&daemon, &[]), Need::Login(Why::Stopped));
    daemon.snapshot.prefs.logged_out = true;
    assert_eq!(need_of(&daemon, &[]), Need::Login(Why::LoggedOut));
}

#[test]
fn a_new_node_is_new() {
    assert_eq!(need_of(&Daemon::fresh(), &[]), Need::Login(Why::Fresh));
}

#[test]
fn spellings_of_one_control_server_are_one_server() {
    for (one, other) in [
        ("", "https://controlplane.tailscale.com"),
        ("https://login.tailscale.com", "https://controlplane.tailscale.com/"),
        ("http://10.77.0.1:8080/", "http://10.77.0.1:8080"),
        ("https://Head.example.org", "https://head.example.org"),
    ] {
        assert!(is_same_server(one, other), "{one} {other}");
    }
    assert!(!is_same_server("", "http://10.77.0.1:8080"));
}

#[test]
fn a_start_carries_over_a_pinned_exit_node_and_shuts_where_there_is_none() {
    let config = config(&[(env::EXIT_NODE_PRIMARY, "exit-a")]);
    let mut current = Daemon::behind(&["exit-b"]).snapshot.prefs;
    assert_eq!(start_prefs(&config, &current).exit_node_id.as_str(), "nexit-b");
    current.auto_exit_node = "any".into();
    let shut = start_prefs(&config, &current);
    assert_eq!((shut.exit_node_id.as_str(), shut.auto_exit_node.as_str()), (NOWHERE, ""));
    assert_eq!(start_prefs(&config, &Prefs::fresh()).exit_node_id.as_str(), NOWHERE);
}

#[test]
fn a_start_keeps_what_it_does_not_know_and_never_sends_the_identity() {
    let mut current = Prefs::fresh();
    current.rest.insert("Config".into(), serde_json::json!({"PrivateNodeKey": "x"}));
    current.rest.insert("RelayServerPort".into(), serde_json::json!(7));
    current.netfilter_mode = 1;
    let sent = start_prefs(&config(&[]), &current);
    assert!(!sent.rest.contains_key("Config"));
    assert_eq!(sent.rest["RelayServerPort"], 7);
    assert_eq!(sent.netfilter_mode, 1);
    assert!(sent.want_running && !sent.accept_dns && sent.accept_routes);
}

#[test]
fn settings_of_a_node_that_is_right_are_no_change() {
    let config = config(&[(env::EXIT_NODE_PRIMARY, "exit-a")]);
    let right = Daemon::behind(&["exit-a"]).snapshot.prefs;
    assert!(settings(&config, &right).is_empty());
    let mut wrong = right.clone();
    wrong.exit_node_allow_lan_access = true;
    wrong.remote_config = true;
    let change = settings(&config, &wrong);
    let fields: Vec<_> = change.fields().collect();
    assert_eq!(fields, ["ExitNodeAllowLANAccess", "RemoteConfig"]);
}

#[test]
fn texts_of_three_control_servers_are_told_apart() {
    use Refusal::{Final, Later};
    for (text, meaning) in [
        ("invalid key: unable to validate API key", Final(Reason::KeyRejected)),
        ("invalid key: API key does not exist", Final(Reason::KeyRejected)),
        ("invalid pre auth key", Final(Reason::KeyRejected)),
        ("invalid authkey", Final(Reason::KeyRejected)),
        ("invalid key: single-use key has already been used", Final(Reason::KeyUsed)),
        ("authkey already used", Final(Reason::KeyUsed)),
        ("authkey expired", Final(Reason::KeyExpired)),
        ("requested tags [tag:exit] are invalid or not permitted", Final(Reason::TagsRefused)),
        ("node registration rate limited; will retry after 5s", Later),
        ("this tailnet has too many devices", Final(Reason::LoginRefused)),
    ] {
        assert_eq!(refusal(text), meaning, "{text}");
    }
}
