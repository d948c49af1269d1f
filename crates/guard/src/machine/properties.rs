//! The machine's promises, hunted with random worlds and with plain noise.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use sallyport_tailnet::{MaskedPrefs, StableId};

use super::play::{Daemon, Play, crossing, learned};
use super::*;
use crate::address::{Family, PerFamily};
use crate::check::Learned;
use crate::env;
use crate::events::Ready;

const NAMES: [&str; 4] = ["exit-a", "exit-b", "exit-c", "exit-d"];

/// What one exit node is like.
#[derive(Clone, Debug)]
struct Nature {
    exists: bool,
    offers: bool,
    online: bool,
    expired: bool,
    answers: bool,
    /// Whether tailscaled shows it as selected after a change.
    taken: bool,
    /// Whether it goes away between proof and record.
    leaves: bool,
    through: bool,
    address: Option<&'static str>,
}

fn nature() -> impl Strategy<Value = Nature> {
    let mostly = || prop::bool::weighted(0.8);
    let address = prop_oneof![Just(None), Just(Some("203.0.113.10")), Just(Some("203.0.113.99"))];
    (
        mostly(),
        mostly(),
        any::<bool>(),
        prop::bool::weighted(0.1),
        mostly(),
        mostly(),
        mostly(),
        mostly(),
        address,
    )
        .prop_map(|(exists, offers, online, expired, answers, taken, stays, through, address)| Nature {
            exists,
            offers,
            online,
            expired,
            answers,
            taken,
            leaves: !stays,
            through,
            address,
        })
}

/// A world: exit nodes, a configuration, and what else goes wrong.
#[derive(Clone, Debug)]
struct World {
    natures: Vec<Nature>,
    configured: Vec<usize>,
    pinned: bool,
    fail_open: bool,
    fresh: bool,
    selected_before: Option<usize>,
    key_is_good: bool,
    state_file_is_writable: bool,
    /// Milliseconds between one answer and the next.
    pace: u64,
    /// When tailscaled dies, counted in events; it comes back.
    dies_at: Option<usize>,
}

fn world() -> impl Strategy<Value = World> {
    let natures = prop::collection::vec(nature(), NAMES.len());
    let configured = prop::collection::vec(0..NAMES.len(), 0..6);
    let died = prop_oneof![3 => Just(None), 1 => (0..40usize).prop_map(Some)];
    (
        natures,
        configured,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop_oneof![Just(None), (0..NAMES.len()).prop_map(Some)],
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.9),
        prop_oneof![Just(1), Just(20), Just(900), Just(5000)],
        died,
    )
        .prop_map(|(natures, configured, pinned, open, fresh, before, key, file, pace, dies_at)| World {
            natures,
            configured,
            pinned,
            fail_open: open && !pinned,
            fresh,
            selected_before: before,
            key_is_good: key,
            state_file_is_writable: file,
            pace,
            dies_at,
        })
}

impl World {
    fn variables(&self) -> Vec<(&'static str, String)> {
        let names: Vec<_> = self.configured.iter().map(|index| NAMES[*index]).collect();
        let mut variables = Vec::new();
        if let Some((primary, fallbacks)) = names.split_first() {
            variables.push((env::EXIT_NODE_PRIMARY, (*primary).to_owned()));
            variables.push((env::EXIT_NODE_FALLBACKS, fallbacks.join(",")));
        }
        if self.pinned {
            variables.push((env::EGRESS_EXPECTED_IPS, "203.0.113.10".to_owned()));
        }
        if self.fail_open {
            variables.push((env::EXIT_NODE_FAIL_OPEN, "true".to_owned()));
        }
        variables
    }

    fn join(&self, daemon: &mut Daemon) {
        let there: Vec<_> = (0..NAMES.len()).filter(|i| self.natures[*i].exists).collect();
        let names: Vec<_> = there.iter().map(|i| NAMES[*i]).collect();
        daemon.join(&names);
        for index in there {
            let nature = &self.natures[index];
            let peer = daemon.peer_mut(NAMES[index]);
            peer.exit_node_option = nature.offers;
            peer.online = nature.online;
            peer.expired = nature.expired;
        }
    }

