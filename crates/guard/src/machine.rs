//! The start as a pure machine: events in, effects out, time as an argument. It is the seed's flow chart; the driver
//! performs the effects and returns their results as events.
//!
//! Promises, each a property in `machine/properties.rs`:
//! - the worker may start only after the posture was seen in tailscaled, packets came through, the public address was
//!   one that was expected, and the state file is written;
//! - a round tries each exit node once, in order;
//! - every failure ends with no state file, and never clears the exit node: only fail-open does, spelled out;
//! - before the first change the state file is gone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::env::{self, Config};
use crate::events::{Failure, Notice, Step, Warning};
use crate::login;
use crate::reason::Reason;

mod effect;
mod judge;
mod logging_in;
mod outcome;
mod proving;
mod state;
mod telling;
mod working;

use state::{LoggingIn, Proof, Round, Sent, Stage, State, StateFile, Work};

pub use effect::{
    DaemonRefusal, Effect, Event, Exposure, KeyGiven, LoginOrder, News, Outcome, Snapshot, Ticket, Unreached,
};

/// How long an exit node may stay silent that the control server calls online, or says nothing of.
const PING_PATIENCE: Duration = Duration::from_secs(6);
/// How long one may stay silent that the control server calls offline.
const PING_PATIENCE_OFFLINE: Duration = Duration::from_secs(2);
/// How long any may stay silent after the control server was away: an exit node that lost it too hears of this node
/// only once it has come back to it, which takes tailscaled up to about 8 s after an outage of 40.
const PING_PATIENCE_AFTER_OUTAGE: Duration = Duration::from_secs(20);
/// A login that takes longer met a control server that was away.
const PROMPT_LOGIN: Duration = Duration::from_secs(3);
/// How long news from the control server may still change what a name means, after a login.
const SETTLE: Duration = Duration::from_millis(2500);
/// How long tailscaled may take to show a selected exit node as selected.
const VERIFY_PATIENCE: Duration = Duration::from_secs(3);
/// How long the control server may take to show the tags that were asked for.
const TAGS_PATIENCE: Duration = Duration::from_secs(5);
/// When a node that logs in anew is taken for new although it was never seen without its poll of the control server.
const BREAK_PATIENCE: Duration = Duration::from_secs(1);
/// How long a socket that is there may refuse the guard: it is made before its mode is set.
const PERMISSION_PATIENCE: Duration = Duration::from_secs(2);
/// When the status is read again although nothing was said: the bus has no sign of life, and older daemons do not
/// tell of peers.
const REREAD: Duration = Duration::from_secs(1);
/// Kept of the whole deadline for the normal route of fail-open.
const OPENING_RESERVE: Duration = Duration::from_secs(5);

/// The machine.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    key: KeyGiven,
    state: State,
    deadline: Instant,
    /// What was last seen of tailscaled, and how fresh that is.
    snapshot: Option<Box<Snapshot>>,
    seen: Ticket,
    /// The freshness that the present stage needs.
    needed: Ticket,
    tickets: u64,
    next_read: Option<Instant>,
    /// A change of preferences that is under way.
    patching: Option<Ticket>,
    /// Since when the network map is known, if a login brought it: news may still come.
    in_since: Option<Instant>,
    /// Whether the control server answered late, so that others may be late as well.
    after_outage: bool,
    round: Round,
    state_file: StateFile,
    out_of_time: bool,
    told: BTreeSet<Warning>,
    last_waiting: Option<(Step, String)>,
    effects: Vec<Effect>,
}

impl Machine {
    /// The machine of this configuration, before [`Event::Begin`].
    #[must_use]
    pub fn new(config: Config, key: KeyGiven, now: Instant) -> Self {
        let deadline = now + config.wait;
        Self {
            config,
            key,
            state: State::New,
            deadline,
            snapshot: None,
            seen: Ticket::default(),
            needed: Ticket::default(),
            tickets: 0,
            next_read: None,
            patching: None,
            in_since: None,
            after_outage: false,
            round: Round::default(),
            state_file: StateFile::Perhaps,
            out_of_time: false,
            told: BTreeSet::new(),
            last_waiting: None,
            effects: Vec::new(),
        }
    }

    /// Takes an event and returns what has to be done now, in this order.
    pub fn handle(&mut self, event: Event, now: Instant) -> Vec<Effect> {
        if !matches!(self.state, State::Ended) {
            self.take(event, now);
            self.look_at_the_clock(now);
        }
        std::mem::take(&mut self.effects)
    }

