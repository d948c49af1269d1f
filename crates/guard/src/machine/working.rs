//! The round over the exit nodes: each is looked up, pinged, selected and seen selected; or the normal route is.

use std::time::Instant;

use sallyport_tailnet::{BackendState, ExitNodeArg, MaskedPrefs, Prefs, StableId};

use super::{
    DaemonRefusal, Effect, Machine, OPENING_RESERVE, PING_PATIENCE, PING_PATIENCE_AFTER_OUTAGE,
    PING_PATIENCE_OFFLINE, Round, SETTLE, Stage, State, Ticket, VERIFY_PATIENCE, Work, judge,
};
use crate::events::{Notice, Step, Warning};
use crate::exit_node::{self, Candidate, Found, MoreNews};
use crate::login;
use crate::reason::Reason;
use std::time::Duration;

impl Machine {
    pub(super) fn start_work(&mut self, now: Instant) {
        let Some(snapshot) = &self.snapshot else { return };
        let settings = login::settings(&self.config, &snapshot.prefs);
        if !settings.is_empty() {
            self.patch(settings);
        }
        self.round = Round {
            queue: self.config.exit_nodes.iter().cloned().map(Work::Name).collect(),
            ..Round::default()
        };
        if self.config.exit_nodes.is_empty() {
            self.work_on(Work::Normal, Stage::Selecting, self.deadline);
            return self.look_at_the_work(now);
        }
        self.next_exit_node(now);
    }

    pub(super) fn patch(&mut self, change: MaskedPrefs) {
        self.forget_state_file();
        let ticket = self.ticket();
        self.patching = Some(ticket);
        self.effects.push(Effect::Patch(ticket, change));
    }

    pub(super) fn patched(
        &mut self,
        ticket: Ticket,
        result: Result<Box<Prefs>, DaemonRefusal>,
        now: Instant,
    ) {
        if self.patching != Some(ticket) {
            return;
        }
        self.patching = None;
        match result {
            Err(refusal) => self.fail_by_daemon(refusal),
            Ok(prefs) => {
                if let Some(snapshot) = &mut self.snapshot {
                    snapshot.prefs = *prefs;
                }
                self.read_needed(now);
                if let State::Working { stage, .. } = &mut self.state
                    && matches!(stage, Stage::Selecting)
                {
                    self.select(now);
                }
            }
        }
    }

    pub(super) fn work_on(&mut self, work: Work, stage: Stage, until: Instant) {
        self.state = State::Working { work, stage, until };
    }

    /// Takes the next exit node of the round, or ends the round.
    pub(super) fn next_exit_node(&mut self, now: Instant) {
        loop {
            let Some(work) = self.round.queue.pop_front() else { return self.round_failed(now) };
            match work {
                Work::Name(arg) => {
                    if self.name(arg, now) {
                        return;
                    }
                }
                Work::Exit(candidate) => {
                    if self.round.tried.insert(candidate.id.clone()) {
                        return self.try_exit_node(candidate, now);
                    }
                }
                Work::Normal | Work::FailOpen => {}
            }
        }
    }

    /// Looks a name up. Returns whether there is something to wait for now; otherwise the next one has its turn.
    pub(super) fn name(&mut self, arg: ExitNodeArg, now: Instant) -> bool {
        let Some(snapshot) = &self.snapshot else { return false };
        match exit_node::find(snapshot, &arg) {
            Found::Nodes(nodes) => {
                for node in nodes.into_iter().rev() {
                    self.round.queue.push_front(Work::Exit(node));
                }
                false
            }
            Found::Failed(attempt, news) => {
                let until = match news {
                    MoreNews::WillCome => Some(self.exit_deadline()),
                    MoreNews::MayHelp => {
                        self.in_since.map(|since| (since + SETTLE).min(self.exit_deadline()))
                    }
                    MoreNews::WillNotHelp => None,
                };
                match until {
                    Some(until) if now < until => {
                        self.work_on(Work::Name(arg), Stage::Settling(attempt), until);
                        true
                    }
                    Some(_) | None => {
                        self.attempt_failed(attempt);
                        false
                    }
                }
            }
        }
    }

    pub(super) fn try_exit_node(&mut self, candidate: Candidate, now: Instant) {
        self.tell(Notice::Trying {
            exit_node: candidate.named.clone(),
            node: candidate.name.clone(),
            id: candidate.id.to_string(),
            online: candidate.online,
        });
        let Some(snapshot) = &self.snapshot else { return };
        let share = self.share(now);
        let is_selected = self.patching.is_none() && judge::holds(snapshot, &candidate.id).is_ok();
        if is_selected {
            self.tell(Notice::Unchanged { node: candidate.name.clone() });
            self.effects.push(Effect::Ping { id: candidate.id.clone(), address: candidate.address });
            return self.prove(Work::Exit(candidate), now);
        }
        let patience = match (self.after_outage, candidate.online) {
            (true, _) => PING_PATIENCE_AFTER_OUTAGE,
            (false, true) => PING_PATIENCE,
            (false, false) => PING_PATIENCE_OFFLINE,
        };
        self.effects.push(Effect::Ping { id: candidate.id.clone(), address: candidate.address });
        self.wait_for(Step::Ping, format!("waiting for {} to answer", candidate.name));
        self.work_on(Work::Exit(candidate), Stage::Pinging, share.min(now + patience));
    }