    fn daemon(&self) -> Daemon {
        if self.fresh {
            return Daemon::fresh();
        }
        let mut daemon = Daemon::running(&[]);
        self.join(&mut daemon);
        if let Some(index) = self.selected_before {
            daemon.select(&StableId::new(format!("n{}", NAMES[index])));
        }
        daemon
    }

    fn nature(&self, id: &StableId) -> Option<&Nature> {
        let index = NAMES.iter().position(|name| format!("n{name}") == id.as_str())?;
        self.natures[index].exists.then(|| &self.natures[index])
    }
}

/// Plays a world to its end and checks the promises on the way.
struct Stage {
    world: World,
    daemon: Daemon,
    play: Play,
    /// Patches of exit nodes since the daemon was last met.
    selected: Vec<StableId>,
    file: bool,
    proved: Option<(bool, PerFamily<Option<Learned>>)>,
}

fn run(world: World) -> Result<(), TestCaseError> {
    let variables = world.variables();
    let borrowed: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let play = Play::new(&borrowed, KeyGiven::Yes);
    let daemon = world.daemon();
    let mut stage = Stage { world, daemon, play, selected: Vec::new(), file: true, proved: None };
    for count in 0..4000 {
        if stage.play.outcome.is_some() {
            return stage.ended();
        }
        if stage.world.dies_at == Some(count) {
            // Requests under way die with it; what is done on the spot is done.
            while let Some(index) = stage.play.wanted.iter().position(is_done_on_the_spot) {
                let effect = stage.play.wanted.remove(index);
                stage.perform(effect)?;
            }
            stage.play.wanted.clear();
            stage.selected.clear();
            stage.proved = None;
            stage.play.hear(Event::Lost);
        }
        stage.act()?;
    }
    Err(TestCaseError::fail("it never ends"))
}

impl Stage {
    /// Performs the oldest effect, or lets time pass.
    fn act(&mut self) -> Result<(), TestCaseError> {
        self.play.pass(Duration::from_millis(self.world.pace));
        if self.play.wanted.is_empty() || self.play.outcome.is_some() {
            self.play.pass(Duration::from_secs(1));
            return Ok(());
        }
        let effect = self.play.wanted.remove(0);
        self.perform(effect)
    }

    fn perform(&mut self, effect: Effect) -> Result<(), TestCaseError> {
        match effect {
            Effect::Connect(ticket) | Effect::Read(ticket) => {
                self.play.hear(Event::Seen(ticket, Box::new(self.daemon.snapshot.clone())));
            }
            Effect::Login(ticket, order) => {
                prop_assert!(!self.file, "a login before the state file is gone");
                self.daemon.snapshot.prefs = *order.prefs;
                self.play.hear(Event::LoginSent(ticket, Ok(())));
                if self.world.key_is_good || !order.use_key {
                    self.world.join(&mut self.daemon);
                    let id = self.daemon.snapshot.prefs.exit_node_id.clone();
                    self.daemon.select(&id);
                    self.play.hear(Event::News(News::Changed));
                } else {
                    self.play.hear(Event::News(News::Error("invalid key".into())));
                }
            }
            Effect::Patch(ticket, change) => self.patch(ticket, &change)?,
            Effect::StandDown => self.daemon.snapshot.prefs.want_running = false,
            Effect::Ping { id, .. } => {
                if self.world.nature(&id).is_some_and(|nature| nature.answers) {
                    self.play.hear(Event::Ponged { id, round_trip: Duration::ZERO, via: "DERP(lab)".into() });
                }
            }
            Effect::Cross(ticket, _) => {
                let through = self.behind().is_some_and(|nature| nature.through);
                let families: &[Family] = if through { &[Family::Ipv4] } else { &[] };
                self.play.hear(Event::Crossed(ticket, crossing(families)));
            }
            Effect::Check(ticket, _) => {
                let address = match self.behind() {
                    Some(nature) if nature.through => nature.address,
                    Some(_) => None,
                    None => Some("198.51.100.1"),
                };
                let through = self.behind().is_none_or(|nature| nature.through);
                self.proved = Some((through, learned(address, None)));
                self.play.hear(Event::Learned(ticket, learned(address, None)));
                if self.behind().is_some_and(|nature| nature.leaves) {
                    let id = self.daemon.snapshot.prefs.exit_node_id.clone();
                    self.daemon.snapshot.status.peers.retain(|_, peer| peer.id != id);
                }
            }
            Effect::WriteStateFile(ready) => {
                self.may_be_recorded(&ready)?;
                let written = self.world.state_file_is_writable;
                self.file = written;
                let result = if written { Ok(()) } else { Err("no space".into()) };
                self.play.hear(Event::StateFileWritten(result));
            }
            Effect::RemoveStateFile => self.file = false,
            Effect::Abandon | Effect::Tell(_) | Effect::Finish(_) => {}
        }
        Ok(())
    }

