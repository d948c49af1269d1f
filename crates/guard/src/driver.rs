//! Performs what the machine wants done, and tells it what came of it. Everything runs on one thread; whatever takes
//! time is a task whose result comes back as an event.

use std::time::Duration;

use jiff::{Timestamp, Unit};
use sallyport_tailnet::MaskedPrefs;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};

use crate::env::{Config, KeySource};
use crate::events::{Notice, Ready, Report, Warning};
use crate::machine::{Effect, Event, KeyGiven, LoginOrder, Machine, Outcome, Ticket};
use crate::state_file::{self, Record};
use crate::{check, probe};

mod daemon;
mod follow;
mod ping;

use daemon::Daemon;

/// How many events may wait; a task that has another one waits itself.
const QUEUE: usize = 64;
/// How often a step that takes its time is told of again.
const TELL_AGAIN: Duration = Duration::from_secs(5);

/// Establishes the posture, and tells every step.
pub async fn start(mut config: Config, tell: impl FnMut(Report)) -> Outcome {
    let key = std::mem::take(&mut config.key);
    let given = if key.is_given() { KeyGiven::Yes } else { KeyGiven::No };
    let (events, inbox) = mpsc::channel(QUEUE);
    let begun = Instant::now();
    let daemon = Daemon::new(&config);
    let machine = Machine::new(config, given, begun.into_std());
    let driver = Driver {
        machine,
        daemon,
        key,
        begun,
        events,
        tell,
        waiting: None,
        follower: None,
        looking: Looking::default(),
        proofs: Vec::new(),
        validated_at: None,
        outcome: None,
    };
    driver.run(inbox).await
}

struct Driver<T> {
    machine: Machine,
    daemon: Daemon,
    key: KeySource,
    begun: Instant,
    events: mpsc::Sender<Event>,
    tell: T,
    /// What is waited for, and when it is told of again.
    waiting: Option<(Notice, Instant)>,
    /// The task that follows tailscaled's bus.
    follower: Option<JoinHandle<()>>,
    looking: Looking,
    /// Pings, probes and checks under way.
    proofs: Vec<AbortHandle>,
    validated_at: Option<Timestamp>,
    outcome: Option<Outcome>,
}

/// One look at a time; what is asked for meanwhile is one more look after it.
#[derive(Debug, Default)]
struct Looking {
    under_way: Option<Ticket>,
    wanted: Option<Ticket>,
}

