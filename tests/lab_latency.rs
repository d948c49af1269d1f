//! A delayed link of a lab: a round trip takes twice the delay more, at the underlay and at an exit's own link, and when
//! the delay ends every link is where it was.

use std::collections::BTreeMap;

use serde_json::Value;

#[path = "support/lab.rs"]
mod support;

use support::{EAST, Lab, raise, text};

/// The shortest of some round trips from a host, in milliseconds.
fn round_trip(lab: &Lab, host: &str, to: &str) -> f64 {
    let mut command = lab.command(&["run", "--host", host]);
    let output = command.args(["--", "ping", "-c8", "-i0.1", "-W5", to]).output().expect("it starts");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    let times = said.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok());
    times.min_by(f64::total_cmp).expect("answers")
}

/// The links of the fake Internet: name, and bridge of which it is a port.
fn links(lab: &Lab) -> BTreeMap<String, String> {
    let mut command = lab.command(&["run", "--host", "internet"]);
    let output = command.args(["--", "ip", "-json", "link", "show"]).output().expect("it starts");
    let links: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let links = links.as_array().expect("links").iter();
    links.map(|link| (word(&link["ifname"]), word(&link["master"]))).collect()
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures are of use")]
fn a_round_trip_takes_twice_the_delay_more_until_the_delay_ends() {
    let Some(lab) = raise() else { return };
    for (host, link, to) in [("worker", "u0", "10.77.0.254"), (EAST, "w0", "203.0.113.9")] {
        let (before, prompt) = (links(&lab), round_trip(&lab, host, to));
        for delay in [15.0, 40.0] {
            let words = ["link-latency", host, "--link", link];
            lab.fault(&[&words[..], &["--delay", &format!("{delay}ms")]].concat());
            let delayed = round_trip(&lab, host, to);
            let rise = delayed - prompt;
            eprintln!(
                "{host} {link}: {prompt:.2} ms, {delayed:.2} ms with {delay} ms each way: {rise:.2} ms more"
            );
            assert!(
                (2.0 * delay - 2.0..=2.0 * delay + 5.0).contains(&rise),
                "{rise} ms for twice {delay} ms"
            );
            assert_ne!(links(&lab), before, "the relay has links of its own");
            lab.undo(&words);
            assert_eq!(links(&lab), before, "each link is where it was, and none is left over");
            let again = round_trip(&lab, host, to);
            assert!(again < prompt + 5.0, "{again} ms, {prompt} ms before");
        }
    }
    assert!(lab.leaks() > 0, "the worker's pings went by its uplink, and were seen there");
}

/// Whether pings from a host come back. Then datagrams from it arrive, and if not, none has.
fn passes(lab: &Lab, host: &str) -> bool {
    let arrived = || lab.status()["internet"]["sink"]["foreign"].as_u64().expect("a count");
    let before = arrived();
    let mut command = lab.command(&["run", "--host", host]);
    let script = "printf x >/dev/udp/203.0.113.9/9999; exec ping -c1 -W1 203.0.113.9";
    let passes = command.args(["--", "bash", "-c", script]).output().expect("it starts").status.success();
    let after = arrived();
    assert_eq!(after - before, u64::from(passes), "a datagram by a link that passes pings: {passes}");
    passes
}

#[test]
fn a_delayed_packet_is_forwarded_once() {
    let Some(lab) = raise() else { return };
    for (host, link) in [("worker", "u0"), (EAST, "w0")] {
        lab.fault(&["link-latency", host, "--link", link, "--delay", "5ms"]);
        let mut command = lab.command(&["run", "--host", host]);
        let output = command.args(["--", "ping", "-c5", "-i0.1", "-W5", "203.0.113.9"]).output();
        let said = text(&output.expect("it starts").stdout);
        assert!(said.contains("5 received") && !said.contains("duplicates"), "{host}: {said}");
        lab.undo(&["link-latency", host, "--link", link]);
    }
}

#[test]
fn a_link_that_is_cut_or_lossy_is_so_while_it_is_delayed_whichever_came_first() {
    let Some(lab) = raise() else { return };
    let delay = |lab: &Lab| lab.fault(&["link-latency", EAST, "--link", "w0", "--delay", "5ms"]);
    let cut = |lab: &Lab| lab.fault(&["exit-cut", EAST]);
    let undo_delay = |lab: &Lab| lab.undo(&["link-latency", EAST, "--link", "w0"]);
    let undo_cut = |lab: &Lab| lab.undo(&["exit-cut", EAST]);
    for steps in [
        [(true, &delay as &dyn Fn(&Lab)), (false, &cut), (false, &undo_delay), (true, &undo_cut)],
        [(false, &cut), (false, &delay), (true, &undo_cut), (true, &undo_delay)],
        [(false, &cut), (false, &delay), (false, &undo_delay), (true, &undo_cut)],
        [(true, &delay), (false, &cut), (true, &undo_cut), (true, &undo_delay)],
    ] {
        for (number, (passing, step)) in steps.into_iter().enumerate() {
            step(&lab);
            assert_eq!(passes(&lab, EAST), passing, "after step {number}: {}", lab.status()["faults"]);
        }
    }
}