    /// The nature of the node behind which traffic goes now.
    fn behind(&self) -> Option<&Nature> {
        self.world.nature(&self.daemon.snapshot.prefs.exit_node_id)
    }

    fn patch(&mut self, ticket: Ticket, change: &MaskedPrefs) -> Result<(), TestCaseError> {
        prop_assert!(!self.file, "a change before the state file is gone");
        let value = serde_json::to_value(change).expect("a change is JSON");
        let id = value.get("ExitNodeID").and_then(|id| id.as_str()).map(StableId::new);
        if let Some(id) = &id {
            prop_assert!(!id.is_empty() || self.world.fail_open, "the exit node was cleared");
            if let Some(nature) = self.world.nature(id) {
                prop_assert!(nature.answers, "a silent node was selected");
                prop_assert!(!self.selected.contains(id), "selected twice in a round");
                self.selected.push(id.clone());
            }
        }
        self.daemon.patch(change);
        if id.as_ref().and_then(|id| self.world.nature(id)).is_some_and(|nature| !nature.taken) {
            for peer in self.daemon.snapshot.status.peers.values_mut() {
                peer.exit_node = false;
            }
        }
        let prefs = Box::new(self.daemon.snapshot.prefs.clone());
        self.play.hear(Event::Patched(ticket, Ok(prefs)));
        Ok(())
    }

    fn may_be_recorded(&self, ready: &Ready) -> Result<(), TestCaseError> {
        prop_assert_eq!(
            &self.daemon.snapshot.status.backend_state,
            &sallyport_tailnet::BackendState::Running
        );
        let Some((through, learned)) = &self.proved else {
            return Err(TestCaseError::fail("recorded without a proof"));
        };
        let seen = learned.ipv4.as_ref().and_then(|learned| learned.seen.as_ref());
        let seen = seen.map(|sighting| sighting.address.to_string());
        if self.world.pinned {
            prop_assert_eq!(seen.as_deref(), Some("203.0.113.10"), "recorded with a foreign address");
        }
        match &ready.exit_node_id {
            Some(id) => {
                prop_assert!(*through, "recorded though nothing came through");
                prop_assert_eq!(id.as_str(), self.daemon.snapshot.prefs.exit_node_id.as_str());
                let peer = self.daemon.snapshot.status.peer(&StableId::new(id.clone()));
                let in_force = peer.is_some_and(|p| p.exit_node && p.exit_node_option && !p.expired);
                prop_assert!(in_force, "recorded with an exit node that is not in force");
            }
            None => {
                prop_assert!(self.world.configured.is_empty() || self.world.fail_open);
                prop_assert!(!self.daemon.snapshot.prefs.names_exit_node());
            }
        }
        Ok(())
    }

