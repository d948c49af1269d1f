//! Every path of the flow chart, told with a daemon in memory.

use sallyport_tailnet::{BackendState, StableId};

use super::play::{Daemon, Play};
use super::*;
use crate::address::Family;
use crate::env;
use crate::events::Keeping;
use crate::login;
use crate::posture::Posture;

mod logging_in;

const BOTH: &[Family] = &Family::BOTH;
const V4: &[Family] = &[Family::Ipv4];
const NOTHING: &[Family] = &[];
const PRIMARY: (&str, &str) = (env::EXIT_NODE_PRIMARY, "exit-a");
const FALLBACK: (&str, &str) = (env::EXIT_NODE_FALLBACKS, "exit-b");
const PINNED: (&str, &str) = (env::EGRESS_EXPECTED_IPS, "203.0.113.10");

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A play that has seen this daemon and done what could be done at once.
fn on(daemon: &mut Daemon, variables: &[(&str, &str)]) -> Play {
    let mut play = Play::new(variables, KeyGiven::Yes);
    play.settle(daemon);
    play
}

#[test]
fn a_second_run_on_a_node_that_is_right_changes_nothing() {
    let mut daemon = Daemon::behind(&["exit-a"]);
    let mut play = on(&mut daemon, &[PRIMARY, PINNED]);
    play.cross(BOTH);
    play.learn(Some("203.0.113.10"), None);
    play.settle(&mut daemon);
    assert_eq!(play.acts(), ["connect", "ping nexit-a", "probe", "check", "write state file", "ready"]);
}

#[test]
fn no_exit_node_is_the_normal_route_and_the_address_is_only_told() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let mut play = on(&mut daemon, &[]);
    play.learn(Some("198.51.100.1"), None);
    play.settle(&mut daemon);
    assert_eq!(play.acts(), ["connect", "check", "write state file", "ready"]);
    assert_eq!((play.ready().posture, play.ready().keeping), (Posture::None, Keeping::Nothing));
    assert_eq!(play.ready().exit_node, None);
    assert!(!play.warnings().contains(&Warning::KillSwitchNone));
}

#[test]
fn no_exit_node_and_expected_addresses_verify_the_normal_route() {
    for (seen, reason) in [
        (Some("203.0.113.10"), None),
        (Some("198.51.100.1"), Some(Reason::AddressNotExpected)),
        (None, Some(Reason::AddressNotLearned)),
    ] {
        let mut daemon = Daemon::running(&[]);
        let mut play = on(&mut daemon, &[PINNED]);
        play.learn(seen, None);
        play.settle(&mut daemon);
        match reason {
            None => assert_eq!(play.ready().posture, Posture::None),
            Some(reason) => assert_eq!(play.failure().reason, reason),
        }
    }
}

#[test]
fn an_exit_node_that_somebody_set_is_not_cleared_for_the_normal_route() {
    let mut daemon = Daemon::behind(&["exit-a"]);
    let play = on(&mut daemon, &[]);
    assert_eq!(play.failure().reason, Reason::ExitNodeLeftOver);
    assert!(play.failure().message.contains("exit-a"), "{}", play.failure().message);
    assert!(play.acts().iter().all(|act| !act.starts_with("patch")));
}

#[test]
fn a_silent_primary_gives_way_to_the_first_fallback_that_answers() {
    let mut daemon = Daemon::running(&["exit-a", "exit-b"]);
    let mut play = on(&mut daemon, &[PRIMARY, FALLBACK]);
    play.pass(seconds(7));
    play.settle(&mut daemon);
    play.pong();
    play.settle(&mut daemon);
    play.cross(BOTH);
    play.learn(None, None);
    play.settle(&mut daemon);
    assert_eq!(play.ready().exit_node.as_deref(), Some("exit-b"));
    let pings: Vec<_> = play.acts().into_iter().filter(|act| act.starts_with("ping")).collect();
    assert_eq!(pings, ["ping nexit-a", "ping nexit-b"]);
    assert!(!play.story.contains(&"patch nexit-a".to_owned()), "a silent node is never selected");
}

#[test]
fn a_node_reported_offline_is_waited_for_less_and_used_if_it_answers() {
    let mut daemon = Daemon::running(&["exit-a", "exit-b"]);
    daemon.peer_mut("exit-a").online = false;
    let mut play = on(&mut daemon, &[PRIMARY, FALLBACK]);
    play.pass(seconds(1));
    play.settle(&mut daemon);
    play.pong();
    play.settle(&mut daemon);
    play.cross(BOTH);
    play.learn(None, None);
    play.settle(&mut daemon);
    assert_eq!(play.ready().exit_node.as_deref(), Some("exit-a"));
    assert!(play.warnings().contains(&Warning::OfflineButAnswers));

    let mut play = on(&mut Daemon::running(&["exit-a", "exit-b"]), &[PRIMARY, FALLBACK]);
    let mut offline = Daemon::running(&["exit-a", "exit-b"]);
    offline.peer_mut("exit-a").online = false;
    play.settle(&mut offline);
    let mut play = on(&mut offline, &[PRIMARY, FALLBACK]);
    play.pass(Duration::from_millis(2100));
    assert!(play.acts().contains(&"ping nexit-b"), "{:?}", play.acts());
}