impl<T: FnMut(Report)> Driver<T> {
    async fn run(mut self, mut inbox: mpsc::Receiver<Event>) -> Outcome {
        let mut terminate = listen(SignalKind::terminate());
        let mut interrupt = listen(SignalKind::interrupt());
        self.handle(Event::Begin).await;
        loop {
            if let Some(outcome) = self.outcome.take() {
                return outcome;
            }
            let due = self.machine.next_deadline().map(Instant::from_std);
            let tell_again = self.waiting.as_ref().map(|(_, at)| *at);
            let next = [due, tell_again].into_iter().flatten().min();
            let event = tokio::select! {
                Some(event) = inbox.recv() => event,
                () = heard(&mut terminate) => Event::Interrupted,
                () = heard(&mut interrupt) => Event::Interrupted,
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    self.tell_again();
                    Event::Tick
                }
            };
            self.handle(event).await;
        }
    }

    async fn handle(&mut self, event: Event) {
        self.note(&event);
        let effects = self.machine.handle(event, Instant::now().into_std());
        for effect in effects {
            self.perform(effect).await;
        }
    }

    /// What the driver itself takes from an event.
    fn note(&mut self, event: &Event) {
        match event {
            Event::Seen(..) => {
                self.looking.under_way = None;
                if let Some(ticket) = self.looking.wanted.take() {
                    self.look(ticket);
                }
            }
            Event::Lost => self.looking = Looking::default(),
            Event::Crossed(..) | Event::Learned(..) => self.validated_at = Some(Timestamp::now()),
            _ => {}
        }
    }

    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Connect(ticket) => {
                self.looking = Looking { under_way: Some(ticket), wanted: None };
                let task = follow::follow(self.daemon.clone(), ticket, self.events.clone());
                if let Some(old) = self.follower.replace(tokio::spawn(task)) {
                    old.abort();
                }
            }
            Effect::Read(ticket) => self.look(ticket),
            Effect::Login(ticket, order) => self.log_in(ticket, order),
            Effect::Patch(ticket, change) => self.patch(ticket, change),
            Effect::StandDown => self.daemon.stand_down().await,
            Effect::Ping { id, address } => {
                let task =
                    ping::until_answered(self.daemon.client().clone(), id, address, self.events.clone());
                self.proofs.push(tokio::spawn(task).abort_handle());
            }
            Effect::Cross(ticket, probe) => {
                let events = self.events.clone();
                self.prove(async move {
                    let crossed = probe::cross(&probe).await;
                    let _ = events.send(Event::Crossed(ticket, crossed)).await;
                });
            }
            Effect::Check(ticket, question) => {
                let events = self.events.clone();
                self.prove(async move {
                    let learned = check::ask(&question).await;
                    let _ = events.send(Event::Learned(ticket, learned)).await;
                });
            }
            Effect::Abandon => self.proofs.drain(..).for_each(|task| task.abort()),
            Effect::WriteStateFile(ready) => {
                let record = self.record(&ready);
                let written = state_file::write(&self.machine.config().state_file, &record);
                let result = written.map_err(|error| check::with_causes(&error));
                // Its answer goes before whatever else waits: nothing may come between file and word.
                let effects = self.machine.handle(Event::StateFileWritten(result), Instant::now().into_std());
                for effect in effects {
                    Box::pin(self.perform(effect)).await;
                }
            }
            Effect::RemoveStateFile => {
                if let Err(error) = state_file::remove(&self.machine.config().state_file) {
                    let message = check::with_causes(&error);
                    self.say(Notice::Warning { word: Warning::StateFileStays, message });
                }
            }
            Effect::Tell(notice) => self.say(notice),
            Effect::Finish(outcome) => {
                self.proofs.drain(..).for_each(|task| task.abort());
                if let Some(follower) = self.follower.take() {
                    follower.abort();
                }
                self.outcome = Some(outcome);
            }
        }
    }

    fn look(&mut self, ticket: Ticket) {
        if self.looking.under_way.is_some() {
            self.looking.wanted = Some(ticket);
            return;
        }
        self.looking.under_way = Some(ticket);
        let (daemon, events) = (self.daemon.clone(), self.events.clone());
        tokio::spawn(async move { daemon.look_and_tell(ticket, &events).await });
    }

    fn log_in(&mut self, ticket: Ticket, order: LoginOrder) {
        let key = match (&self.key, order.use_key) {
            (_, false) | (KeySource::None, true) => Ok(None),
            (KeySource::Value(key), true) => Ok(Some(key.clone())),
            (KeySource::File(path), true) => crate::secret::read_key_file(path).map(Some),
        };
        let (daemon, events) = (self.daemon.clone(), self.events.clone());
        tokio::spawn(async move {
            let result = match key {
                Ok(key) => daemon.log_in(order, key).await,
                Err(error) => Err(daemon::Trouble::key_unreadable(&error)),
            };
            let event = match result {
                Ok(()) => Event::LoginSent(ticket, Ok(())),
                Err(trouble) => trouble.into_event(|refusal| Event::LoginSent(ticket, Err(refusal))),
            };
            let _ = events.send(event).await;
        });
    }

    fn patch(&mut self, ticket: Ticket, change: MaskedPrefs) {
        let (daemon, events) = (self.daemon.clone(), self.events.clone());
        tokio::spawn(async move {
            let event = match daemon.patch(&change).await {
                Ok(prefs) => Event::Patched(ticket, Ok(Box::new(prefs))),
                Err(trouble) => trouble.into_event(|refusal| Event::Patched(ticket, Err(refusal))),
            };
            let _ = events.send(event).await;
        });
    }

    fn prove(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.proofs.push(tokio::spawn(task).abort_handle());
    }

    fn record(&self, ready: &Ready) -> Record {
        let now = Timestamp::now();
        let address = |ip: Option<std::net::IpAddr>| ip.map(|ip| ip.to_string()).unwrap_or_default();
        let families: Vec<_> = ready.families.iter().map(|family| family.word()).collect();
        Record {
            selected_exit_node: ready.exit_node.clone().unwrap_or_default(),
            observed_egress_ip: address(ready.ipv4.or(ready.ipv6)),
            validated_at: in_seconds(self.validated_at.unwrap_or(now)),
            posture: ready.posture,
            tailnet_hostname: ready.hostname.clone(),
            advertised_tags: ready.tags.join(","),
            ready_at: in_seconds(now),
            kill_switch: ready.kill_switch,
            localapi: ready.localapi,
            observed_egress_ipv6: address(ready.ipv6.filter(|_| ready.ipv4.is_some())),
            egress_families: families.join(","),
            fail_open: if ready.fail_open { "active" } else { "" },
        }
    }

    fn say(&mut self, notice: Notice) {
        self.waiting = match &notice {
            Notice::Waiting { .. } => Some((notice.clone(), Instant::now() + TELL_AGAIN)),
            Notice::Warning { .. } => self.waiting.take(),
            _ => None,
        };
        self.report(notice);
    }

    fn tell_again(&mut self) {
        let Some((notice, at)) = &self.waiting else { return };
        if Instant::now() >= *at {
            self.say(notice.clone());
        }
    }

    fn report(&mut self, notice: Notice) {
        (self.tell)(Report { at: Timestamp::now(), elapsed: self.begun.elapsed(), notice });
    }
}

/// RFC 3339 in UTC, whole seconds, as the ancestor wrote it.
fn in_seconds(at: Timestamp) -> String {
    at.round(Unit::Second).unwrap_or(at).to_string()
}

fn listen(kind: SignalKind) -> Option<Signal> {
    signal(kind).ok()
}

async fn heard(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
