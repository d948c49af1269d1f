//! tailscaled as the driver uses it: looks, changes, logins, and what its errors mean for the guard.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use sallyport_tailnet::{
    Client, Error, ExitNodeArg, MaskedPrefs, Peers, Prefs, StableId, StartOptions, Status,
};
use secrecy::SecretString;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::check::with_causes;
use crate::env::Config;
use crate::exit_node;
use crate::exposure;
use crate::machine::{DaemonRefusal, Event, Exposure, LoginOrder, Snapshot, Ticket, Unreached};
use crate::reason::Reason;
use crate::secret::KeyFileError;

/// How long tailscaled may take to stop trying.
const STAND_DOWN: Duration = Duration::from_secs(1);

/// tailscaled behind its socket.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    client: Client,
    socket: PathBuf,
    exit_nodes: Vec<ExitNodeArg>,
}

/// What went wrong with a request.
#[derive(Debug)]
pub(super) enum Trouble {
    /// tailscaled is not there (any more).
    Gone,
    /// It refused, or did not answer.
    Refused(DaemonRefusal),
}

impl Trouble {
    pub(super) fn key_unreadable(error: &KeyFileError) -> Self {
        Self::Refused(DaemonRefusal { reason: Reason::KeyUnreadable, message: with_causes(error) })
    }

    /// The event that tells of it.
    pub(super) fn into_event(self, refused: impl FnOnce(DaemonRefusal) -> Event) -> Event {
        match self {
            Self::Gone => Event::Lost,
            Self::Refused(refusal) => refused(refusal),
        }
    }
}

impl Daemon {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            client: Client::new(config.socket.clone()),
            socket: config.socket.clone(),
            exit_nodes: config.exit_nodes.clone(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Why tailscaled is not reached, as far as this error tells; none if it is another matter.
    pub(super) fn unreached(&self, error: &Error) -> Option<Unreached> {
        let socket = self.socket.display();
        match error {
            Error::SocketMissing { .. } => Some(Unreached::Missing(self.socket.clone())),
            Error::NotPermitted { .. } => {
                Some(Unreached::NotPermitted(format!("the guard may not open {socket}")))
            }
            Error::AccessDenied { .. } => Some(Unreached::NotPermitted(with_causes(error))),
            Error::Refused { .. } => Some(Unreached::Silent(format!("nobody listens on {socket}"))),
            Error::Connect { source, .. } => {
                Some(Unreached::Silent(format!("cannot connect to {socket}: {source}")))
            }
            Error::NoAnswer { .. } => {
                Some(Unreached::Silent(format!("{socket} accepts, and nobody answers")))
            }
            _ => None,
        }
    }

    /// Looks, and tells what was seen.
    pub(super) async fn look_and_tell(&self, ticket: Ticket, events: &mpsc::Sender<Event>) {
        let event = match self.look().await {
            Ok(snapshot) => Event::Seen(ticket, Box::new(snapshot)),
            Err(error) => match self.trouble(&error, "tell its status") {
                Trouble::Gone => Event::Lost,
                Trouble::Refused(refusal) => Event::Refused(refusal),
            },
        };
        let _ = events.send(event).await;
    }

    pub(super) async fn look(&self) -> Result<Snapshot, Error> {
        let auto = self.exit_nodes.iter().any(|arg| matches!(arg, ExitNodeArg::Auto));
        let (status, prefs, uid, suggested) = tokio::join!(
            self.client.status(Peers::Include),
            self.client.prefs(),
            self.uid(),
            self.suggested(auto),
        );
        let (status, prefs) = (status?, prefs?);
        let advertising = self.advertising(&status).await;
        let exposure = self.exposure(uid);
        let key_expires_in = until(status.this_node.key_expiry.as_deref());
        Ok(Snapshot { status, prefs, suggested, exposure, key_expires_in, advertising })
    }

    async fn uid(&self) -> Option<u32> {
        UnixStream::connect(&self.socket).await.ok()?.peer_cred().ok().map(|peer| peer.uid())
    }

    fn exposure(&self, uid: Option<u32>) -> Exposure {
        exposure::look(&self.socket, uid)
    }

    async fn suggested(&self, wanted: bool) -> Option<StableId> {
        if !wanted {
            return None;
        }
        Some(self.client.suggest_exit_node().await.ok()??.id)
    }

    /// The nodes that advertise default routes and are not offered, where a configured one is among these.
    async fn advertising(&self, status: &Status) -> Option<Vec<StableId>> {
        let asked = exit_node::worth_asking(status, &self.exit_nodes);
        if asked.is_empty() {
            return None;
        }
        let mut advertising = Vec::new();
        for (id, address) in asked {
            let who = self.client.whois(&address.to_string()).await;
            let who = who.ok().flatten();
            if who.is_some_and(|who| who.node.host_info.routes.iter().any(|route| route.prefix_len() == 0)) {
                advertising.push(id);
            }
        }
        Some(advertising)
    }

    pub(super) async fn patch(&self, change: &MaskedPrefs) -> Result<Prefs, Trouble> {
        let patched = self.client.patch_prefs(change).await;
        patched.map_err(|error| self.trouble(&error, "change its preferences"))
    }

    pub(super) async fn log_in(&self, order: LoginOrder, key: Option<SecretString>) -> Result<(), Trouble> {
        let options = StartOptions { update_prefs: Some(*order.prefs), auth_key: key };
        self.client.start(&options).await.map_err(|error| self.trouble(&error, "start a login"))?;
        if order.force {
            let asked = self.client.login_interactive().await;
            asked.map_err(|error| self.trouble(&error, "log in"))?;
        }
        Ok(())
    }

    pub(super) async fn stand_down(&self) {
        let change = MaskedPrefs::new().want_running(false);
        // A courtesy to the control server; the start has failed whatever comes of it.
        let _ = tokio::time::timeout(STAND_DOWN, self.client.patch_prefs(&change)).await;
    }

    fn trouble(&self, error: &Error, what: &str) -> Trouble {
        let message = format!("tailscaled would not {what}: {}", with_causes(error));
        match error {
            Error::SocketMissing { .. }
            | Error::Refused { .. }
            | Error::Connect { .. }
            | Error::Disconnected { .. } => Trouble::Gone,
            Error::NotPermitted { .. } | Error::AccessDenied { .. } => {
                Trouble::Refused(DaemonRefusal { reason: Reason::DaemonNotPermitted, message })
            }
            Error::NoAnswer { .. } | Error::NotReady => {
                Trouble::Refused(DaemonRefusal { reason: Reason::DaemonSilent, message })
            }
            Error::Precondition { .. }
            | Error::PrefsRefused { .. }
            | Error::Http { .. }
            | Error::Malformed { .. } => {
                Trouble::Refused(DaemonRefusal { reason: Reason::DaemonRefused, message })
            }
        }
    }
}

/// How long until a time of tailscaled's, if that is in the future.
fn until(expiry: Option<&str>) -> Option<Duration> {
    let expiry: Timestamp = expiry?.parse().ok()?;
    Duration::try_from(expiry.duration_since(Timestamp::now())).ok()
}