#[test]
fn when_all_are_off_the_worker_does_not_start_and_each_is_told_of() {
    let mut daemon = Daemon::running(&["exit-a", "exit-b"]);
    daemon.peer_mut("exit-b").online = false;
    let variables =
        [PRIMARY, (env::EXIT_NODE_FALLBACKS, "exit-b,exit-west"), (env::REQUIRE_EXIT_NODE, "true")];
    let mut play = on(&mut daemon, &variables);
    play.pass(seconds(20));
    let failure = play.failure();
    assert_eq!((failure.reason, failure.exit_code), (Reason::ExitNoAnswer, 5));
    let reasons: Vec<_> = failure.attempts.iter().map(|attempt| attempt.reason).collect();
    assert_eq!(reasons, [Reason::ExitNoAnswer, Reason::ExitOffline, Reason::ExitUnknown]);
    assert_eq!(play.acts().iter().filter(|act| act.starts_with("patch n")).count(), 0);
}

#[test]
fn a_preferred_node_that_fails_fails_the_start_all_the_same() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let mut play = on(&mut daemon, &[PRIMARY, (env::REQUIRE_EXIT_NODE, "false")]);
    play.pass(seconds(10));
    assert_eq!(play.failure().reason, Reason::ExitNoAnswer);
}

#[test]
fn duplicates_by_another_spelling_are_tried_once() {
    let mut daemon = Daemon::running(&["exit-a", "exit-b"]);
    let spellings = "exit-a.tail1234.ts.net,100.64.0.2,id:nexit-a,exit-b,100.64.0.3";
    let mut play = on(&mut daemon, &[PRIMARY, (env::EXIT_NODE_FALLBACKS, spellings)]);
    play.pass(seconds(30));
    let pings: Vec<_> = play.acts().into_iter().filter(|act| act.starts_with("ping")).collect();
    assert_eq!(pings, ["ping nexit-a", "ping nexit-b"]);
    assert_eq!(play.failure().attempts.len(), 2);
}

#[test]
fn auto_any_is_the_suggested_node_then_the_others_online_and_ends_as_a_name() {
    let mut daemon = Daemon::running(&["exit-a", "exit-b", "exit-c"]);
    daemon.peer_mut("exit-a").online = false;
    daemon.snapshot.suggested = Some(StableId::new("nexit-c"));
    let mut play = on(&mut daemon, &[(env::EXIT_NODE_PRIMARY, "auto:any")]);
    play.pass(seconds(7));
    play.settle(&mut daemon);
    play.pong();
    play.settle(&mut daemon);
    play.cross(BOTH);
    play.learn(None, None);
    play.settle(&mut daemon);
    let pings: Vec<_> = play.acts().into_iter().filter(|act| act.starts_with("ping")).collect();
    assert_eq!(pings, ["ping nexit-c", "ping nexit-b"]);
    assert_eq!(play.ready().exit_node.as_deref(), Some("exit-b"));
    assert_eq!(daemon.snapshot.prefs.auto_exit_node, "");
}

#[test]
fn a_foreign_address_moves_on_and_fails_when_none_is_left() {
    let mut daemon = Daemon::running(&["exit-a", "exit-b"]);
    let mut play = on(&mut daemon, &[PRIMARY, FALLBACK, PINNED]);
    for address in ["203.0.113.99", "203.0.113.98"] {
        play.pong();
        play.settle(&mut daemon);
        play.learn(Some(address), None);
        play.settle(&mut daemon);
    }
    let failure = play.failure();
    assert_eq!((failure.reason, failure.exit_code), (Reason::AddressNotExpected, 6));
    assert!(
        failure.message.contains("203.0.113.99") && failure.message.contains("icanhazip.com"),
        "{}",
        failure.message
    );
}

