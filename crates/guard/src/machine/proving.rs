//! The proof of the way out, and what happens where there is none: the next exit node, or the end.

use std::time::Instant;

use sallyport_tailnet::BackendState;

use super::{Effect, Machine, Proof, Stage, State, Ticket, VERIFY_PATIENCE, Work, judge, outcome};
use crate::address::PerFamily;
use crate::check::Learned;
use crate::events::{Attempt, Notice, Step, Warning};
use crate::probe::Crossing;
use crate::reason::Reason;

impl Machine {
    pub(super) fn prove(&mut self, work: Work, now: Instant) {
        let ticket = self.ticket();
        let ponged = matches!(&work, Work::Exit(candidate) if self.round.ponged.contains(&candidate.id));
        let proof = Box::new(Proof { ticket, ponged, ..Proof::default() });
        let until = match &work {
            Work::Exit(_) => self.share(now),
            Work::Normal | Work::FailOpen | Work::Name(_) => self.deadline,
        };
        let (probe, question) = self.questions(&work);
        if let Some(probe) = probe {
            self.effects.push(Effect::Cross(ticket, probe));
        }
        self.effects.push(Effect::Check(ticket, question));
        self.wait_for(Step::Prove, "probing the way out and asking for the public address".to_owned());
        self.work_on(work, Stage::Proving(proof), until);
    }

    pub(super) fn proof(&mut self, ticket: Ticket) -> Option<&mut Proof> {
        match &mut self.state {
            State::Working { stage: Stage::Proving(proof), .. } if proof.ticket == ticket => Some(proof),
            _ => None,
        }
    }

    pub(super) fn crossed(&mut self, ticket: Ticket, crossed: PerFamily<Option<Crossing>>, now: Instant) {
        let Some(proof) = self.proof(ticket) else { return };
        proof.crossed = Some(crossed);
        self.look_at_the_proof(now);
    }

    pub(super) fn learned(&mut self, ticket: Ticket, learned: PerFamily<Option<Learned>>, now: Instant) {
        let Some(proof) = self.proof(ticket) else { return };
        proof.learned = Some(learned);
        self.look_at_the_proof(now);
    }

    pub(super) fn look_at_the_proof(&mut self, now: Instant) {
        let State::Working { work, stage: Stage::Proving(proof), .. } = &self.state else { return };
        let (work, proof) = (work.clone(), proof.clone());
        let judged = match &work {
            Work::Exit(candidate) => judge::exit_proof(&self.config, candidate, &proof),
            Work::Normal | Work::FailOpen | Work::Name(_) => judge::normal_proof(&self.config, &proof),
        };
        match judged {
            judge::Judged::Wait => {}
            judge::Judged::Failed(reason, message) => {
                self.tell_of_services(&proof);
                self.give_up(&work, reason, message, now);
            }
            judge::Judged::Proved => {
                self.tell_of_services(&proof);
                self.tell_of_families(&work, &proof);
                let until = now + VERIFY_PATIENCE;
                self.abandon();
                self.work_on(work, Stage::Confirming(proof), until);
                self.read_needed(now);
            }
        }
    }

    /// The present work has failed; the next exit node has its turn, if this was one.
    pub(super) fn give_up(&mut self, work: &Work, reason: Reason, message: String, now: Instant) {
        self.abandon();
        match work {
            Work::Exit(candidate) => {
                let attempt = Attempt { exit_node: candidate.named.clone(), reason, message };
                self.attempt_failed(attempt);
                self.next_exit_node(now);
            }
            Work::Name(_) => self.next_exit_node(now),
            Work::Normal | Work::FailOpen => self.fail(reason, message),
        }
    }

    pub(super) fn attempt_failed(&mut self, attempt: Attempt) {
        self.tell(Notice::AttemptFailed(attempt.clone()));
        self.round.attempts.push(attempt);
    }

    pub(super) fn round_failed(&mut self, now: Instant) {
        if self.config.fail_open {
            let message =
                "every exit node failed, and TS_EXIT_NODE_FAIL_OPEN=true: the normal route is taken";
            self.warn(Warning::FailOpen, message.to_owned());
            self.work_on(Work::FailOpen, Stage::Selecting, self.deadline);
            return self.select(now);
        }
        let (reason, message) = outcome::of_round(&self.round.attempts);
        self.fail(reason, message);
    }

    pub(super) fn stage_out_of_time(&mut self, now: Instant) {
        let State::Working { work, stage, .. } = &self.state else { return };
        let work = work.clone();
        match stage {
            Stage::Settling(attempt) => {
                let attempt = attempt.clone();
                self.attempt_failed(attempt);
                self.next_exit_node(now);
            }
            Stage::Pinging => {
                let Work::Exit(candidate) = &work else { return };
                let (reason, message) = outcome::silent(candidate);
                self.give_up(&work, reason, message, now);
            }
            Stage::Selecting | Stage::Verifying | Stage::Confirming(_) => {
                let (reason, message) = self.not_established(&work);
                self.give_up(&work, reason, message, now);
            }
            Stage::Proving(proof) => {
                let (reason, message) = judge::unproved(&self.config, &work, proof);
                self.give_up(&work, reason, message, now);
            }
        }
    }

    pub(super) fn not_established(&self, work: &Work) -> (Reason, String) {
        let Some(snapshot) = &self.snapshot else {
            return (Reason::DaemonSilent, "tailscaled does not answer".to_owned());
        };
        if snapshot.status.backend_state != BackendState::Running {
            return (Reason::NotRunning, outcome::not_running(snapshot));
        }
        let message = judge::is_established(snapshot, work).err();
        (Reason::ExitNotTaken, message.unwrap_or_else(|| "tailscaled did not answer in time".to_owned()))
    }
}
