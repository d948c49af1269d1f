//! Network namespaces of a test's own, gone with it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::time::{Duration, Instant};

use sallyport_gate::{Namespace, sysctl};
use sallyport_lab::host::Place;

/// Whether this machine lets us make namespaces. Says loudly when it does not; in CI that is a failure.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn is_possible() -> bool {
    let Err(error) = Namespace::builder("probe").create() else { return true };
    assert!(std::env::var_os("CI").is_none(), "CI has to run this as root, it needs namespaces: {error:?}");
    eprintln!("SKIPPED: this test needs root for network namespaces: {error:?}");
    false
}

/// Whether the kernel of a place speaks IPv6 by itself: group reports, solicitations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ipv6 {
    On,
    Off,
}

/// A new namespace with its loopback up.
pub async fn place(label: &str, ipv6: Ipv6) -> Place {
    let namespace = Namespace::builder(label).create().expect("it was possible before");
    let off = if ipv6 == Ipv6::Off { "1" } else { "0" };
    let settings = [
        ("net.ipv6.conf.all.disable_ipv6", off),
        ("net.ipv6.conf.default.disable_ipv6", off),
        ("net.ipv6.conf.default.accept_dad", "0"),
    ];
    sysctl::write(&namespace, &settings).expect("settings of one's own namespace");
    let place = Place::settle(namespace).await.expect("a thread and a socket");
    place.links().up("lo").await.expect("up");
    place
}

/// Waits for a condition.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Duration::from_secs(20);
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < deadline, "not within {deadline:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
