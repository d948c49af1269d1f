//! Reaching tailscaled and logging in: the paths before the first exit node has its turn.

use super::*;

#[test]
fn a_first_login_logs_in_then_resolves_then_pings_then_selects_then_proves_then_records() {
    let mut daemon = Daemon::fresh();
    let mut play = on(&mut daemon, &[PRIMARY, PINNED]);
    let order = play.log_in(&mut daemon);
    assert!(order.use_key && order.force && order.prefs.want_running);
    assert_eq!(order.prefs.exit_node_id.as_str(), login::NOWHERE, "shut from the first network map on");
    play.settle(&mut daemon);
    daemon.join(&["exit-a", "exit-b"]);
    play.hear(Event::News(News::Changed));
    play.settle(&mut daemon);
    play.pong();
    play.settle(&mut daemon);
    play.cross(BOTH);
    play.learn(Some("203.0.113.10"), None);
    play.settle(&mut daemon);
    let expected = [
        "connect",
        "remove state file",
        "login with key anew",
        "ping nexit-a",
        "patch nexit-a",
        "probe",
        "check",
        "write state file",
        "ready",
    ];
    assert_eq!(play.acts(), expected);
    let ready = play.ready();
    assert_eq!(ready.posture, Posture::Pinned);
    assert_eq!(ready.exit_node.as_deref(), Some("exit-a"));
    assert_eq!(ready.keeping, Keeping::ByRoutes);
    assert_eq!(ready.hostname, "worker");
}

#[test]
fn a_name_that_is_not_there_yet_after_a_login_is_waited_for_a_little() {
    let mut daemon = Daemon::fresh();
    let mut play = on(&mut daemon, &[PRIMARY]);
    play.log_in(&mut daemon);
    daemon.join(&[]);
    play.settle(&mut daemon);
    play.pass(seconds(1));
    daemon.join(&["exit-a"]);
    play.hear(Event::News(News::Changed));
    play.settle(&mut daemon);
    assert!(play.acts().contains(&"ping nexit-a"), "{:?}", play.acts());

    let mut daemon = Daemon::fresh();
    let mut play = on(&mut daemon, &[PRIMARY]);
    play.log_in(&mut daemon);
    daemon.join(&[]);
    play.settle(&mut daemon);
    play.pass(seconds(4));
    assert_eq!(play.failure().reason, Reason::ExitUnknown);
}

#[test]
fn fail_open_does_not_open_for_a_login_that_fails() {
    let mut daemon = Daemon::fresh();
    let mut play = on(&mut daemon, &[PRIMARY, (env::EXIT_NODE_FAIL_OPEN, "true")]);
    play.log_in(&mut daemon);
    play.hear(Event::News(News::Error("invalid key: API key does not exist".into())));
    assert_eq!(play.failure().reason, Reason::KeyRejected);
}

#[test]
fn a_refused_key_fails_at_once_and_tailscaled_stops_asking() {
    for (text, reason) in [
        ("invalid key: unable to validate API key", Reason::KeyRejected),
        ("invalid key: single-use key has already been used", Reason::KeyUsed),
        ("authkey expired", Reason::KeyExpired),
        ("requested tags [tag:exit] are invalid or not permitted", Reason::TagsRefused),
        ("tailnet is full", Reason::LoginRefused),
    ] {
        let mut daemon = Daemon::fresh();
        let mut play = on(&mut daemon, &[PRIMARY]);
        play.log_in(&mut daemon);
        play.hear(Event::News(News::Error(text.into())));
        assert_eq!((play.failure().reason, play.failure().exit_code), (reason, 4), "{text}");
        assert!(play.acts().contains(&"stand down"), "{:?}", play.acts());
    }
}

#[test]
fn a_refused_new_key_does_not_stop_a_node_that_was_up() {
    let mut daemon = Daemon::behind(&["exit-a"]);
    daemon.snapshot.status.this_node.tags = vec!["tag:old".into()];
    let mut play = on(&mut daemon, &[PRIMARY, (env::ADVERTISE_TAGS, "tag:new")]);
    let order = play.log_in(&mut daemon);
    assert!(order.force && order.use_key);
    assert_eq!(order.prefs.exit_node_id.as_str(), "nexit-a", "the exit node is carried over");
    play.hear(Event::News(News::Error("invalid key: API key does not exist".into())));
    assert_eq!(play.failure().reason, Reason::KeyRejected);
    assert!(!play.acts().contains(&"stand down"));
}

