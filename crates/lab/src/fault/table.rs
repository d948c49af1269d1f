//! The table of faults.

use super::Parameter::{Delay, Jitter, Link, Online, Percent, Rate, Text};
use super::{Kind, Target};

const fn kind(name: &'static str, target: Target, effect: &'static str, undo: &'static str) -> Kind {
    Kind { name, target, takes: &[], effect, undo, headscale: true }
}

const fn taking(takes: &'static [super::Parameter], kind: Kind) -> Kind {
    Kind { takes, ..kind }
}

const fn own_only(kind: Kind) -> Kind {
    Kind { headscale: false, ..kind }
}

/// All faults, in the order in which they are listed.
pub const TABLE: &[Kind] = &[
    kind("exit-killed", Target::Peer, "SIGKILL to its tailscaled", "starts it again with what it kept"),
    kind("exit-stopped", Target::Peer, "SIGSTOP to its tailscaled", "SIGCONT"),
    kind("exit-cut", Target::Peer, "drops every packet on all its links, silently", "lets them pass again"),
    kind(
        "exit-uplink-cut",
        Target::Exit,
        "drops every packet on its Internet side (w0)",
        "lets them pass again",
    ),
    kind("exit-no-ipv6", Target::Exit, "takes its public IPv6 address and route away", "gives them back"),
    kind(
        "exit-deleted",
        Target::Peer,
        "deletes its node at the control server",
        "joins again as a new node of that name",
    ),
    kind("exit-unapproved", Target::Exit, "withdraws the approval of its exit routes", "approves them"),
    kind("exit-expired", Target::Peer, "expires its node key at the control server", "renews the key"),
    kind(
        "exit-replaced",
        Target::Peer,
        "deletes its node; a new machine joins under its name (new id, new addresses)",
        "nothing: the new machine stays",
    ),
    kind(
        "policy-no-internet",
        Target::Lab,
        "a policy without autogroup:internet: exits are hidden from the worker",
        "the policy of before",
    ),
    kind(
        "control-down",
        Target::Lab,
        "SIGKILL to the control server, DERP and STUN",
        "starts it with what it kept",
    ),
    own_only(taking(
        &[Delay],
        kind("control-slow", Target::Lab, "delays its answers (2 s)", "answers at once"),
    )),
    own_only(taking(
        &[Text],
        kind("control-refuses-key", Target::Lab, "refuses every auth key", "takes good keys again"),
    )),
    own_only(taking(
        &[Delay],
        kind("control-batches", Target::Lab, "holds news back from peers (800 ms)", "tells it at once"),
    )),
    own_only(taking(
        &[Delay],
        kind(
            "control-grace",
            Target::Lab,
            "calls lost nodes online for so long (60 s)",
            "the time of before",
        ),
    )),
    own_only(taking(
        &[Online],
        kind(
            "control-says-online",
            Target::Node,
            "tells that a node is online or not, or (without) nothing of it",
            "tells what it knows",
        ),
    )),
    kind("worker-killed", Target::Worker, "SIGKILL to its tailscaled", "starts it again with what it kept"),
    kind(
        "worker-terminated",
        Target::Worker,
        "SIGTERM to its tailscaled",
        "starts it again with what it kept",
    ),
    kind("worker-stopped", Target::Worker, "SIGSTOP to its tailscaled", "SIGCONT"),
    taking(
        &[Delay],
        kind(
            "worker-restarted",
            Target::Worker,
            "SIGTERM, a pause (1 s), and a start with what it kept",
            "nothing: it runs",
        ),
    ),
    kind("worker-logged-out", Target::Worker, "logs its node out", "logs in again with the worker's key"),
    kind("worker-down", Target::Worker, "as `tailscale down`: WantRunning is false", "WantRunning is true"),
    kind(
        "worker-pref-cleared",
        Target::Worker,
        "another client clears the exit node preference",
        "sets the exit node of before",
    ),
    kind("worker-expired", Target::Worker, "expires its node key at the control server", "renews the key"),
    taking(
        &[Link, Delay, Jitter],
        kind("link-latency", Target::Host, "delays packets each way (50 ms), with jitter (0)", "no delay"),
    ),
    taking(
        &[Link, Percent],
        kind("link-loss", Target::Host, "loses a share of packets each way (10)", "loses none"),
    ),
    taking(&[Link, Rate], kind("link-rate", Target::Host, "limits the rate each way (1 Mbit/s)", "no limit")),
    kind(
        "dns-lying",
        Target::Lab,
        "the resolver answers every A and AAAA with an address of nobody",
        "answers honestly",
    ),
    kind("dns-silent", Target::Lab, "the resolver takes queries and does not answer", "answers"),
];