#[test]
fn an_address_that_is_not_learned_fails_where_one_is_expected_and_warns_where_none_is() {
    for (pinned, ready) in [(true, false), (false, true)] {
        let mut daemon = Daemon::running(&["exit-a"]);
        let variables: &[_] = if pinned { &[PRIMARY, PINNED] } else { &[PRIMARY] };
        let mut play = on(&mut daemon, variables);
        play.pong();
        play.settle(&mut daemon);
        play.cross(BOTH);
        play.learn(None, None);
        play.settle(&mut daemon);
        if ready {
            assert_eq!(play.ready().ipv4, None);
            assert!(play.warnings().contains(&Warning::AddressNotLearned));
        } else {
            assert_eq!(play.failure().reason, Reason::AddressNotLearned);
            assert!(play.failure().message.contains("429"), "{}", play.failure().message);
        }
    }
}

#[test]
fn each_family_with_expected_entries_must_match() {
    let both = (env::EGRESS_EXPECTED_IPS, "203.0.113.10,2001:db8:10::10");
    for (ipv6, reason) in [
        (Some("2001:db8:10::10"), None),
        (Some("2001:db8:99::1"), Some(Reason::AddressNotExpected)),
        (None, Some(Reason::AddressNotLearned)),
    ] {
        let mut daemon = Daemon::running(&["exit-a"]);
        let mut play = on(&mut daemon, &[PRIMARY, both]);
        play.pong();
        play.settle(&mut daemon);
        play.cross(if ipv6.is_some() { BOTH } else { V4 });
        play.learn(Some("203.0.113.10"), ipv6);
        play.settle(&mut daemon);
        match reason {
            None => assert_eq!(play.ready().ipv6.map(|ip| ip.to_string()).as_deref(), ipv6),
            Some(reason) => assert_eq!(play.failure().reason, reason),
        }
    }
}

#[test]
fn an_exit_node_without_ipv6_is_used_and_told_of() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let mut play = on(&mut daemon, &[PRIMARY, PINNED]);
    play.pong();
    play.settle(&mut daemon);
    play.cross(V4);
    play.learn(Some("203.0.113.10"), None);
    play.settle(&mut daemon);
    assert_eq!(play.ready().families, [Family::Ipv4]);
    assert!(play.warnings().contains(&Warning::NoIpv6));
}

#[test]
fn a_family_that_nobody_expects_is_warned_of_when_it_comes_through() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let mut play = on(&mut daemon, &[PRIMARY, PINNED]);
    play.pong();
    play.settle(&mut daemon);
    play.cross(BOTH);
    play.learn(Some("203.0.113.10"), Some("2001:db8:10::10"));
    play.settle(&mut daemon);
    assert!(play.warnings().contains(&Warning::FamilyUnverified));
}

#[test]
fn an_exit_node_whose_internet_side_is_dead_is_not_used() {
    let mut daemon = Daemon::running(&["exit-a", "exit-b"]);
    let mut play = on(&mut daemon, &[PRIMARY, FALLBACK]);
    for _ in 0..2 {
        play.pong();
        play.settle(&mut daemon);
        play.cross(NOTHING);
        play.learn(None, None);
        play.settle(&mut daemon);
    }
    assert_eq!(play.failure().reason, Reason::NoPacketsThrough);
    assert_eq!(play.failure().attempts.len(), 2);
}

#[test]
fn without_a_tun_device_and_without_a_proxy_nothing_is_touched() {
    let mut daemon = Daemon::running(&["exit-a"]);
    daemon.snapshot.status.tun = false;
    let play = on(&mut daemon, &[PRIMARY]);
    let failure = play.failure();
    assert_eq!((failure.reason, failure.exit_code), (Reason::TunMissing, 3));
    assert_eq!(
        failure.message,
        "tailscaled has no TUN device and no proxy; workload traffic would not use exit-a"
    );
    assert_eq!(play.acts(), ["connect", "remove state file", "failed tun-missing"]);
}

#[test]
fn with_a_proxy_the_proof_goes_through_it_and_the_posture_is_called_checked_not_held() {
    let mut daemon = Daemon::running(&["exit-a"]);
    daemon.snapshot.status.tun = false;
    let mut play = on(&mut daemon, &[PRIMARY, (env::SOCKS5_SERVER, "127.0.0.1:1055")]);
    play.pong();
    play.settle(&mut daemon);
    let path = play.wanted.iter().find_map(|effect| match effect {
        Effect::Check(_, question) => Some(question.path.clone()),
        _ => None,
    });
    assert!(matches!(path, Some(crate::path::Path::Socks5(_))), "{path:?}");
    play.cross(V4);
    play.learn(Some("203.0.113.10"), None);
    play.settle(&mut daemon);
    assert_eq!(play.ready().keeping, Keeping::CheckedNotHeld);
    assert!(play.warnings().contains(&Warning::CheckedNotHeld));
}

#[test]
fn a_name_that_is_not_there_fails_at_once_on_a_node_that_has_long_been_up() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let play = on(&mut daemon, &[(env::EXIT_NODE_PRIMARY, "exit-x")]);
    assert_eq!(play.failure().reason, Reason::ExitUnknown);
}

