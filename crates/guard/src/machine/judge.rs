//! What the things seen mean. Functions over plain data.

use sallyport_tailnet::exit_node::short_name;
use sallyport_tailnet::{BackendState, StableId, Status};

use super::{Proof, Snapshot, Work};
use crate::address::{Family, PerFamily, Verdict};
use crate::check::Learned;
use crate::env::Config;
use crate::exit_node::Candidate;
use crate::login::Why;
use crate::probe::Crossing;
use crate::reason::Reason;

/// Whether the node is in a tailnet and has its network map. Peers are known then, so pings need not wait for
/// `Running`.
pub(super) fn is_in(status: &Status) -> bool {
    let up = matches!(status.backend_state, BackendState::Starting | BackendState::Running);
    up && !status.this_node.id.is_empty() && !status.this_node.expired
}

/// Whether what is seen comes from after a login. A node that was in before keeps its old network map until the new
/// one is there; its poll of the control server ends in between, which is what tells the two apart.
pub(super) fn is_anew(why: Option<&Why>, status: &Status, saw_break: bool) -> bool {
    match why {
        None | Some(Why::Fresh | Why::LoggedOut | Why::Stopped) => true,
        Some(Why::KeyNoLongerGood | Why::OtherServer { .. } | Why::OtherTags { .. }) => {
            saw_break && status.this_node.online && status.backend_state == BackendState::Running
        }
    }
}

/// The exit node that is set, in words.
pub(super) fn shown_exit_node(snapshot: &Snapshot) -> String {
    let prefs = &snapshot.prefs;
    if let Some(peer) = snapshot.status.peer(&prefs.exit_node_id) {
        return format!("the exit node {}", short_name(peer, &snapshot.status.magic_dns_suffix));
    }
    match (&prefs.exit_node_ip, prefs.exit_node_id.is_empty()) {
        (_, false) => format!("the exit node id:{}", prefs.exit_node_id),
        (Some(address), true) => format!("the exit node {address}"),
        (None, true) => format!("the exit node auto:{}", prefs.auto_exit_node),
    }
}

/// Whether an exit node is selected and could carry traffic, as far as tailscaled tells: by its peer's entry, never
/// by `ExitNodeStatus`. `Online` is not asked.
///
/// # Errors
/// What is missing.
pub(super) fn holds(snapshot: &Snapshot, id: &StableId) -> Result<(), String> {
    let (status, prefs) = (&snapshot.status, &snapshot.prefs);
    if status.backend_state != BackendState::Running {
        return Err(format!("tailscaled is in state {}", status.backend_state));
    }
    if status.this_node.expired {
        return Err("this node's key has expired".to_owned());
    }
    if !prefs.want_running {
        return Err("tailscaled was told to stop".to_owned());
    }
    if prefs.exit_node_id != *id || !prefs.auto_exit_node.is_empty() {
        return Err(format!("tailscaled has {} set instead", shown_exit_node(snapshot)));
    }
    if prefs.exit_node_allow_lan_access {
        return Err("the machine's own networks go past the exit node".to_owned());
    }
    let Some(peer) = status.peer(id) else {
        return Err(format!("the exit node id:{id} is no longer in the tailnet"));
    };
    let name = short_name(peer, &status.magic_dns_suffix);
    if peer.expired {
        return Err(format!("the key of {name} has expired"));
    }
    if !peer.exit_node_option {
        return Err(format!("{name} no longer offers itself as an exit node"));
    }
    if !peer.exit_node {
        return Err(format!("tailscaled does not show {name} as its exit node yet"));
    }
    Ok(())
}

/// Whether tailscaled is as the work wants it.
pub(super) fn is_established(snapshot: &Snapshot, work: &Work) -> Result<(), String> {
    match work {
        Work::Exit(candidate) => holds(snapshot, &candidate.id),
        Work::Normal | Work::FailOpen => {
            let state = &snapshot.status.backend_state;
            if *state != BackendState::Running {
                return Err(format!("tailscaled is in state {state}"));
            }
            if snapshot.prefs.names_exit_node() {
                return Err(format!("tailscaled has {} set", shown_exit_node(snapshot)));
            }
            Ok(())
        }
        Work::Name(arg) => Err(format!("{arg} is not found yet")),
    }
}

/// What the proof says so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// Something is still missing.
    Wait,
    /// It holds.
    Proved,
    /// It does not.
    Failed(Reason, String),
}

/// The families by which packets came through.
pub(super) fn families_through(proof: &Proof) -> Vec<Family> {
    let through = |family: Family| {
        let crossed = proof.crossed.as_ref().and_then(|crossed| crossed.of(family).as_ref());
        crossed.is_some_and(Crossing::is_through) || seen(proof, family).is_some()
    };
    Family::BOTH.into_iter().filter(|family| through(*family)).collect()
}

/// The address of a family that a service told.
pub(super) fn seen(proof: &Proof, family: Family) -> Option<std::net::IpAddr> {
    let learned = proof.learned.as_ref()?.of(family).as_ref()?;
    learned.seen.as_ref().map(|sighting| sighting.address)
}

