//! From a named exit node to the nodes that are tried for it, or the reason why there is none. The rules of names are
//! `sallyport_tailnet::exit_node`'s; here are the guard's words for their outcome.

use std::net::IpAddr;

use sallyport_tailnet::exit_node::{resolve, short_name};
use sallyport_tailnet::{ExitNodeArg, PeerStatus, ResolveError, StableId, Status};

use crate::events::Attempt;
use crate::machine::Snapshot;
use crate::reason::Reason;

/// Most nodes that `auto:any` tries in a round: a tailnet with a commercial provider has hundreds.
const MAX_AUTO: usize = 5;
/// Most nodes that are asked what they advertise, to tell approval from policy.
const MAX_ASKED: usize = 16;

/// An exit node to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// As it was named in the configuration.
    pub(crate) named: String,
    /// Its stable id.
    pub(crate) id: StableId,
    /// What the tailnet calls it.
    pub(crate) name: String,
    /// Where it is pinged.
    pub(crate) address: IpAddr,
    /// What the control server says of its connection: a hint, no proof.
    pub(crate) online: bool,
}

/// What a name means now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// These nodes, in order; more than one only for `auto:any`.
    Nodes(Vec<Candidate>),
    /// None, and why.
    Failed(Attempt, MoreNews),
}

/// Whether news from the control server could still make a name good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoreNews {
    /// The network map is not there: they have to come.
    WillCome,
    /// They could: a node may be on its way, or be approved.
    MayHelp,
    /// They could not.
    WillNotHelp,
}

/// Finds the nodes that a name stands for.
pub(crate) fn find(snapshot: &Snapshot, arg: &ExitNodeArg) -> Found {
    let status = &snapshot.status;
    if *arg == ExitNodeArg::Auto {
        return find_any(snapshot, arg);
    }
    match resolve(status, arg, None) {
        Ok(node) => match status.peer(&node.id).and_then(|peer| candidate(arg, peer, status)) {
            Some(candidate) => Found::Nodes(vec![candidate]),
            None => {
                let message = format!("{arg} has no tailnet address");
                failed(arg, Reason::ExitUnknown, message, MoreNews::MayHelp)
            }
        },
        Err(error) => explain(snapshot, arg, &error),
    }
}

/// Those called online first, the suggested one first among them, then by name.
fn find_any(snapshot: &Snapshot, arg: &ExitNodeArg) -> Found {
    let status = &snapshot.status;
    let offering = status.peers.values().filter(|peer| peer.exit_node_option && !peer.expired);
    let mut nodes: Vec<_> = offering.filter_map(|peer| candidate(arg, peer, status)).collect();
    nodes.sort_by(|a, b| {
        let rank = |node: &Candidate| (!node.online, snapshot.suggested.as_ref() != Some(&node.id));
        rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name))
    });
    nodes.truncate(MAX_AUTO);
    if !nodes.is_empty() {
        return Found::Nodes(nodes);
    }
    match resolve(status, arg, None) {
        Err(error @ ResolveError::StillStarting { .. }) => explain(snapshot, arg, &error),
        Ok(_) | Err(_) => {
            let message = "no node of the tailnet offers itself to this one as an exit node".to_owned();
            failed(arg, Reason::ExitNoneOffered, message, MoreNews::MayHelp)
        }
    }
}

fn candidate(arg: &ExitNodeArg, peer: &PeerStatus, status: &Status) -> Option<Candidate> {
    Some(Candidate {
        named: arg.to_string(),
        id: peer.id.clone(),
        name: short_name(peer, &status.magic_dns_suffix),
        address: *peer.tailscale_ips.first()?,
        online: peer.online,
    })
}

fn explain(snapshot: &Snapshot, arg: &ExitNodeArg, error: &ResolveError) -> Found {
    let message = error.to_string();
    match error {
        ResolveError::StillStarting { .. } => failed(arg, Reason::NotRunning, message, MoreNews::WillCome),
        ResolveError::NotFound { .. } => failed(arg, Reason::ExitUnknown, message, MoreNews::MayHelp),
        ResolveError::Ambiguous { .. } => failed(arg, Reason::ExitAmbiguous, message, MoreNews::WillNotHelp),
        ResolveError::Expired { .. } => failed(arg, Reason::ExitExpired, message, MoreNews::WillNotHelp),
        ResolveError::IsSelf { .. } => failed(arg, Reason::ExitIsSelf, message, MoreNews::WillNotHelp),
        ResolveError::NotOffering { id, name } => {
            let (reason, message) = not_offering(snapshot, id, name);
            failed(arg, reason, message, MoreNews::MayHelp)
        }
    }
}

/// Tells the three ways of not offering apart, as far as the control server lets one see: the hosted one does not show
/// what others advertise.
fn not_offering(snapshot: &Snapshot, id: &StableId, name: &str) -> (Reason, String) {
    let advertising = snapshot.advertising.as_deref().unwrap_or_default();
    let some_offer = snapshot.status.peers.values().any(|peer| peer.exit_node_option);
    match (advertising.contains(id), some_offer) {
        (true, true) => (
            Reason::ExitNotApproved,
            format!("{name} advertises itself as an exit node, and nobody has approved it"),
        ),
        (true, false) if advertising.len() > 1 => (
            Reason::ExitHiddenByPolicy,
            format!(
                "{name} advertises itself as an exit node, and neither it nor any other is offered to this node: the \
                 policy does not grant it autogroup:internet"
            ),
        ),
        (true, false) => (
            Reason::ExitNotApproved,
            format!(
                "{name} advertises itself as an exit node, and nobody has approved it, or the policy does not grant this \
                 node autogroup:internet"
            ),
        ),
        (false, _) => (
            Reason::ExitNotOffering,
            format!(
                "{name} does not offer itself to this node as an exit node: it does not advertise that, or (where the \
                 control server does not show it) nobody has approved it, or the policy does not grant this node \
                 autogroup:internet"
            ),
        ),
    }
}