    fn ended(mut self) -> Result<(), TestCaseError> {
        // What was wanted before the end is still done, in order.
        for effect in std::mem::take(&mut self.play.wanted) {
            if matches!(effect, Effect::RemoveStateFile) {
                self.file = false;
            }
        }
        self.in_order()?;
        match &self.play.outcome {
            Some(Outcome::Ready(ready)) => {
                prop_assert!(self.file, "ready without a state file");
                let open = ready.exit_node.is_none() && !self.world.configured.is_empty();
                prop_assert_eq!(ready.fail_open, open);
            }
            Some(Outcome::Failed(failure)) => {
                prop_assert!(!self.file, "failed with a state file");
                prop_assert_eq!(failure.exit_code, failure.reason.exit_code());
            }
            None => return Err(TestCaseError::fail("not ended")),
        }
        prop_assert!(self.play.machine.next_deadline().is_none());
        Ok(())
    }

    /// Nodes are tried in the configured order, each once while tailscaled lives.
    fn in_order(&self) -> Result<(), TestCaseError> {
        let mut wanted: Vec<_> = self.world.configured.clone();
        let mut seen = BTreeSet::new();
        wanted.retain(|index| seen.insert(*index));
        let mut tried = Vec::new();
        for line in &self.play.story {
            match line.strip_prefix("ping n") {
                Some(name) => tried.push(name.to_owned()),
                None if line == "connect" => tried.clear(),
                None => {}
            }
        }
        let order: Vec<_> = wanted.iter().map(|index| NAMES[*index].to_owned()).collect();
        let mut rest = order.iter();
        for name in &tried {
            prop_assert!(rest.any(|wanted| wanted == name), "{tried:?} is not in the order of {order:?}");
        }
        Ok(())
    }
}

fn is_done_on_the_spot(effect: &Effect) -> bool {
    matches!(effect, Effect::WriteStateFile(_) | Effect::RemoveStateFile)
}

/// An event out of nowhere, as a confused driver might send it.
fn noise() -> impl Strategy<Value = (u8, usize, u64)> {
    (0..16u8, 0..12usize, 0..4000u64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn in_every_world_the_worker_starts_only_behind_what_was_asked_for(world in world()) {
        run(world)?;
    }

    #[test]
    fn noise_never_opens_never_panics_and_ends_at_the_deadline(
        noises in prop::collection::vec(noise(), 0..80),
        world in world(),
    ) {
        let variables = world.variables();
        let borrowed: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut play = Play::new(&borrowed, KeyGiven::Yes);
        let daemons = [Daemon::fresh(), world.daemon(), Daemon::behind(&NAMES)];
        for (kind, number, pause) in noises {
            play.pass(Duration::from_millis(pause));
            let ticket = Ticket(number as u64);
            let id = StableId::new(format!("n{}", NAMES[number % NAMES.len()]));
            let daemon = &daemons[number % daemons.len()].snapshot;
            let event = match kind {
                0 => Event::Begin,
                1 => Event::Unreached(Unreached::Silent("x".into())),
                2 | 3 => Event::Seen(ticket, Box::new(daemon.clone())),
                4 => Event::Lost,
                5 => Event::News(News::Changed),
                6 => Event::News(News::Complaint("x".into())),
                7 => Event::LoginSent(ticket, Ok(())),
                8 | 9 => Event::Patched(ticket, Ok(Box::new(daemon.prefs.clone()))),
                10 | 11 => Event::Ponged { id, round_trip: Duration::ZERO, via: String::new() },
                12 => Event::Crossed(ticket, crossing(&Family::BOTH)),
                13 => Event::Learned(ticket, learned(Some("203.0.113.10"), None)),
                14 => Event::Learned(ticket, learned(Some("203.0.113.99"), None)),
                _ => Event::Tick,
            };
            play.hear(event);
            for effect in play.wanted.drain(..) {
                if let Effect::Patch(_, change) = &effect {
                    let change = serde_json::to_value(change).expect("a change is JSON");
                    let cleared = change.get("ExitNodeID").is_some_and(|id| id == "");
                    prop_assert!(!cleared || world.fail_open, "the exit node was cleared");
                }
                // Nobody wrote the state file: it cannot be ready.
            }
            prop_assert!(!matches!(play.outcome, Some(Outcome::Ready(_))), "ready without a state file");
        }
        play.pass(Duration::from_secs(90));
        prop_assert!(play.outcome.is_some(), "it outlives its deadline");
    }
}