/// Judges the proof of an exit node: packets come through, and each family of which something is expected has an
/// expected address.
pub(super) fn exit_proof(config: &Config, candidate: &Candidate, proof: &Proof) -> Judged {
    if let Some(message) = bypass(proof) {
        return Judged::Failed(Reason::PathBypassesTailnet, message);
    }
    let verdict = proof.learned.as_ref().map(|learned| judge_addresses(config, learned, &candidate.name));
    if let Some(Err((Reason::AddressNotExpected, message))) = &verdict {
        return Judged::Failed(Reason::AddressNotExpected, message.clone());
    }
    let through = !families_through(proof).is_empty();
    match (verdict, proof.crossed.is_some(), through) {
        (None, _, _) | (Some(_), false, false) => Judged::Wait,
        (Some(Err((reason, message))), _, true) => Judged::Failed(reason, message),
        (Some(Ok(())), _, true) => Judged::Proved,
        (Some(_), true, false) => nothing_through(candidate, proof),
    }
}

/// Judges the proof of the normal route, which nobody probes: only expected addresses count.
pub(super) fn normal_proof(config: &Config, proof: &Proof) -> Judged {
    match &proof.learned {
        None => Judged::Wait,
        Some(learned) => match judge_addresses(config, learned, "the normal route") {
            Ok(()) => Judged::Proved,
            Err((reason, message)) => Judged::Failed(reason, message),
        },
    }
}

/// Judges what is there when the time is up.
pub(super) fn unproved(config: &Config, work: &Work, proof: &Proof) -> (Reason, String) {
    let whole = Proof {
        crossed: proof.crossed.clone().or(Some(PerFamily { ipv4: None, ipv6: None })),
        learned: proof.learned.clone().or(Some(PerFamily { ipv4: None, ipv6: None })),
        ..proof.clone()
    };
    let judged = match work {
        Work::Exit(candidate) => exit_proof(config, candidate, &whole),
        Work::Normal | Work::FailOpen | Work::Name(_) => normal_proof(config, &whole),
    };
    match judged {
        Judged::Failed(reason, message) => (reason, message),
        Judged::Wait | Judged::Proved => {
            (Reason::AddressNotLearned, "no service told the public address in time".to_owned())
        }
    }
}

fn nothing_through(candidate: &Candidate, proof: &Proof) -> Judged {
    let name = &candidate.name;
    if !proof.ponged && candidate.online {
        let message = format!("{name} is selected, answers no ping and lets no packet through");
        return Judged::Failed(Reason::ExitNoAnswer, message);
    }
    if !proof.ponged {
        let message = format!("{name} is selected, is offline and lets no packet through");
        return Judged::Failed(Reason::ExitOffline, message);
    }
    let mut message = format!("{name} answers, and no packet comes through it");
    for (family, crossing) in proof.crossed.iter().flat_map(PerFamily::iter) {
        if let Some(Crossing::Failed { message: why }) = crossing {
            message.push_str(&format!("; {family}: {why}"));
        }
    }
    Judged::Failed(Reason::NoPacketsThrough, message)
}

fn bypass(proof: &Proof) -> Option<String> {
    let crossings = proof.crossed.iter().flat_map(PerFamily::iter);
    for (_, crossing) in crossings {
        if let Some(Crossing::Bypass { message }) = crossing {
            return Some(message.clone());
        }
    }
    let learned = proof.learned.iter().flat_map(PerFamily::iter).filter_map(|(_, learned)| learned.as_ref());
    let misses = learned.flat_map(|learned| &learned.misses);
    misses.filter(|miss| miss.bypass).map(|miss| miss.message.clone()).next()
}

/// Each family of which something is expected must have an expected address. A foreign one outweighs one that was not
/// learned.
fn judge_addresses(
    config: &Config,
    learned: &PerFamily<Option<Learned>>,
    by: &str,
) -> Result<(), (Reason, String)> {
    let mut foreign = Vec::new();
    let mut unknown = Vec::new();
    for (family, learned) in learned.iter() {
        let sighting = learned.as_ref().and_then(|learned| learned.seen.as_ref());
        match config.expected.judge(family, sighting.map(|sighting| sighting.address)) {
            Verdict::NotAsked | Verdict::Expected => {}
            Verdict::Foreign => {
                let sighting = sighting.map(|s| format!("{} (told by {})", s.address, s.service));
                foreign.push(sighting.unwrap_or_default());
            }
            Verdict::NotLearned => unknown.push((family, learned)),
        }
    }
    if !foreign.is_empty() {
        let message = format!(
            "by {by} the world sees {}, which is not among the expected {}",
            foreign.join(" and "),
            config.expected
        );
        return Err((Reason::AddressNotExpected, message));
    }
    let Some((family, learned)) = unknown.first() else { return Ok(()) };
    let misses = learned.iter().flat_map(|learned| &learned.misses);
    let misses: Vec<_> = misses.map(|miss| format!("{}: {}", miss.service, miss.message)).collect();
    let why = if misses.is_empty() { "nothing came in time".to_owned() } else { misses.join("; ") };
    Err((Reason::AddressNotLearned, format!("by {by} no service told the {family} address: {why}")))
}
