//! A stage for tests: a tailnet in memory, a clock, and short names for what the machine wants done.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sallyport_tailnet::{BackendState, MaskedPrefs, PeerStatus, Prefs, StableId, Status};

use super::*;
use crate::address::{Family, PerFamily};
use crate::check::{Learned, Miss, Sighting};
use crate::env::Environment;
use crate::events::Ready;
use crate::probe::Crossing;

pub(crate) fn config(variables: &[(&str, &str)]) -> Config {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value)));
    Config::from_environment(Environment::new(variables, None)).expect("a good environment")
}

pub(crate) fn peer(number: u8, name: &str) -> PeerStatus {
    PeerStatus {
        id: StableId::new(format!("n{name}")),
        dns_name: format!("{name}.tail1234.ts.net."),
        tailscale_ips: vec![IpAddr::from([100, 64, 0, number])],
        online: true,
        exit_node_option: true,
        ..PeerStatus::default()
    }
}

/// tailscaled as a value: what it would answer.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    pub(crate) snapshot: Snapshot,
}

impl Daemon {
    /// A daemon that has never logged in.
    pub(crate) fn fresh() -> Self {
        let status = Status {
            version: "1.102.5".into(),
            tun: true,
            backend_state: BackendState::NeedsLogin,
            ..Status::default()
        };
        Self { snapshot: Snapshot { status, prefs: Prefs::fresh(), ..Snapshot::default() } }
    }

    /// A daemon that is up, without an exit node, in a tailnet with these.
    pub(crate) fn running(exit_nodes: &[&str]) -> Self {
        let mut daemon = Self::fresh();
        daemon.join(exit_nodes);
        daemon.snapshot.prefs.control_url = crate::env::DEFAULT_LOGIN_SERVER.into();
        daemon.snapshot.prefs.want_running = true;
        daemon.snapshot.prefs.accept_routes = true;
        daemon.snapshot.prefs.accept_dns = false;
        daemon
    }

    /// A daemon that is up behind the first of these.
    pub(crate) fn behind(exit_nodes: &[&str]) -> Self {
        let mut daemon = Self::running(exit_nodes);
        daemon.select(&StableId::new(format!("n{}", exit_nodes[0])));
        daemon
    }

    pub(crate) fn join(&mut self, exit_nodes: &[&str]) {
        let status = &mut self.snapshot.status;
        status.backend_state = BackendState::Running;
        status.have_node_key = true;
        status.magic_dns_suffix = "tail1234.ts.net".into();
        status.tailscale_ips = vec![IpAddr::from([100, 64, 0, 1])];
        status.this_node = PeerStatus { exit_node_option: false, ..peer(1, "worker") };
        for (number, name) in (2..).zip(exit_nodes) {
            status.peers.insert(format!("nodekey:{name}"), peer(number, name));
        }
    }

    pub(crate) fn peer_mut(&mut self, name: &str) -> &mut PeerStatus {
        self.snapshot.status.peers.get_mut(&format!("nodekey:{name}")).expect("a peer of this name")
    }

    pub(crate) fn select(&mut self, id: &StableId) {
        self.snapshot.prefs.exit_node_id = id.clone();
        for peer in self.snapshot.status.peers.values_mut() {
            peer.exit_node = peer.id == *id;
        }
    }

    /// What a change of preferences does, as far as the machine uses it.
    pub(crate) fn patch(&mut self, change: &MaskedPrefs) {
        let mut prefs = serde_json::to_value(&self.snapshot.prefs).expect("prefs are JSON");
        let change = serde_json::to_value(change).expect("a change is JSON");
        for field in change.as_object().expect("an object").keys().filter(|key| !key.ends_with("Set")) {
            prefs[field] = change[field].clone();
        }
        self.snapshot.prefs = serde_json::from_value(prefs).expect("prefs again");
        let id = self.snapshot.prefs.exit_node_id.clone();
        self.select(&id);
    }
}

