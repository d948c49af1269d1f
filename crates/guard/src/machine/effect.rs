//! What the machine hears, and what it wants done.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use sallyport_tailnet::{MaskedPrefs, Prefs, StableId, Status};
use serde::Serialize;

use crate::address::PerFamily;
use crate::check::{Learned, Question};
use crate::events::{Failure, Notice, Ready};
use crate::probe::{Crossing, Probe};
use crate::reason::Reason;

/// Ties an answer to what asked for it. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// Whether there is an auth key to log in with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyGiven {
    /// There is.
    Yes,
    /// There is none.
    No,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// The start begins.
    Begin,
    /// tailscaled cannot be reached; the driver goes on trying.
    Unreached(Unreached),
    /// tailscaled's status and preferences, read after this ticket was given out.
    Seen(Ticket, Box<Snapshot>),
    /// tailscaled, reached before, is gone.
    Lost,
    /// tailscaled refused to be looked at.
    Refused(DaemonRefusal),
    /// tailscaled said something by itself.
    News(News),
    /// A login was handed to tailscaled, or refused by it. What comes of it is seen.
    LoginSent(Ticket, Result<(), DaemonRefusal>),
    /// A change of preferences was made, or refused.
    Patched(Ticket, Result<Box<Prefs>, DaemonRefusal>),
    /// An exit node answered a ping.
    Ponged {
        /// Which.
        id: StableId,
        /// How long it took.
        round_trip: Duration,
        /// By which path.
        via: String,
    },
    /// The probe is through.
    Crossed(Ticket, PerFamily<Option<Crossing>>),
    /// The check of the public address is through.
    Learned(Ticket, PerFamily<Option<Learned>>),
    /// The state file is written, or not, and why.
    StateFileWritten(Result<(), String>),
    /// Somebody wants the guard to end.
    Interrupted,
    /// Time has passed.
    Tick,
}

/// Why tailscaled is not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// There is no socket.
    Missing(PathBuf),
    /// The socket is there and nobody answers on it: nobody listens, or whoever listens is hung.
    Silent(String),
    /// The guard may not use it.
    NotPermitted(String),
}

impl Unreached {
    pub(super) fn message(&self) -> String {
        match self {
            Self::Missing(path) => format!("there is no socket at {}", path.display()),
            Self::Silent(message) | Self::NotPermitted(message) => message.clone(),
        }
    }
}

/// A request that tailscaled refused or did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonRefusal {
    /// The word.
    pub reason: Reason,
    /// In words.
    pub message: String,
}

/// What tailscaled says by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// State, preferences or peers changed: look again.
    Changed,
    /// Something failed, in the words of the control server or the daemon.
    Error(String),
    /// The login does not come forward, in the daemon's words.
    Complaint(String),
}

/// What is seen of tailscaled.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Its status, peers included.
    pub status: Status,
    /// Its preferences.
    pub prefs: Prefs,
    /// The exit node that it suggests; asked for only where `auto:any` is configured.
    pub suggested: Option<StableId>,
    /// Whether the worker can reach its API.
    pub exposure: Exposure,
    /// How long this node's own key is still good, if it ever ends.
    pub key_expires_in: Option<Duration>,
    /// The nodes that advertise default routes without their being in force here; asked for only where a configured one
    /// does not offer itself.
    pub advertising: Option<Vec<StableId>>,
}

/// Whether the worker can reach tailscaled's API, by which it could clear the exit node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// It cannot, as far as can be seen.
    #[default]
    Private,
    /// It can, and why.
    Exposed(String),
}

impl Exposure {
    /// The word of the state file.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Exposed(_) => "exposed",
        }
    }
}

/// A login to hand to tailscaled.
#[derive(Clone, Debug, PartialEq)]
pub struct LoginOrder {
    /// All its preferences.
    pub prefs: Box<Prefs>,
    /// Whether the auth key goes with it.
    pub use_key: bool,
    /// Whether a new identity is asked for although the node has one.
    pub force: bool,
}

/// Something to do.
#[derive(Debug)]
pub enum Effect {
    /// Reach tailscaled, follow its bus, and look: [`Event::Seen`]. Until then [`Event::Unreached`] each time the
    /// reason changes; later [`Event::Lost`].
    Connect(Ticket),
    /// Look again: [`Event::Seen`]. One look may answer several.
    Read(Ticket),
    /// Hand over a login: [`Event::LoginSent`].
    Login(Ticket, LoginOrder),
    /// Change preferences: [`Event::Patched`].
    Patch(Ticket, MaskedPrefs),
    /// Tell tailscaled to stop trying. Nothing comes back.
    StandDown,
    /// Ping a node until it answers: [`Event::Ponged`]. A new one replaces it.
    Ping {
        /// Which.
        id: StableId,
        /// Its tailnet address.
        address: IpAddr,
    },
    /// Probe the way out: [`Event::Crossed`].
    Cross(Ticket, Probe),
    /// Ask for the public address: [`Event::Learned`].
    Check(Ticket, Question),
    /// Stop pinging, probing and asking.
    Abandon,
    /// Write the state file: [`Event::StateFileWritten`].
    WriteStateFile(Box<Ready>),
    /// Remove the state file. Nothing comes back: a file that cannot be removed is told by the driver.
    RemoveStateFile,
    /// Tell the user.
    Tell(Notice),
    /// The start is over.
    Finish(Outcome),
}

/// How the start ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The worker may start.
    Ready(Box<Ready>),
    /// It may not.
    Failed(Box<Failure>),
}
