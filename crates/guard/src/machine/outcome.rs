//! How a start ends, in words: what was established, or which step failed and why.

use std::path::Path;

use sallyport_tailnet::BackendState;
use sallyport_tailnet::exit_node::short_name;

use super::{LoggingIn, Proof, Sent, Snapshot, Unreached, Work, judge};
use crate::address::Family;
use crate::env::{Config, KillSwitch};
use crate::events::{Attempt, Keeping, Ready};
use crate::exit_node::Candidate;
use crate::reason::Reason;

/// What was established.
pub(super) fn ready(config: &Config, snapshot: &Snapshot, work: &Work, proof: &Proof) -> Ready {
    let status = &snapshot.status;
    let candidate = match work {
        Work::Exit(candidate) => Some(candidate),
        Work::Normal | Work::FailOpen | Work::Name(_) => None,
    };
    let keeping = match (candidate.is_some(), status.tun) {
        (false, _) => Keeping::Nothing,
        (true, true) => Keeping::ByRoutes,
        (true, false) => Keeping::CheckedNotHeld,
    };
    let kill_switch = match config.kill_switch {
        KillSwitch::Off => "off",
        KillSwitch::Auto | KillSwitch::On => "none",
    };
    Ready {
        posture: config.posture,
        exit_node: candidate.map(|candidate| candidate.name.clone()),
        exit_node_id: candidate.map(|candidate| candidate.id.to_string()),
        ipv4: judge::seen(proof, Family::Ipv4),
        ipv6: judge::seen(proof, Family::Ipv6),
        families: if candidate.is_some() { judge::families_through(proof) } else { Vec::new() },
        hostname: short_name(&status.this_node, &status.magic_dns_suffix),
        tags: status.this_node.tags.clone(),
        keeping,
        kill_switch,
        localapi: snapshot.exposure.word(),
        fail_open: matches!(work, Work::FailOpen),
    }
}

/// The reason of a round in which every exit node failed: that of the one that got furthest, the first of these.
pub(super) fn of_round(attempts: &[Attempt]) -> (Reason, String) {
    let furthest = attempts.iter().rev().max_by_key(|attempt| how_far(attempt.reason));
    match (furthest, attempts) {
        (None, _) => (Reason::ExitNoneOffered, "no exit node could be tried".to_owned()),
        (Some(_), [only]) => (only.reason, only.message.clone()),
        (Some(furthest), several) => {
            let each: Vec<_> = several.iter().map(|a| format!("{}: {}", a.exit_node, a.message)).collect();
            (
                furthest.reason,
                format!("none of {} exit nodes could be used: {}", several.len(), each.join("; ")),
            )
        }
    }
}

fn how_far(reason: Reason) -> u8 {
    match reason {
        Reason::AddressNotExpected | Reason::AddressNotLearned => 4,
        Reason::NoPacketsThrough | Reason::PathBypassesTailnet => 3,
        Reason::ExitNotTaken => 2,
        Reason::ExitOffline | Reason::ExitNoAnswer => 1,
        _ => 0,
    }
}

/// An exit node that answered no ping.
pub(super) fn silent(candidate: &Candidate) -> (Reason, String) {
    let name = &candidate.name;
    if candidate.online {
        (Reason::ExitNoAnswer, format!("{name} is reported online and answers no ping"))
    } else {
        (Reason::ExitOffline, format!("{name} is offline and answers no ping"))
    }
}

/// tailscaled was never reached, or not again.
pub(super) fn unreached(last: Option<&Unreached>, lost: bool, socket: &Path) -> (Reason, String) {
    let socket = socket.display();
    match last {
        _ if lost => (Reason::DaemonLost, "tailscaled went away and did not come back".to_owned()),
        None => (Reason::DaemonSilent, format!("nobody answered on {socket}")),
        Some(unreached @ Unreached::Missing(_)) => (Reason::SocketMissing, unreached.message()),
        Some(unreached @ Unreached::Silent(_)) => (Reason::DaemonSilent, unreached.message()),
        Some(unreached @ Unreached::NotPermitted(_)) => (Reason::DaemonNotPermitted, unreached.message()),
    }
}

/// The login did not come to its end in time.
pub(super) fn not_logged_in(
    config: &Config,
    snapshot: Option<&Snapshot>,
    login: &LoggingIn,
) -> (Reason, String) {
    let server = &config.login_server;
    let Some(snapshot) = snapshot else {
        return (Reason::DaemonSilent, "tailscaled does not answer".to_owned());
    };
    let status = &snapshot.status;
    if matches!(login.sent, Sent::UnderWay(_)) {
        return (Reason::DaemonSilent, "tailscaled does not answer the login".to_owned());
    }
    if let Some(text) = &login.refusal {
        return (Reason::LoginRefused, format!("the control server put the login off: {text}"));
    }
    if status.backend_state == BackendState::NeedsMachineAuth {
        return (Reason::ApprovalPending, format!("nobody approved this node at {server}"));
    }
    if !status.auth_url.is_empty() {
        return (Reason::LoginNeeded, format!("{server} wants somebody to log in at {}", status.auth_url));
    }
    let complaint = login.complaint.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    if status.this_node.expired {
        return (Reason::NodeKeyExpired, format!("this node's key has expired{complaint}"));
    }
    if judge::is_in(status) && judge::is_anew(login.why.as_ref(), status, true) {
        return (Reason::NotRunning, not_running(snapshot));
    }
    (Reason::ControlUnreachable, format!("the control server {server} does not answer{complaint}"))
}

/// The node is in the tailnet and does not get to `Running`.
pub(super) fn not_running(snapshot: &Snapshot) -> String {
    let mut message = format!("tailscaled stays in state {}", snapshot.status.backend_state);
    if !snapshot.status.health.is_empty() {
        message.push_str(": ");
        message.push_str(&snapshot.status.health.join("; "));
    }
    message
}