#[test]
fn fail_open_takes_the_normal_route_after_every_exit_node_has_failed_and_says_so() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let mut play = on(&mut daemon, &[PRIMARY, (env::EXIT_NODE_FAIL_OPEN, "true")]);
    play.pass(seconds(7));
    play.settle(&mut daemon);
    play.learn(Some("198.51.100.1"), None);
    play.settle(&mut daemon);
    assert!(play.ready().fail_open && play.ready().exit_node.is_none());
    assert!(play.warnings().contains(&Warning::FailOpen));
    assert!(!daemon.snapshot.prefs.names_exit_node());
}

#[test]
fn a_tailscaled_that_dies_in_between_is_met_again_from_the_start() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let mut play = on(&mut daemon, &[PRIMARY]);
    play.pong();
    play.settle(&mut daemon);
    play.hear(Event::Lost);
    play.settle(&mut daemon);
    play.cross(BOTH);
    play.learn(Some("203.0.113.10"), None);
    play.settle(&mut daemon);
    assert_eq!(play.ready().exit_node.as_deref(), Some("exit-a"));

    let mut play = on(&mut Daemon::running(&["exit-a"]), &[PRIMARY]);
    play.hear(Event::Lost);
    play.wanted.clear();
    play.pass(seconds(61));
    assert_eq!(play.failure().reason, Reason::DaemonLost);
}

#[test]
fn an_exit_node_that_goes_away_during_the_proof_is_not_recorded() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let mut play = on(&mut daemon, &[PRIMARY]);
    play.pong();
    play.settle(&mut daemon);
    daemon.snapshot.status.peers.clear();
    play.cross(BOTH);
    play.learn(Some("203.0.113.10"), None);
    play.settle(&mut daemon);
    assert_eq!(play.failure().reason, Reason::ExitNotTaken);
    assert!(play.failure().message.contains("no longer in the tailnet"), "{}", play.failure().message);
}

#[test]
fn a_node_without_an_exit_node_is_shut_before_one_is_looked_for() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let play = on(&mut daemon, &[PRIMARY]);
    let nowhere = format!("patch {}", login::NOWHERE);
    assert_eq!(play.acts(), ["connect", "remove state file", nowhere.as_str(), "ping nexit-a"]);
}

#[test]
fn a_state_file_that_cannot_be_written_fails_the_start() {
    let mut daemon = Daemon::behind(&["exit-a"]);
    let mut play = on(&mut daemon, &[PRIMARY]);
    play.cross(BOTH);
    play.learn(Some("203.0.113.10"), None);
    play.look(&daemon);
    play.hear(Event::StateFileWritten(Err("read-only file system".into())));
    assert_eq!(play.failure().reason, Reason::StateFile);
}

#[test]
fn a_signal_ends_the_start_without_a_state_file() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let mut play = on(&mut daemon, &[PRIMARY]);
    play.hear(Event::Interrupted);
    assert_eq!(play.failure().reason, Reason::Interrupted);
    assert_eq!(play.acts().last(), Some(&"failed interrupted"));
}

#[test]
fn a_short_deadline_is_shared_among_the_exit_nodes() {
    let mut daemon = Daemon::running(&["exit-a", "exit-b", "exit-c"]);
    let variables = [PRIMARY, (env::EXIT_NODE_FALLBACKS, "exit-b,exit-c"), (env::WAIT_SECONDS, "6")];
    let mut play = on(&mut daemon, &variables);
    play.pass(seconds(6));
    let pings: Vec<_> = play.acts().into_iter().filter(|act| act.starts_with("ping")).collect();
    assert_eq!(pings, ["ping nexit-a", "ping nexit-b", "ping nexit-c"]);
    assert_eq!(play.failure().attempts.len(), 3);
}

#[test]
fn late_answers_to_given_up_questions_change_nothing() {
    let mut daemon = Daemon::running(&["exit-a", "exit-b"]);
    let mut play = on(&mut daemon, &[PRIMARY, FALLBACK]);
    play.pong();
    play.settle(&mut daemon);
    let Some(Effect::Cross(old, _)) = play.wanted.iter().find(|e| matches!(e, Effect::Cross(..))) else {
        panic!("{:?}", play.story)
    };
    let old = *old;
    play.pass(seconds(31));
    play.settle(&mut daemon);
    play.hear(Event::Crossed(old, super::play::crossing(BOTH)));
    play.hear(Event::Learned(old, super::play::learned(Some("203.0.113.10"), None)));
    play.settle(&mut daemon);
    assert!(play.outcome.is_none(), "{:?}", play.outcome);
    assert_eq!(play.acts().last(), Some(&"ping nexit-b"));
}
