//! The leak counter of a whole lab: proven able to see each kind of leak, then silent while real daemons talk.

use std::time::Duration;

use serde_json::Value;

#[path = "support/lab.rs"]
mod support;

use support::{EAST, EAST_ADDRESS, Lab, raise, text, wait_for};

/// How long a real daemon may take to come round.
const SOON: Duration = Duration::from_secs(30);

/// The last leaks in the capture's words, each kind once.
fn told(lab: &Lab) -> Vec<String> {
    let status = lab.status();
    let leaks = status["uplink"]["capture"]["leaks"].as_array().expect("leaks").clone();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let mut told: Vec<String> = leaks
        .iter()
        .map(|leak| {
            let what = &leak["what"];
            let place = what["destination"].as_str().expect("an address");
            match number(&what["protocol"]) {
                1 | 58 => format!("icmp to {place}"),
                6 => format!("tcp to {place} port {}", number(&what["destination_port"])),
                17 => format!("udp to {place} port {}", number(&what["destination_port"])),
                other => format!("protocol {other} to {place}"),
            }
        })
        .collect();
    told.sort();
    told.dedup();
    told
}

/// Packets of a class by the kernel's counter and by the capture's.
fn both(lab: &Lab, class: &str) -> (u64, u64) {
    let status = lab.status();
    let kernel = status["uplink"]["counters"][class]["packets"].as_u64();
    let capture = status["uplink"]["capture"]["packets"][class].as_u64();
    (kernel.unwrap_or_default(), capture.unwrap_or_default())
}

#[test]
fn whatever_a_worker_sends_to_the_world_by_its_uplink_is_seen_as_a_leak_and_told() {
    let Some(lab) = raise() else { return };
    assert_eq!(lab.leaks(), 0, "nothing runs yet: {}", lab.status()["uplink"]);
    for (what, script, seen) in [
        ("UDP", "printf x >/dev/udp/203.0.113.9/9999", "udp to 203.0.113.9 port 9999"),
        ("UDP over IPv6", "printf x >/dev/udp/2001:db8:203::9/9999", "udp to 2001:db8:203::9 port 9999"),
        ("DNS", "getent ahostsv4 echo4.lab.example", "udp to 203.0.113.53 port 53"),
        (
            "TCP to nobody",
            "timeout 1 bash -c 'printf x >/dev/tcp/192.0.2.1/81'; true",
            "tcp to 192.0.2.1 port 81",
        ),
        ("TCP", "curl -sS http://203.0.113.9/", "tcp to 203.0.113.9 port 80"),
        ("ICMP", "ping -c1 -W5 203.0.113.9", "icmp to 203.0.113.9"),
        ("ICMP over IPv6", "ping -c1 -W5 2001:db8:203::9", "icmp to 2001:db8:203::9"),
        // By the node's own tailscaled port, but to no node.
        ("UDP to the control server", "printf x >/dev/udp/10.77.0.1/41641", "udp to 10.77.0.1 port 41641"),
    ] {
        let before = lab.leaks();
        let output = lab.worker(&["bash", "-c", script]);
        assert!(output.status.success(), "{what}: {}", text(&output.stderr));
        assert!(lab.leaks() > before, "{what} left, and the counters did not see it");
        assert!(told(&lab).contains(&seen.to_string()), "{what} is not told: {:#?}", told(&lab));
    }
    assert_eq!(lab.status()["uplink"]["capture"]["dropped"], 0);
    lab.verb(&["reset"]);
    assert_eq!(lab.leaks(), 0, "as new: {}", lab.status()["uplink"]);
    assert_eq!(told(&lab), Vec::<String>::new());
}

#[test]
fn a_guarded_worker_that_is_busy_behind_its_exit_leaks_nothing_and_both_counters_see_the_tunnel() {
    let Some(lab) = raise() else { return };
    let guarded = lab.guard(&[("TS_EXIT_NODE_PRIMARY", EAST)]);
    assert_eq!(guarded.code, 0, "{}", guarded.said());
    // What leaked above would now go by the tunnel.
    for script in [
        "printf x >/dev/udp/203.0.113.9/9999",
        "getent ahostsv4 echo4.lab.example",
        "curl -sS http://203.0.113.9/",
        "curl -sS -o /dev/null http://203.0.113.9:8009/",
        "ping -c3 -i0.2 -W5 203.0.113.9",
    ] {
        let output = lab.worker(&["bash", "-c", script]);
        assert!(output.status.success(), "{script}: {}", text(&output.stderr));
    }
    assert_eq!(lab.seen().as_deref(), Ok(EAST_ADDRESS));
    assert!(
        lab.tailscale(&["ping", "--until-direct=false", "--c=1", "--timeout=5s", "app"]).status.success()
    );
    wait_for("both have counted control, STUN and tunnel", SOON, || {
        ["control", "stun", "peer"].iter().all(|class| {
            let (kernel, capture) = both(&lab, class);
            kernel > 0 && capture > 0
        })
    });
    assert_eq!(lab.leaks(), 0, "{:#?}", told(&lab));
    assert_eq!(lab.status()["uplink"]["capture"]["dropped"], 0);
    // The control: the same counters in the same lab do see one that does not go by the tunnel.
    let output = lab.worker(&["curl", "-sS", "--interface", "u0", "--max-time", "5", "http://203.0.113.9/"]);
    drop(output);
    assert!(lab.leaks() > 0, "a connection by the uplink itself was not seen");
}

#[test]
fn a_recording_to_standard_output_is_a_capture_file_and_nothing_else() {
    let Some(lab) = raise() else { return };
    let output = lab.command(&["capture", "--seconds", "1", "--output", "-"]).output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(output.stdout[..4], [0xd4, 0xc3, 0xb2, 0xa1], "a pcap file");
    let frames = text(&output.stderr);
    assert!(frames.ends_with("frames"), "how many is told beside: {frames}");
    let folder = lab.status()["dir"].as_str().expect("a folder").to_string();
    let left = std::fs::read_dir(format!("{folder}/captures")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "no file is left in the lab's folder");
}