    /// When the present exit node has used up its share: what is left is divided among those still to try.
    pub(super) fn share(&self, now: Instant) -> Instant {
        let left = self.exit_deadline().saturating_duration_since(now);
        let shares = u32::try_from(self.round.queue.len() + 1).unwrap_or(u32::MAX);
        now + left / shares
    }

    pub(super) fn exit_deadline(&self) -> Instant {
        if self.config.fail_open {
            self.deadline - OPENING_RESERVE.min(self.config.wait / 4)
        } else {
            self.deadline
        }
    }

    pub(super) fn ponged(&mut self, id: &StableId, round_trip: Duration, via: String, now: Instant) {
        let State::Working { work: Work::Exit(candidate), stage, .. } = &mut self.state else { return };
        if candidate.id != *id {
            return;
        }
        let candidate = candidate.clone();
        self.round.ponged.insert(id.clone());
        match stage {
            Stage::Pinging => {}
            Stage::Proving(proof) | Stage::Confirming(proof) => proof.ponged = true,
            Stage::Settling(_) | Stage::Selecting | Stage::Verifying => return,
        }
        let selected_before = !matches!(stage, Stage::Pinging);
        if !candidate.online {
            self.warn(
                Warning::OfflineButAnswers,
                format!("the control server calls {} offline, and it answers: it is used", candidate.name),
            );
        }
        self.tell(Notice::Answered {
            node: candidate.name.clone(),
            milliseconds: round_trip.as_secs_f64() * 1000.0,
            via,
        });
        if !selected_before {
            let until = self.share(now);
            self.work_on(Work::Exit(candidate), Stage::Selecting, until);
            self.select(now);
        }
    }

    /// Selects what is worked on, once no other change is under way.
    pub(super) fn select(&mut self, now: Instant) {
        let State::Working { work, .. } = &self.state else { return };
        if self.patching.is_some() {
            return;
        }
        let Some(snapshot) = &self.snapshot else { return };
        let wanted = match work {
            Work::Exit(candidate) => MaskedPrefs::new()
                .pin_exit_node(&candidate.id)
                .exit_node_allow_lan_access(false)
                .accept_routes(self.config.accept_routes)
                .accept_dns(self.config.accept_dns),
            Work::FailOpen => MaskedPrefs::new().pin_exit_node(&StableId::default()),
            Work::Normal | Work::Name(_) => return self.look_at_the_work(now),
        };
        let change = wanted.against(&snapshot.prefs);
        if !change.is_empty() {
            return self.patch(change);
        }
        let (work, until) = (work.clone(), now + VERIFY_PATIENCE);
        if let Work::Exit(candidate) = &work {
            self.tell(Notice::Selected { node: candidate.name.clone(), id: candidate.id.to_string() });
        }
        self.work_on(work, Stage::Verifying, until);
        self.look_at_the_work(now);
    }

    /// Reacts to a fresh look at tailscaled.
    pub(super) fn look_at_the_work(&mut self, now: Instant) {
        let State::Working { work, stage, .. } = &self.state else { return };
        let Some(snapshot) = &self.snapshot else { return };
        let work = work.clone();
        match stage {
            Stage::Settling(_) => {
                // It settles on something, waits on, or fails once its time is over.
                if let Work::Name(arg) = work
                    && !self.name(arg, now)
                {
                    self.next_exit_node(now);
                }
            }
            Stage::Selecting if matches!(work, Work::Normal) => {
                if self.patching.is_none()
                    && self.seen >= self.needed
                    && snapshot.status.backend_state == BackendState::Running
                {
                    self.prove(work, now);
                }
            }
            Stage::Verifying => {
                if self.seen >= self.needed && judge::is_established(snapshot, &work).is_ok() {
                    self.prove(work, now);
                }
            }
            Stage::Confirming(proof) => {
                if self.seen < self.needed {
                    return;
                }
                match judge::is_established(snapshot, &work) {
                    Ok(()) => {
                        let proof = proof.clone();
                        self.record(&work, &proof);
                    }
                    Err(message) => self.give_up(&work, Reason::ExitNotTaken, message, now),
                }
            }
            Stage::Pinging | Stage::Selecting | Stage::Proving(_) => {}
        }
    }
}