pub(super) fn crossing(through: &[Family]) -> PerFamily<Option<Crossing>> {
    PerFamily::build(|family| {
        Some(if through.contains(&family) {
            let target = match family {
                Family::Ipv4 => "1.1.1.1:443",
                Family::Ipv6 => "[2001:4860:4860::8888]:443",
            };
            Crossing::Through { target: target.parse().expect("an address"), took: Duration::from_millis(20) }
        } else {
            Crossing::Failed { message: "no connection within 6 s".into() }
        })
    })
}

pub(super) fn learned(ipv4: Option<&str>, ipv6: Option<&str>) -> PerFamily<Option<Learned>> {
    PerFamily::build(|family| {
        let address = match family {
            Family::Ipv4 => ipv4,
            Family::Ipv6 => ipv6,
        };
        let service = "https://icanhazip.com".to_owned();
        Some(match address {
            Some(address) => Learned {
                seen: Some(Sighting { address: address.parse().expect("an address"), service }),
                misses: Vec::new(),
            },
            None => Learned {
                seen: None,
                misses: vec![Miss { service, message: "it answered 429".into(), bypass: false }],
            },
        })
    })
}

/// A machine on a stage.
pub(super) struct Play {
    pub(super) machine: Machine,
    pub(super) now: Instant,
    /// What was wanted and is not done yet.
    pub(super) wanted: Vec<Effect>,
    pub(super) notices: Vec<Notice>,
    /// What was wanted, in short, but for telling.
    pub(super) story: Vec<String>,
    pub(super) outcome: Option<Outcome>,
}

impl Play {
    pub(super) fn new(variables: &[(&str, &str)], key: KeyGiven) -> Self {
        let now = Instant::now();
        let machine = Machine::new(config(variables), key, now);
        let mut play =
            Self { machine, now, wanted: Vec::new(), notices: Vec::new(), story: Vec::new(), outcome: None };
        play.hear(Event::Begin);
        play
    }

    pub(super) fn hear(&mut self, event: Event) {
        let effects = self.machine.handle(event, self.now);
        for effect in effects {
            assert!(self.outcome.is_none(), "after its end the machine wants {effect:?}");
            if let Some(line) = short(&effect) {
                self.story.push(line);
            }
            match effect {
                Effect::Tell(notice) => self.notices.push(notice),
                Effect::Finish(outcome) => self.outcome = Some(outcome),
                Effect::Abandon => {
                    self.wanted.retain(|wanted| {
                        !matches!(wanted, Effect::Ping { .. } | Effect::Cross(..) | Effect::Check(..))
                    });
                }
                effect => self.wanted.push(effect),
            }
        }
    }

