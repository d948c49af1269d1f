//! Every fault of the lab, by its effect on the real daemons, and its end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

#[path = "support/lab.rs"]
mod support;

use support::{CENTRAL, EAST, EAST_ADDRESS, Lab, UPLINK_ADDRESS, raise, text, wait_for};

/// How long a real daemon may take to come round.
const SOON: Duration = Duration::from_secs(30);

/// Which test shows which fault. The table of faults itself is checked against this.
const SHOWN: &[&str] = &[
    "exit-killed",
    "exit-stopped",
    "exit-cut",
    "exit-uplink-cut",
    "exit-no-ipv6",
    "exit-deleted",
    "exit-unapproved",
    "exit-expired",
    "exit-replaced",
    "policy-no-internet",
    "control-down",
    "control-slow",
    "control-refuses-key",
    "control-batches",
    "control-grace",
    "control-says-online",
    "worker-killed",
    "worker-terminated",
    "worker-stopped",
    "worker-restarted",
    "worker-logged-out",
    "worker-down",
    "worker-pref-cleared",
    "worker-expired",
    "link-latency",
    "link-loss",
    "link-rate",
    "dns-lying",
    "dns-silent",
];

/// A lab whose worker is behind the first exit node.
fn behind_east() -> Option<Lab> {
    let lab = raise()?;
    let guarded = lab.guard(&[("TS_EXIT_NODE_PRIMARY", EAST)]);
    assert_eq!(guarded.code, 0, "{}", guarded.said());
    assert_eq!(lab.seen().as_deref(), Ok(EAST_ADDRESS));
    Some(lab)
}

fn is_seen_as(lab: &Lab, address: &str) {
    wait_for(&format!("the world sees {address}"), SOON, || lab.seen().as_deref() == Ok(address));
}

fn goes_nowhere(lab: &Lab) {
    wait_for("nothing passes", SOON, || lab.seen().is_err());
    assert_eq!(lab.leaks(), 0, "it was to go nowhere, and leaked: {}", lab.status()["uplink"]);
}

/// Blackhole, and back by undoing.
fn blackholes(fault: &[&str]) {
    let Some(lab) = behind_east() else { return };
    lab.fault(fault);
    goes_nowhere(&lab);
    lab.undo(fault);
    is_seen_as(&lab, EAST_ADDRESS);
}

/// Leaks, both counters see it, and after undoing it goes by the exit node again: the proof that the counters see leaks.
fn leaks(fault: &[&str]) {
    let Some(lab) = behind_east() else { return };
    assert_eq!(lab.leaks(), 0, "{}", lab.status()["uplink"]);
    lab.fault(fault);
    is_seen_as(&lab, UPLINK_ADDRESS);
    assert!(lab.leaks() > 0, "the world saw the worker's own address, and no counter did");
    lab.undo(fault);
    is_seen_as(&lab, EAST_ADDRESS);
}