    /// When [`Event::Tick`] is due, if nothing else happens before. `None` once it has ended.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let stage = match &self.state {
            State::New | State::Ended => return None,
            State::Working { until, .. } => Some(*until),
            State::LoggingIn(login) => login.wrong_tags_since.map(|since| since + TAGS_PATIENCE),
            State::Reaching { since, last: Some(Unreached::NotPermitted(_)), .. } => {
                Some(*since + PERMISSION_PATIENCE)
            }
            State::Reaching { .. } | State::Recording { .. } => None,
        };
        [stage, self.next_read].into_iter().flatten().chain([self.deadline]).min()
    }

    /// The configuration that the machine works by.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn take(&mut self, event: Event, now: Instant) {
        match event {
            Event::Begin => self.begin(now),
            Event::Unreached(how) => self.unreached(how),
            Event::Seen(ticket, snapshot) => self.see(ticket, snapshot, now),
            Event::Lost => self.lost(now),
            Event::Refused(refusal) => self.fail_by_daemon(refusal),
            Event::News(news) => self.news(news, now),
            Event::LoginSent(ticket, result) => self.login_sent(ticket, result),
            Event::Patched(ticket, result) => self.patched(ticket, result, now),
            Event::Ponged { id, round_trip, via } => self.ponged(&id, round_trip, via, now),
            Event::Crossed(ticket, crossed) => self.crossed(ticket, crossed, now),
            Event::Learned(ticket, learned) => self.learned(ticket, learned, now),
            Event::StateFileWritten(result) => self.recorded(result),
            Event::Interrupted => {
                self.fail(Reason::Interrupted, "a signal asked the guard to end".to_owned())
            }
            Event::Tick => {}
        }
    }

    fn look_at_the_clock(&mut self, now: Instant) {
        if let State::Reaching { since, last: Some(Unreached::NotPermitted(message)), .. } = &self.state
            && now >= *since + PERMISSION_PATIENCE
        {
            let message = message.clone();
            return self.fail(Reason::DaemonNotPermitted, message);
        }
        if self.next_read.is_some_and(|due| now >= due) {
            self.read(now);
        }
        if now >= self.deadline {
            self.out_of_time = true;
            return self.out_of_time(now);
        }
        if let State::LoggingIn(login) = &self.state
            && login.wrong_tags_since.is_some_and(|since| now >= since + TAGS_PATIENCE)
        {
            return self.tags_not_granted();
        }
        if matches!(&self.state, State::Working { until, .. } if now >= *until) {
            self.stage_out_of_time(now);
        }
    }

    // --- reaching tailscaled -------------------------------------------------------------------------------------

    fn begin(&mut self, now: Instant) {
        if !matches!(self.state, State::New) {
            return;
        }
        let exit_nodes = self.config.exit_nodes.iter().map(ToString::to_string).collect();
        self.tell(Notice::Started {
            version: env!("CARGO_PKG_VERSION"),
            posture: self.config.posture,
            exit_nodes,
            wait_seconds: self.config.wait.as_secs(),
        });
        self.warn_of_the_configuration();
        self.state = State::Reaching { since: now, last: None, lost: false };
        let ticket = self.ticket();
        self.effects.push(Effect::Connect(ticket));
    }

    fn unreached(&mut self, how: Unreached) {
        let State::Reaching { last, .. } = &mut self.state else { return };
        let message = how.message();
        *last = Some(how);
        // Whoever held the posture does not hold it now.
        self.forget_state_file();
        self.wait_for(Step::Daemon, message);
    }

    fn lost(&mut self, now: Instant) {
        if matches!(self.state, State::New | State::Reaching { .. }) {
            return;
        }
        self.abandon();
        self.round = Round::default();
        self.snapshot = None;
        self.in_since = None;
        self.next_read = None;
        self.patching = None;
        self.forget_state_file();
        self.state = State::Reaching { since: now, last: None, lost: true };
        self.wait_for(Step::Daemon, "tailscaled went away; waiting for it to come back".to_owned());
        let ticket = self.ticket();
        self.effects.push(Effect::Connect(ticket));
    }

    // --- what is seen --------------------------------------------------------------------------------------------

    fn see(&mut self, ticket: Ticket, snapshot: Box<Snapshot>, now: Instant) {
        let first = self.snapshot.is_none();
        self.seen = self.seen.max(ticket);
        self.next_read = Some(now + REREAD);
        if first {
            self.tell(Notice::Daemon {
                version: snapshot.status.version.clone(),
                state: snapshot.status.backend_state.to_string(),
                tun: snapshot.status.tun,
            });
        }
        self.snapshot = Some(snapshot);
        match &self.state {
            State::Reaching { .. } => self.reached(now),
            State::LoggingIn(_) => self.look_at_the_login(now),
            State::Working { .. } => self.look_at_the_work(now),
            State::New | State::Recording { .. } | State::Ended => {}
        }
    }

    fn news(&mut self, news: News, now: Instant) {
        match news {
            News::Changed => self.read(now),
            News::Complaint(text) => {
                if let (State::LoggingIn(login), Some(text)) = (&mut self.state, login::complaint(&text)) {
                    login.complaint = Some(text.to_owned());
                    self.wait_for(Step::Login, text.to_owned());
                }
            }
            News::Error(text) => self.login_error(text),
        }
    }

    /// Asks for a fresh look; whoever waits for one waits for this.
    fn read(&mut self, now: Instant) {
        if self.snapshot.is_none() {
            return;
        }
        self.next_read = Some(now + REREAD);
        let ticket = self.ticket();
        self.effects.push(Effect::Read(ticket));
    }

    fn read_needed(&mut self, now: Instant) {
        self.read(now);
        self.needed = Ticket(self.tickets);
    }

    // --- endings -----------------------------------------------------------------------------------------------
    /// The whole deadline has passed. The step that is under way used it up, and is named.
    fn out_of_time(&mut self, now: Instant) {
        let (reason, message) = match &self.state {
            State::New | State::Ended => return,
            State::Reaching { last, lost, .. } => {
                outcome::unreached(last.as_ref(), *lost, &self.config.socket)
            }
            State::LoggingIn(login) => outcome::not_logged_in(&self.config, self.snapshot.as_deref(), login),
            State::Working { work: Work::Normal | Work::FailOpen, .. } => {
                let State::Working { work, stage, .. } = &self.state else { return };
                match stage {
                    Stage::Proving(proof) => judge::unproved(&self.config, work, proof),
                    _ => self.not_established(work),
                }
            }
            State::Working { .. } => {
                // The present exit node is judged by its stage, and nobody is left to try.
                self.round.queue.clear();
                return self.stage_out_of_time(now);
            }
            State::Recording { .. } => {
                (Reason::StateFile, "the state file was not written in time".to_owned())
            }
        };
        self.fail(reason, message);
    }

    fn record(&mut self, work: &Work, proof: &Proof) {
        if matches!(work, Work::Exit(_)) {
            self.warn_of_accepted_routes();
        }
        let Some(snapshot) = &self.snapshot else { return };
        let ready = outcome::ready(&self.config, snapshot, work, proof);
        self.effects.push(Effect::WriteStateFile(Box::new(ready.clone())));
        self.state = State::Recording { ready: Box::new(ready) };
        self.state_file = StateFile::Perhaps;
    }

    fn recorded(&mut self, result: Result<(), String>) {
        let State::Recording { ready } = &self.state else { return };
        let ready = ready.clone();
        match result {
            Err(message) => self.fail(Reason::StateFile, message),
            Ok(()) => {
                self.tell(Notice::Ready(ready.clone()));
                self.state = State::Ended;
                self.next_read = None;
                self.effects.push(Effect::Finish(Outcome::Ready(ready)));
            }
        }
    }

    fn fail_by_daemon(&mut self, refusal: DaemonRefusal) {
        self.fail(refusal.reason, refusal.message);
    }

    /// The one way to fail: the state file is removed, and nothing comes after.
    fn fail(&mut self, reason: Reason, mut message: String) {
        let step = self.step();
        if self.out_of_time {
            let wait = self.config.wait.as_secs();
            message.push_str(&format!("; {}={wait} was used up while {}", env::WAIT_SECONDS, step.doing()));
        }
        self.abandon();
        self.state_file = StateFile::Perhaps;
        self.forget_state_file();
        let failure = Box::new(Failure {
            reason,
            exit_code: reason.exit_code(),
            step,
            message,
            advice: reason.advice(),
            attempts: std::mem::take(&mut self.round.attempts),
        });
        self.tell(Notice::Failed(failure.clone()));
        self.state = State::Ended;
        self.next_read = None;
        self.effects.push(Effect::Finish(Outcome::Failed(failure)));
    }

    fn step(&self) -> Step {
        match &self.state {
            State::New | State::Reaching { .. } => Step::Daemon,
            State::LoggingIn(_) => Step::Login,
            State::Working { stage, work, .. } => match stage {
                Stage::Settling(_) => Step::Resolve,
                Stage::Pinging => Step::Ping,
                Stage::Selecting if matches!(work, Work::Normal) => Step::Login,
                Stage::Selecting | Stage::Verifying => Step::Select,
                Stage::Proving(_) | Stage::Confirming(_) => Step::Prove,
            },
            State::Recording { .. } | State::Ended => Step::StateFile,
        }
    }

    // --- small things --------------------------------------------------------------------------------------------

    /// Pings, probes and checks that are under way are of no use any more.
    fn abandon(&mut self) {
        self.effects.push(Effect::Abandon);
    }

    fn forget_state_file(&mut self) {
        if self.state_file == StateFile::Perhaps {
            self.state_file = StateFile::Gone;
            self.effects.push(Effect::RemoveStateFile);
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn tell(&mut self, notice: Notice) {
        self.effects.push(Effect::Tell(notice));
    }

    fn wait_for(&mut self, step: Step, message: String) {
        if self.last_waiting.as_ref().is_none_or(|(s, m)| (*s, m) != (step, &message)) {
            self.last_waiting = Some((step, message.clone()));
            self.tell(Notice::Waiting { step, message });
        }
    }

    fn warn(&mut self, word: Warning, message: String) {
        if self.told.insert(word) {
            self.tell(Notice::Warning { word, message });
        }
    }
}

#[cfg(test)]
pub(crate) mod play;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