    /// Lets time pass, with a tick whenever one is due.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.machine.next_deadline().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.hear(Event::Tick);
        }
        self.now = end;
    }

    /// Shows the daemon to whoever asked for a look.
    pub(super) fn look(&mut self, daemon: &Daemon) {
        let asked = self.wanted.iter().filter_map(|effect| match effect {
            Effect::Connect(ticket) | Effect::Read(ticket) => Some(*ticket),
            _ => None,
        });
        let Some(latest) = asked.max() else { return };
        self.wanted.retain(|effect| !matches!(effect, Effect::Connect(_) | Effect::Read(_)));
        self.hear(Event::Seen(latest, Box::new(daemon.snapshot.clone())));
    }

    /// Does what can be done at once: looks, changes of preferences, the state file.
    pub(super) fn settle(&mut self, daemon: &mut Daemon) {
        for _ in 0..50 {
            let next = self.wanted.iter().position(|effect| {
                matches!(effect, Effect::Patch(..) | Effect::WriteStateFile(_) | Effect::RemoveStateFile)
            });
            match next.map(|index| self.wanted.remove(index)) {
                Some(Effect::Patch(ticket, change)) => {
                    daemon.patch(&change);
                    let prefs = Box::new(daemon.snapshot.prefs.clone());
                    self.hear(Event::Patched(ticket, Ok(prefs)));
                }
                Some(Effect::WriteStateFile(_)) => self.hear(Event::StateFileWritten(Ok(()))),
                Some(_) => {}
                None if self.wanted.iter().any(|e| matches!(e, Effect::Connect(_) | Effect::Read(_))) => {
                    self.look(daemon);
                }
                None => return,
            }
        }
        panic!("it does not settle: {:?}", self.story);
    }

    pub(super) fn pong(&mut self) {
        let index = self.wanted.iter().position(|effect| matches!(effect, Effect::Ping { .. }));
        let Some(index) = index else { panic!("no ping is wanted: {:?}", self.story) };
        let Effect::Ping { id, .. } = self.wanted.remove(index) else { unreachable!("just found") };
        self.hear(Event::Ponged { id, round_trip: Duration::from_millis(2), via: "10.77.0.21:41641".into() });
    }

    pub(super) fn cross(&mut self, through: &[Family]) {
        let index = self.wanted.iter().position(|effect| matches!(effect, Effect::Cross(..)));
        let Some(index) = index else { panic!("no probe is wanted: {:?}", self.story) };
        let Effect::Cross(ticket, _) = self.wanted.remove(index) else { unreachable!("just found") };
        self.hear(Event::Crossed(ticket, crossing(through)));
    }

    pub(super) fn learn(&mut self, ipv4: Option<&str>, ipv6: Option<&str>) {
        let index = self.wanted.iter().position(|effect| matches!(effect, Effect::Check(..)));
        let Some(index) = index else { panic!("no check is wanted: {:?}", self.story) };
        let Effect::Check(ticket, _) = self.wanted.remove(index) else { unreachable!("just found") };
        self.hear(Event::Learned(ticket, learned(ipv4, ipv6)));
    }

    /// Hands the login over, which the daemon takes.
    pub(super) fn log_in(&mut self, daemon: &mut Daemon) -> LoginOrder {
        let index = self.wanted.iter().position(|effect| matches!(effect, Effect::Login(..)));
        let Some(index) = index else { panic!("no login is wanted: {:?}", self.story) };
        let Effect::Login(ticket, order) = self.wanted.remove(index) else { unreachable!("just found") };
        daemon.snapshot.prefs = (*order.prefs).clone();
        self.hear(Event::LoginSent(ticket, Ok(())));
        order
    }

    pub(super) fn ready(&self) -> &Ready {
        match &self.outcome {
            Some(Outcome::Ready(ready)) => ready,
            other => panic!("not ready: {other:?}\n{:#?}", self.story),
        }
    }

    pub(super) fn failure(&self) -> &Failure {
        match &self.outcome {
            Some(Outcome::Failed(failure)) => failure,
            other => panic!("not failed: {other:?}\n{:#?}", self.story),
        }
    }

    pub(super) fn warnings(&self) -> Vec<Warning> {
        let words = self.notices.iter().filter_map(|notice| match notice {
            Notice::Warning { word, .. } => Some(*word),
            _ => None,
        });
        words.collect()
    }

    /// The story without looks.
    pub(super) fn acts(&self) -> Vec<&str> {
        self.story.iter().map(String::as_str).filter(|line| *line != "read").collect()
    }
}

fn short(effect: &Effect) -> Option<String> {
    Some(match effect {
        Effect::Connect(_) => "connect".into(),
        Effect::Read(_) => "read".into(),
        Effect::Login(_, order) => {
            let key = if order.use_key { " with key" } else { "" };
            let force = if order.force { " anew" } else { "" };
            format!("login{key}{force}")
        }
        Effect::Patch(_, change) => {
            let change = serde_json::to_value(change).expect("a change is JSON");
            match change.get("ExitNodeID") {
                Some(id) => format!("patch {}", id.as_str().unwrap_or_default()),
                None => "patch settings".into(),
            }
        }
        Effect::StandDown => "stand down".into(),
        Effect::Ping { id, .. } => format!("ping {id}"),
        Effect::Cross(..) => "probe".into(),
        Effect::Check(..) => "check".into(),
        Effect::Abandon => return None,
        Effect::WriteStateFile(_) => "write state file".into(),
        Effect::RemoveStateFile => "remove state file".into(),
        Effect::Tell(_) => return None,
        Effect::Finish(Outcome::Ready(_)) => "ready".into(),
        Effect::Finish(Outcome::Failed(failure)) => format!("failed {}", failure.reason),
    })
}