fn peer(lab: &Lab, name: &str) -> serde_json::Value {
    let status = lab.tailscale(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
    let peers = status["Peer"].as_object().cloned().unwrap_or_default();
    let named = |peer: &&serde_json::Value| {
        peer["DNSName"].as_str().is_some_and(|dns| dns.split('.').next() == Some(name))
    };
    peers.values().find(named).cloned().unwrap_or_default()
}

fn took(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[test]
fn every_fault_that_there_is_is_shown_by_a_test() {
    let list = std::process::Command::new(support::SALLYPORT).args(["lab", "fault", "--list"]).output();
    let list = text(&list.expect("it starts").stdout);
    let faults: BTreeSet<&str> =
        list.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(faults, SHOWN.iter().copied().collect(), "lab fault --list on the left");
    let source = include_str!("lab_faults.rs");
    let tests = source.split_once("fn took(").expect("the tests follow").1;
    for fault in SHOWN {
        assert!(tests.contains(&format!("\"{fault}\"")), "no test does {fault}");
    }
}

#[test]
fn an_unknown_fault_or_host_is_refused_and_nothing_is_done() {
    let Some(lab) = raise() else { return };
    for words in [
        &["fault", "exit-melted", EAST][..],
        &["fault", "exit-killed", "worker"],
        &["fault", "exit-killed", "nobody"],
    ] {
        let output = lab.command(words).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
    }
    assert_eq!(lab.status()["faults"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_killed_exit_is_silent_at_once_and_called_offline_later() {
    let Some(lab) = behind_east() else { return };
    lab.fault(&["control-grace", "--delay", "1s"]);
    lab.fault(&["exit-killed", EAST]);
    goes_nowhere(&lab);
    wait_for("control calls it offline", SOON, || peer(&lab, EAST)["Online"] == false);
    lab.undo(&["exit-killed", EAST]);
    is_seen_as(&lab, EAST_ADDRESS);
    lab.undo(&["control-grace"]);
}

#[test]
fn a_stopped_exit_is_silent_and_control_goes_on_calling_it_online() {
    let Some(lab) = behind_east() else { return };
    lab.fault(&["exit-stopped", EAST]);
    goes_nowhere(&lab);
    assert_eq!(peer(&lab, EAST)["Online"], true);
    lab.undo(&["exit-stopped", EAST]);
    is_seen_as(&lab, EAST_ADDRESS);
}

#[test]
fn an_exit_cut_on_every_link_is_silent() {
    blackholes(&["exit-cut", EAST]);
}

#[test]
fn an_exit_without_its_internet_side_answers_pings_and_passes_nothing() {
    let Some(lab) = behind_east() else { return };
    lab.fault(&["exit-uplink-cut", EAST]);
    goes_nowhere(&lab);
    // The path may have gone by the side that is cut; tailscaled finds the other one when it no longer trusts it.
    wait_for("it answers a ping", SOON, || {
        text(&lab.tailscale(&["ping", "--c=1", "--timeout=2s", EAST]).stdout).contains("pong")
    });
    lab.undo(&["exit-uplink-cut", EAST]);
    is_seen_as(&lab, EAST_ADDRESS);
}

#[test]
fn an_exit_without_ipv6_passes_ipv4_alone() {
    let Some(lab) = behind_east() else { return };
    let ipv6 = || lab.asks("http://[2001:db8:203::9]/");
    wait_for("IPv6 by the exit", SOON, || ipv6().as_deref() == Ok("2001:db8:10::10"));
    lab.fault(&["exit-no-ipv6", EAST]);
    wait_for("no IPv6", SOON, || ipv6().is_err());
    assert_eq!(lab.seen().as_deref(), Ok(EAST_ADDRESS));
    lab.undo(&["exit-no-ipv6", EAST]);
    wait_for("IPv6 again", SOON, || ipv6().as_deref() == Ok("2001:db8:10::10"));
}

#[test]
fn a_deleted_exit_is_gone_from_the_tailnet_and_comes_back_as_another() {
    let Some(lab) = behind_east() else { return };
    let before = peer(&lab, EAST)["ID"].clone();
    lab.fault(&["exit-deleted", EAST]);
    goes_nowhere(&lab);
    wait_for("it is gone", SOON, || peer(&lab, EAST).is_null());
    lab.undo(&["exit-deleted", EAST]);
    wait_for("there is one of its name", SOON, || !peer(&lab, EAST).is_null());
    assert_ne!(peer(&lab, EAST)["ID"], before);
    // The preference names the old one: no name is followed by itself.
    assert!(lab.seen().is_err());
}

#[test]
fn an_exit_that_is_no_longer_approved_passes_nothing() {
    let Some(lab) = behind_east() else { return };
    lab.fault(&["exit-unapproved", EAST]);
    goes_nowhere(&lab);
    wait_for("it offers nothing", SOON, || peer(&lab, EAST)["ExitNodeOption"] != true);
    lab.undo(&["exit-unapproved", EAST]);
    is_seen_as(&lab, EAST_ADDRESS);
}

#[test]
fn an_exit_whose_key_expired_passes_nothing() {
    blackholes(&["exit-expired", EAST]);
}

#[test]
fn a_replaced_exit_is_followed_by_its_name_and_never_by_its_id() {
    let Some(lab) = behind_east() else { return };
    let id = peer(&lab, EAST)["ID"].as_str().expect("an id").to_owned();
    lab.fault(&["exit-replaced", EAST]);
    wait_for("another has the name", SOON, || {
        peer(&lab, EAST)["ID"].as_str().is_some_and(|other| other != id)
    });
    goes_nowhere(&lab);
    let by_id = lab.guard(&[("TS_EXIT_NODE_PRIMARY", &format!("id:{id}")), ("TS_WAIT_SECONDS", "8")]);
    assert_eq!((by_id.code, by_id.reason()), (5, "exit-unknown"), "{}", by_id.said());
    let by_name = lab.guard(&[("TS_EXIT_NODE_PRIMARY", EAST)]);
    assert_eq!(by_name.code, 0, "{}", by_name.said());
    is_seen_as(&lab, EAST_ADDRESS);
}

#[test]
fn a_policy_without_the_internet_hides_every_exit() {
    let Some(lab) = behind_east() else { return };
    lab.fault(&["policy-no-internet"]);
    goes_nowhere(&lab);
    for exit in [EAST, CENTRAL] {
        assert_ne!(peer(&lab, exit)["ExitNodeOption"], true, "{exit}");
    }
    lab.undo(&["policy-no-internet"]);
    is_seen_as(&lab, EAST_ADDRESS);
}

#[test]
fn without_its_control_server_a_path_that_stands_goes_on() {
    let Some(lab) = behind_east() else { return };
    lab.fault(&["control-down"]);
    assert_eq!(lab.seen().as_deref(), Ok(EAST_ADDRESS));
    lab.undo(&["control-down"]);
    wait_for("the nodes are known again", SOON, || lab.host(EAST)["node"]["online"] == true);
    assert_eq!(lab.seen().as_deref(), Ok(EAST_ADDRESS));
}

#[test]
fn a_slow_control_server_slows_a_login_down() {
    let Some(lab) = raise() else { return };
    lab.fault(&["control-slow", "--delay", "1s"]);
    let slow = took(|| assert_eq!(lab.guard(&[]).code, 0));
    assert!(slow > Duration::from_secs(1), "{slow:?}");
    lab.verb(&["reset"]);
    let prompt = took(|| assert_eq!(lab.guard(&[]).code, 0));
    assert!(prompt < slow, "{prompt:?}, and {slow:?} with the fault");
}

#[test]
fn a_control_server_refuses_keys_in_the_words_it_is_given() {
    let Some(lab) = raise() else { return };
    lab.fault(&["control-refuses-key", "--text", "authkey expired"]);
    let refused = lab.guard(&[]);
    assert_eq!((refused.code, refused.reason()), (4, "key-expired"), "{}", refused.said());
    lab.undo(&["control-refuses-key"]);
    let taken = lab.guard(&[]);
    assert_eq!(taken.code, 0, "{}", taken.said());
}

#[test]
fn news_held_back_stall_the_first_packet_of_who_does_not_ping_first() {
    let Some(lab) = raise() else { return };
    lab.fault(&["control-batches", "--delay", "800ms"]);
    let key = lab.verb(&["key"]);
    let login = format!("--auth-key={key}");
    let up = lab.tailscale(&["up", &login, "--login-server=http://10.77.0.1:8080", "--accept-dns=false"]);
    assert!(up.status.success(), "{}", text(&up.stderr));
    assert!(lab.tailscale(&["set", "--exit-node", EAST]).status.success());
    let stalled = took(|| is_seen_as(&lab, EAST_ADDRESS));
    lab.verb(&["reset"]);
    lab.fault(&["control-batches", "--delay", "800ms"]);
    let guarded = lab.guard(&[("TS_EXIT_NODE_PRIMARY", EAST)]);
    assert_eq!(guarded.code, 0, "{}", guarded.said());
    let prompt = took(|| is_seen_as(&lab, EAST_ADDRESS));
    assert!(prompt < stalled, "{prompt:?} after the guard, {stalled:?} without");
}

#[test]
fn control_can_be_made_to_say_that_a_node_is_offline() {
    let Some(lab) = behind_east() else { return };
    lab.fault(&["control-says-online", EAST, "--online", "false"]);
    wait_for("it is called offline", SOON, || peer(&lab, EAST)["Online"] != true);
    assert_eq!(lab.seen().as_deref(), Ok(EAST_ADDRESS), "packets pass all the same");
    lab.undo(&["control-says-online", EAST]);
    wait_for("it is called online", SOON, || peer(&lab, EAST)["Online"] == true);
}

#[test]
fn unguarded_a_worker_whose_tailscaled_is_killed_leaks() {
    leaks(&["worker-killed"]);
}

#[test]
fn unguarded_a_worker_whose_tailscaled_is_terminated_leaks() {
    leaks(&["worker-terminated"]);
}

#[test]
fn a_worker_whose_tailscaled_is_stopped_goes_nowhere() {
    blackholes(&["worker-stopped"]);
}

#[test]
fn a_restarted_tailscaled_finds_its_exit_node_again() {
    let Some(lab) = behind_east() else { return };
    lab.fault(&["worker-restarted", "--delay", "200ms"]);
    is_seen_as(&lab, EAST_ADDRESS);
}

#[test]
fn unguarded_a_worker_that_is_logged_out_leaks() {
    leaks(&["worker-logged-out"]);
}

#[test]
fn unguarded_a_worker_that_is_told_down_leaks() {
    leaks(&["worker-down"]);
}

#[test]
fn unguarded_a_worker_whose_preference_is_cleared_leaks() {
    leaks(&["worker-pref-cleared"]);
}

#[test]
fn unguarded_a_worker_whose_key_expires_leaks() {
    leaks(&["worker-expired"]);
}

#[test]
fn a_delayed_link_takes_its_time_both_ways_and_loses_nothing() {
    let Some(lab) = behind_east() else { return };
    let ask = || took(|| assert_eq!(lab.seen().as_deref(), Ok(EAST_ADDRESS)));
    let prompt = ask();
    lab.fault(&["link-latency", "worker", "--delay", "60ms", "--jitter", "5ms"]);
    let delayed = ask();
    // A TCP connection and an answer: two round trips of 120 ms at least.
    assert!(delayed > prompt + Duration::from_millis(200), "{prompt:?}, then {delayed:?}");
    let huge = lab.worker(&[
        "curl",
        "-sS",
        "--max-time",
        "20",
        "-o",
        "/dev/null",
        "-w",
        "%{size_download}",
        "http://203.0.113.9:8009/",
    ]);
    let bytes: u64 = text(&huge.stdout).parse().expect("a size");
    assert!(bytes >= 1_000_000, "{bytes} bytes of a megabyte came");
    lab.fault(&["link-latency", EAST, "--link", "w0", "--delay", "20ms"]);
    assert_eq!(lab.seen().as_deref(), Ok(EAST_ADDRESS));
    lab.undo(&["link-latency", EAST, "--link", "w0"]);
    lab.undo(&["link-latency", "worker"]);
    wait_for("it is prompt again", SOON, || ask() < prompt + Duration::from_millis(100));
    assert_eq!(lab.leaks(), 0);
}

#[test]
fn a_lossy_link_loses_its_share() {
    let Some(lab) = raise() else { return };
    lab.fault(&["link-loss", "worker", "--percent", "100"]);
    assert!(lab.seen().is_err());
    lab.undo(&["link-loss", "worker"]);
    is_seen_as(&lab, UPLINK_ADDRESS);
}

#[test]
fn a_link_with_a_rate_is_as_slow_as_that() {
    let Some(lab) = raise() else { return };
    let download = || {
        took(|| {
            let got = lab.worker(&[
                "curl",
                "-sS",
                "--max-time",
                "30",
                "-o",
                "/dev/null",
                "http://203.0.113.9:8009/",
            ]);
            assert!(got.status.success(), "{}", text(&got.stderr));
        })
    };
    let free = download();
    lab.fault(&["link-rate", "worker", "--rate", "4000"]);
    let limited = download();
    // A megabyte, less the bucket, at half a megabyte a second.
    assert!(limited > Duration::from_millis(1200) && limited > free * 2, "{free:?}, then {limited:?}");
    lab.undo(&["link-rate", "worker"]);
    wait_for("it is fast again", SOON, || download() < limited / 2);
}

#[test]
fn a_lying_resolver_misleads_and_a_silent_one_leaves_names_unknown() {
    let Some(lab) = raise() else { return };
    let ask = || lab.asks("http://echo4.lab.example/");
    assert_eq!(ask().as_deref(), Ok(UPLINK_ADDRESS));
    lab.fault(&["dns-lying"]);
    assert!(ask().is_err(), "nobody is where the lie leads");
    let lie = text(&lab.worker(&["getent", "ahostsv4", "echo4.lab.example"]).stdout);
    assert!(lie.contains("192.0.2.66"), "{lie}");
    lab.undo(&["dns-lying"]);
    assert_eq!(ask().as_deref(), Ok(UPLINK_ADDRESS));
    lab.fault(&["dns-silent"]);
    assert!(ask().is_err());
    lab.undo(&["dns-silent"]);
    assert_eq!(ask().as_deref(), Ok(UPLINK_ADDRESS));
}
