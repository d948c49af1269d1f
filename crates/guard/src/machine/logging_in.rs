//! Into the tailnet: whether a login is necessary, and waiting for what comes of it.

use std::collections::BTreeSet;
use std::time::Instant;

use sallyport_tailnet::BackendState;
use sallyport_tailnet::exit_node::short_name;

use super::{
    BREAK_PATIENCE, DaemonRefusal, Effect, KeyGiven, LoggingIn, LoginOrder, Machine, PROMPT_LOGIN, REREAD,
    Sent, State, Ticket, judge,
};
use crate::events::{Notice, Step};
use crate::login::{self, Need, Refusal, Why};
use crate::reason::Reason;

impl Machine {
    pub(super) fn reached(&mut self, now: Instant) {
        let Some(snapshot) = self.snapshot.clone() else { return };
        if self.config.exit_nodes.is_empty() && snapshot.prefs.names_exit_node() {
            let set = judge::shown_exit_node(&snapshot);
            return self.fail(
                Reason::ExitNodeLeftOver,
                format!("no exit node is configured, and the node has {set} set; the guard never clears it"),
            );
        }
        if let (Some(first), false, None) =
            (self.config.exit_nodes.first(), snapshot.status.tun, self.proxy_path())
        {
            let message =
                format!("tailscaled has no TUN device and no proxy; workload traffic would not use {first}");
            return self.fail(Reason::TunMissing, message);
        }
        self.warn_of_the_daemon(&snapshot);
        match login::need(&self.config, &snapshot.status, &snapshot.prefs) {
            Need::Nothing => self.log_in(None, Sent::Unneeded, now),
            Need::Login(why) => {
                if !self.send_login(why, now) {
                    return;
                }
            }
        }
        self.look_at_the_login(now);
    }

    pub(super) fn log_in(&mut self, why: Option<Why>, sent: Sent, now: Instant) {
        self.state = State::LoggingIn(LoggingIn {
            why,
            sent,
            sent_at: now,
            saw_break: false,
            wrong_tags_since: None,
            refusal: None,
            complaint: None,
        });
    }

    /// Whether a login could be sent.
    pub(super) fn send_login(&mut self, why: Why, now: Instant) -> bool {
        let Some(snapshot) = &self.snapshot else { return false };
        if why.needs_key() && self.key == KeyGiven::No {
            let message = format!("{why}, and there is no auth key to log in with");
            let reason = match why {
                Why::KeyNoLongerGood => Reason::NodeKeyExpired,
                _ => Reason::KeyMissing,
            };
            self.fail(reason, message);
            return false;
        }
        let order = LoginOrder {
            prefs: Box::new(login::start_prefs(&self.config, &snapshot.prefs)),
            use_key: why.needs_key(),
            force: why.forces(),
        };
        self.forget_state_file();
        self.tell(Notice::LoggingIn { server: self.config.login_server.clone(), why: why.to_string() });
        let ticket = self.ticket();
        self.log_in(Some(why), Sent::UnderWay(ticket), now);
        self.effects.push(Effect::Login(ticket, order));
        // What was seen before says nothing of after.
        self.needed = Ticket(self.tickets + 1);
        self.next_read = Some(now + REREAD);
        true
    }

    pub(super) fn login_sent(&mut self, ticket: Ticket, result: Result<(), DaemonRefusal>) {
        let State::LoggingIn(login) = &mut self.state else { return };
        if login.sent != Sent::UnderWay(ticket) {
            return;
        }
        login.sent = Sent::Done;
        match result {
            Err(refusal) => self.fail_by_daemon(refusal),
            Ok(()) => {
                let read = self.ticket();
                self.needed = read;
                self.effects.push(Effect::Read(read));
                self.wait_for(Step::Login, format!("waiting for {}", self.config.login_server));
            }
        }
    }

    /// What tailscaled says went wrong. Only a login that is under way makes it ours.
    pub(super) fn login_error(&mut self, text: String) {
        let State::LoggingIn(login) = &mut self.state else { return };
        if login.sent == Sent::Unneeded {
            return;
        }
        match login::refusal(&text) {
            Refusal::Later => {
                login.refusal = Some(text.clone());
                self.wait_for(Step::Login, text);
            }
            Refusal::Final(reason) => {
                let message = format!("the control server refused the login: {text}");
                let from_nothing = login.why.as_ref().is_some_and(Why::starts_from_nothing);
                if from_nothing {
                    // It would go on asking with a key that is no good. Nothing is lost: it was in no tailnet.
                    self.effects.push(Effect::StandDown);
                }
                self.fail(reason, message);
            }
        }
    }

    pub(super) fn look_at_the_login(&mut self, now: Instant) {
        if self.seen < self.needed {
            return;
        }
        let Some(snapshot) = self.snapshot.clone() else { return };
        let State::LoggingIn(login) = &mut self.state else { return };
        let status = &snapshot.status;
        if status.backend_state == BackendState::NeedsMachineAuth {
            return self.wait_for(
                Step::Login,
                "the control server waits for an administrator's approval".to_owned(),
            );
        }
        if status.backend_state == BackendState::NeedsLogin && login.sent == Sent::Unneeded {
            // It was on its way by itself, and its own key turned out to be no longer good.
            self.send_login(Why::KeyNoLongerGood, now);
            return;
        }
        login.saw_break |= !status.this_node.online;
        let is_new = login.saw_break || now >= login.sent_at + BREAK_PATIENCE;
        if !judge::is_in(status) || !(judge::is_anew(login.why.as_ref(), status, is_new)) {
            return;
        }
        let granted: BTreeSet<_> = status.this_node.tags.iter().cloned().collect();
        if !self.config.tags.as_ref().is_none_or(|wanted| wanted.is_subset(&granted)) {
            login.wrong_tags_since.get_or_insert(now);
            return;
        }
        let by_login = login.sent != Sent::Unneeded;
        self.after_outage = by_login && now >= login.sent_at + PROMPT_LOGIN;
        self.tell(Notice::LoggedIn {
            name: short_name(&status.this_node, &status.magic_dns_suffix),
            addresses: status.tailscale_ips.clone(),
            tags: status.this_node.tags.clone(),
        });
        self.in_since = by_login.then_some(now);
        self.start_work(now);
    }

    pub(super) fn tags_not_granted(&mut self) {
        let granted = self.snapshot.as_ref().map(|snapshot| snapshot.status.this_node.tags.join(", "));
        let granted = granted.filter(|tags| !tags.is_empty()).unwrap_or_else(|| "none".to_owned());
        let wanted: Vec<_> = self.config.tags.iter().flatten().cloned().collect();
        let message = format!("asked for the tags {}, and was granted {granted}", wanted.join(", "));
        self.fail(Reason::TagsRefused, message);
    }
}