#[test]
fn a_node_with_new_tags_is_not_taken_for_new_before_its_poll_has_ended_and_begun_again() {
    let mut daemon = Daemon::behind(&["exit-a"]);
    daemon.snapshot.status.this_node.tags = vec!["tag:old".into()];
    let mut play = on(&mut daemon, &[PRIMARY, (env::ADVERTISE_TAGS, "tag:new")]);
    play.log_in(&mut daemon);
    daemon.snapshot.status.this_node.tags = vec!["tag:new".into()];
    play.settle(&mut daemon);
    assert!(!play.acts().contains(&"probe"), "the old network map is still in force");
    daemon.snapshot.status.this_node.online = false;
    play.hear(Event::News(News::Changed));
    play.settle(&mut daemon);
    daemon.snapshot.status.this_node.online = true;
    play.hear(Event::News(News::Changed));
    play.settle(&mut daemon);
    assert!(play.acts().contains(&"probe"), "{:?}", play.acts());
    assert!(
        play.acts().iter().all(|act| !act.starts_with("patch")),
        "the exit route stays: {:?}",
        play.acts()
    );
}

#[test]
fn a_login_without_a_key_is_refused_before_anything_is_changed() {
    let mut daemon = Daemon::fresh();
    let mut play = Play::new(&[PRIMARY], KeyGiven::No);
    play.settle(&mut daemon);
    assert_eq!(play.failure().reason, Reason::KeyMissing);
    assert!(play.acts().iter().all(|act| !act.starts_with("login")));
}

#[test]
fn a_control_server_that_does_not_answer_is_named_when_the_time_is_up() {
    let mut daemon = Daemon::fresh();
    let mut play = on(&mut daemon, &[PRIMARY, (env::LOGIN_SERVER, "http://10.77.0.1:8080")]);
    play.log_in(&mut daemon);
    play.hear(Event::News(News::Complaint("fetch control key: connection refused".into())));
    play.settle(&mut daemon);
    play.pass(seconds(59));
    assert!(play.outcome.is_none());
    play.pass(seconds(2));
    let failure = play.failure();
    assert_eq!(
        (failure.reason, failure.exit_code, failure.step),
        (Reason::ControlUnreachable, 4, Step::Login)
    );
    assert!(failure.message.contains("http://10.77.0.1:8080"), "{}", failure.message);
    assert!(failure.message.contains("connection refused"), "{}", failure.message);
    assert!(
        failure.message.ends_with("TS_WAIT_SECONDS=60 was used up while logging in"),
        "{}",
        failure.message
    );
}

#[test]
fn a_control_server_that_comes_back_late_is_waited_for() {
    let mut daemon = Daemon::fresh();
    let mut play = on(&mut daemon, &[PRIMARY]);
    play.log_in(&mut daemon);
    play.settle(&mut daemon);
    play.pass(seconds(40));
    daemon.join(&["exit-a"]);
    play.hear(Event::News(News::Changed));
    play.settle(&mut daemon);
    play.pong();
    play.settle(&mut daemon);
    play.cross(BOTH);
    play.learn(Some("203.0.113.10"), None);
    play.settle(&mut daemon);
    assert_eq!(play.ready().exit_node.as_deref(), Some("exit-a"));
}

#[test]
fn after_an_outage_of_the_control_server_an_exit_node_has_time_to_come_back_too() {
    for (outage, answers_after, ready) in [(40, 15, true), (0, 15, false)] {
        let mut daemon = Daemon::fresh();
        let mut play = on(&mut daemon, &[PRIMARY]);
        play.log_in(&mut daemon);
        play.settle(&mut daemon);
        play.pass(seconds(outage));
        daemon.join(&["exit-a"]);
        daemon.peer_mut("exit-a").online = false;
        play.hear(Event::News(News::Changed));
        play.settle(&mut daemon);
        play.pass(seconds(answers_after));
        assert_eq!(play.outcome.is_none(), ready, "{:?}", play.outcome);
    }
}

#[test]
fn a_node_that_nobody_approved_is_called_that() {
    let mut daemon = Daemon::fresh();
    let mut play = on(&mut daemon, &[PRIMARY]);
    play.log_in(&mut daemon);
    daemon.snapshot.status.backend_state = BackendState::NeedsMachineAuth;
    play.settle(&mut daemon);
    play.hear(Event::News(News::Changed));
    play.settle(&mut daemon);
    play.pass(seconds(61));
    assert_eq!(play.failure().reason, Reason::ApprovalPending);
    let waits = play
        .notices
        .iter()
        .any(|notice| matches!(notice, Notice::Waiting { message, .. } if message.contains("approval")));
    assert!(waits, "{:?}", play.notices);
}