/// The nodes worth asking what they advertise: none unless some configured one exists and does not offer itself; then
/// that one, and others that do not offer themselves either.
pub(crate) fn worth_asking(status: &Status, args: &[ExitNodeArg]) -> Vec<(StableId, IpAddr)> {
    let silent = |arg: &ExitNodeArg| match resolve(status, arg, None) {
        Err(ResolveError::NotOffering { id, .. }) => Some(id),
        Ok(_) | Err(_) => None,
    };
    let named: Vec<_> = args.iter().filter_map(silent).collect();
    if named.is_empty() {
        return Vec::new();
    }
    let mut peers: Vec<_> = status.peers.values().filter(|peer| !peer.exit_node_option).collect();
    peers.sort_by_key(|peer| (!named.contains(&peer.id), peer.id.clone()));
    let asked = peers.into_iter().filter_map(|peer| Some((peer.id.clone(), *peer.tailscale_ips.first()?)));
    asked.take(MAX_ASKED).collect()
}

fn failed(arg: &ExitNodeArg, reason: Reason, message: String, news: MoreNews) -> Found {
    Found::Failed(Attempt { exit_node: arg.to_string(), reason, message }, news)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::play::Daemon;

    fn reason_of(daemon: &Daemon, text: &str) -> (Reason, String) {
        match find(&daemon.snapshot, &text.parse().expect("an argument")) {
            Found::Failed(attempt, _) => (attempt.reason, attempt.message),
            Found::Nodes(nodes) => panic!("{nodes:?}"),
        }
    }

    #[test]
    fn an_unknown_name_lists_what_there_is_and_whether_it_is_online() {
        let mut daemon = Daemon::running(&["exit-a", "exit-b"]);
        daemon.peer_mut("exit-b").online = false;
        let (reason, message) = reason_of(&daemon, "exit-x");
        assert_eq!(reason, Reason::ExitUnknown);
        assert!(message.contains("exit-a (online), exit-b (offline)"), "{message}");
    }

    #[test]
    fn the_other_ways_to_fail_have_their_own_words() {
        let mut daemon = Daemon::running(&["exit-a", "exit-b"]);
        assert_eq!(reason_of(&daemon, "worker").0, Reason::ExitIsSelf);
        daemon.peer_mut("exit-a").expired = true;
        assert_eq!(reason_of(&daemon, "exit-a").0, Reason::ExitExpired);
        daemon.peer_mut("exit-b").dns_name = "exit-a.tail1234.ts.net.".into();
        let (reason, message) = reason_of(&daemon, "exit-a");
        assert_eq!(reason, Reason::ExitAmbiguous);
        assert!(message.contains("id:nexit-a") && message.contains("id:nexit-b"), "{message}");
        assert_eq!(reason_of(&Daemon::running(&[]), "auto:any").0, Reason::ExitNoneOffered);
    }

    #[test]
    fn not_advertised_not_approved_and_hidden_by_policy_are_told_apart_where_that_can_be_seen() {
        let mut daemon = Daemon::running(&["exit-a", "exit-b"]);
        daemon.peer_mut("exit-a").exit_node_option = false;
        assert_eq!(reason_of(&daemon, "exit-a").0, Reason::ExitNotOffering);
        daemon.snapshot.advertising = Some(vec![StableId::new("nexit-a")]);
        assert_eq!(reason_of(&daemon, "exit-a").0, Reason::ExitNotApproved);
        daemon.peer_mut("exit-b").exit_node_option = false;
        let (reason, message) = reason_of(&daemon, "exit-a");
        assert_eq!(reason, Reason::ExitNotApproved, "one alone says nothing of the policy");
        assert!(message.contains("autogroup:internet"), "{message}");
        daemon.snapshot.advertising = Some(vec![StableId::new("nexit-a"), StableId::new("nexit-b")]);
        assert_eq!(reason_of(&daemon, "exit-a").0, Reason::ExitHiddenByPolicy);
    }

    #[test]
    fn nobody_is_asked_what_they_advertise_unless_a_named_node_does_not_offer_itself() {
        let mut daemon = Daemon::running(&["exit-a", "exit-b", "app"]);
        daemon.peer_mut("app").exit_node_option = false;
        let args = ["exit-a".parse().expect("an argument")];
        assert!(worth_asking(&daemon.snapshot.status, &args).is_empty());
        daemon.peer_mut("exit-a").exit_node_option = false;
        let asked = worth_asking(&daemon.snapshot.status, &args);
        let ids: Vec<_> = asked.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["nexit-a", "napp"]);
    }

    #[test]
    fn without_a_network_map_names_mean_nothing_yet() {
        let mut daemon = Daemon::running(&[]);
        daemon.snapshot.status.backend_state = sallyport_tailnet::BackendState::Starting;
        let found = find(&daemon.snapshot, &"exit-a".parse().expect("an argument"));
        assert!(matches!(found, Found::Failed(_, MoreNews::WillCome)), "{found:?}");
    }
}