#[test]
fn a_socket_that_never_comes_and_one_that_stays_silent_have_their_own_words() {
    let missing = Unreached::Missing("/alloc/tailscale/tailscaled.sock".into());
    for (how, reason) in [
        (missing, Reason::SocketMissing),
        (Unreached::Silent("nobody answers on /x".into()), Reason::DaemonSilent),
    ] {
        let mut play = Play::new(&[PRIMARY], KeyGiven::Yes);
        play.hear(Event::Unreached(how));
        assert!(play.acts().contains(&"remove state file"), "nobody holds the posture");
        play.pass(seconds(61));
        assert_eq!((play.failure().reason, play.failure().exit_code), (reason, 3));
    }
}

#[test]
fn a_socket_that_refuses_us_is_not_waited_for_long() {
    let mut play = Play::new(&[PRIMARY], KeyGiven::Yes);
    play.hear(Event::Unreached(Unreached::NotPermitted("may not open /x".into())));
    play.pass(seconds(1));
    assert!(play.outcome.is_none());
    play.pass(seconds(2));
    assert_eq!(play.failure().reason, Reason::DaemonNotPermitted);
}

#[test]
fn a_valid_node_key_makes_the_auth_key_superfluous() {
    let mut daemon = Daemon::behind(&["exit-a"]);
    let mut play = Play::new(&[PRIMARY], KeyGiven::No);
    play.settle(&mut daemon);
    play.cross(BOTH);
    play.learn(Some("203.0.113.10"), None);
    play.settle(&mut daemon);
    assert!(play.ready().exit_node.is_some());
    assert!(play.acts().iter().all(|act| !act.starts_with("login")));
}

#[test]
fn a_node_that_was_stopped_starts_again_without_the_key_and_shut() {
    let mut daemon = Daemon::running(&["exit-a"]);
    daemon.snapshot.prefs.want_running = false;
    daemon.snapshot.status.backend_state = BackendState::Stopped;
    let mut play = on(&mut daemon, &[PRIMARY]);
    let order = play.log_in(&mut daemon);
    assert!(!order.use_key && !order.force);
    assert_eq!(order.prefs.exit_node_id.as_str(), login::NOWHERE);
}

#[test]
fn a_daemon_on_its_way_whose_own_key_turns_out_expired_logs_in_with_the_auth_key() {
    let mut daemon = Daemon::behind(&["exit-a"]);
    daemon.snapshot.status.backend_state = BackendState::NoState;
    daemon.snapshot.status.this_node.id = StableId::default();
    let mut play = on(&mut daemon, &[PRIMARY]);
    assert_eq!(play.acts(), ["connect"]);
    daemon.snapshot.status.backend_state = BackendState::NeedsLogin;
    play.hear(Event::News(News::Changed));
    play.settle(&mut daemon);
    assert!(play.acts().contains(&"login with key anew"), "{:?}", play.acts());
}

#[test]
fn tags_that_control_does_not_grant_are_not_waited_for_to_the_end() {
    let mut daemon = Daemon::fresh();
    let mut play = on(&mut daemon, &[PRIMARY, (env::ADVERTISE_TAGS, "tag:worker")]);
    play.log_in(&mut daemon);
    daemon.join(&["exit-a"]);
    play.settle(&mut daemon);
    play.pass(seconds(6));
    assert_eq!(play.failure().reason, Reason::TagsRefused);
}

#[test]
fn another_hostname_is_set_without_a_login() {
    let mut daemon = Daemon::behind(&["exit-a"]);
    let play = on(&mut daemon, &[PRIMARY, (env::HOSTNAME, "renamed")]);
    assert!(play.acts().contains(&"patch settings"), "{:?}", play.acts());
    assert!(play.acts().iter().all(|act| !act.starts_with("login")));
    assert_eq!(daemon.snapshot.prefs.hostname, "renamed");
}

#[test]
fn a_prefs_change_that_tailscaled_refuses_ends_the_start() {
    let mut daemon = Daemon::running(&["exit-a"]);
    let mut play = Play::new(&[PRIMARY], KeyGiven::Yes);
    play.look(&daemon);
    let Some(Effect::Patch(ticket, _)) = play.wanted.iter().rev().find(|e| matches!(e, Effect::Patch(..)))
    else {
        panic!("{:?}", play.story)
    };
    let refusal = DaemonRefusal { reason: Reason::DaemonRefused, message: "config file is locked".into() };
    play.hear(Event::Patched(*ticket, Err(refusal)));
    assert_eq!(play.failure().reason, Reason::DaemonRefused);
    play.settle(&mut daemon);
}
