//! What the guard tells while it works. The command line prints each as one line for people and as one JSON object for
//! programs, from the same value.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{Timestamp, Unit};
use serde::{Serialize, Serializer};

use crate::address::Family;
use crate::posture::Posture;
use crate::reason::Reason;

/// The steps of a start. An error names the one that used up the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Reading the configuration.
    Configuration,
    /// Reaching tailscaled.
    Daemon,
    /// Logging in.
    Login,
    /// Finding the exit node in the tailnet.
    Resolve,
    /// Waiting for the exit node to answer.
    Ping,
    /// Selecting the exit node.
    Select,
    /// Probing the way through it, and asking for the public address.
    Prove,
    /// Writing the state file.
    StateFile,
}

impl Step {
    /// What the guard does in this step, to follow "while".
    #[must_use]
    pub fn doing(self) -> &'static str {
        match self {
            Self::Configuration => "reading the configuration",
            Self::Daemon => "waiting for tailscaled",
            Self::Login => "logging in",
            Self::Resolve => "looking for the exit node",
            Self::Ping => "waiting for the exit node to answer",
            Self::Select => "selecting the exit node",
            Self::Prove => "probing the way out",
            Self::StateFile => "writing the state file",
        }
    }
}

/// A notice with its time: one line of output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// When, UTC.
    #[serde(rename = "time", serialize_with = "as_utc")]
    pub at: Timestamp,
    /// How long after the beginning.
    #[serde(rename = "elapsed_ms", serialize_with = "as_milliseconds")]
    pub elapsed: Duration,
    /// What.
    #[serde(flatten)]
    pub notice: Notice,
}

impl Report {
    /// A notice of this moment, the beginning.
    #[must_use]
    pub fn now(notice: Notice) -> Self {
        Self { at: Timestamp::now(), elapsed: Duration::ZERO, notice }
    }
}

fn as_utc<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&at.round(Unit::Millisecond).unwrap_or(*at))
}

fn as_milliseconds<S: Serializer>(elapsed: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // Tenths are enough, and short to read.
    serializer.serialize_f64((elapsed.as_secs_f64() * 10_000.0).round() / 10.0)
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Notice {
    /// The guard begins.
    Started {
        /// Version of the guard.
        version: &'static str,
        /// The posture asked for.
        posture: Posture,
        /// The exit nodes, in order, as they were named.
        exit_nodes: Vec<String>,
        /// Seconds that the whole start may take.
        wait_seconds: u64,
    },
    /// A step takes its time.
    Waiting {
        /// Which.
        step: Step,
        /// What is known of why.
        message: String,
    },
    /// tailscaled answers.
    Daemon {
        /// Its version.
        version: String,
        /// Its state.
        state: String,
        /// Whether it has a TUN device.
        tun: bool,
    },
    /// The node is being logged in.
    LoggingIn {
        /// Where.
        server: String,
        /// Why it is necessary.
        why: String,
    },
    /// The node is in the tailnet.
    LoggedIn {
        /// What the tailnet calls it.
        name: String,
        /// Its addresses.
        addresses: Vec<IpAddr>,
        /// The tags in force.
        tags: Vec<String>,
    },
    /// An exit node has its turn.
    Trying {
        /// As it was named.
        exit_node: String,
        /// What the tailnet calls it.
        node: String,
        /// Its stable id.
        id: String,
        /// What the control server says of its connection.
        online: bool,
    },
    /// The exit node answered a ping.
    Answered {
        /// Its name.
        node: String,
        /// The round trip.
        milliseconds: f64,
        /// By which path: an address, or a relay's code.
        via: String,
    },
    /// The exit node was selected just now.
    Selected {
        /// Its name.
        node: String,
        /// Its stable id.
        id: String,
    },
    /// The node is set as it should be; nothing was changed.
    Unchanged {
        /// The exit node's name.
        node: String,
    },
    /// An exit node could not be used.
    AttemptFailed(Attempt),
    /// Packets come through.
    Through {
        /// By these families.
        families: Vec<Family>,
    },
    /// The public address.
    Address {
        /// Its family.
        family: Family,
        /// The address.
        address: IpAddr,
        /// The service that told it.
        service: String,
        /// Whether it is one that was expected; absent where nothing is.
        #[serde(skip_serializing_if = "Option::is_none")]
        expected: Option<bool>,
    },
    /// A service told no address.
    ServiceMissed {
        /// The family it was asked over.
        family: Family,
        /// The service.
        service: String,
        /// What was wrong.
        message: String,
    },
    /// Something to know that stops nothing.
    Warning {
        /// A stable word.
        word: Warning,
        /// In words.
        message: String,
    },
    /// The worker may start.
    Ready(Box<Ready>),
    /// The worker may not start.
    Failed(Box<Failure>),
}

/// An exit node that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// As it was named.
    pub exit_node: String,
    /// Why.
    pub reason: Reason,
    /// In words.
    pub message: String,
}

/// What the guard established.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ready {
    /// The posture.
    pub posture: Posture,
    /// The exit node's name in the tailnet; none by the normal route.
    pub exit_node: Option<String>,
    /// Its stable id.
    pub exit_node_id: Option<String>,
    /// The public IPv4 address, if a service told it.
    pub ipv4: Option<IpAddr>,
    /// The public IPv6 address, if a service told it.
    pub ipv6: Option<IpAddr>,
    /// The families that packets come through by; empty by the normal route, which is not probed.
    pub families: Vec<Family>,
    /// What the tailnet calls this node.
    pub hostname: String,
    /// The tags in force.
    pub tags: Vec<String>,
    /// How the posture is kept from now on.
    pub keeping: Keeping,
    /// `none` or `off`.
    pub kill_switch: &'static str,
    /// Whether the worker can reach tailscaled's API: `exposed` or `private`.
    pub localapi: &'static str,
    /// Every exit node failed, and the normal route was allowed.
    pub fail_open: bool,
}

/// How a posture is kept once the guard has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keeping {
    /// There is nothing to keep: the normal route.
    Nothing,
    /// By tailscaled's own routes: lost exit nodes blackhole, a lost tailscaled leaks.
    ByRoutes,
    /// Not at all: a workload that does not use tailscaled's proxy, and tailscaled itself without its exit node, dial
    /// directly. The posture was checked, it is not held.
    CheckedNotHeld,
}

/// Why the worker may not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The stable word.
    pub reason: Reason,
    /// The process's exit code.
    pub exit_code: u8,
    /// The step that failed.
    pub step: Step,
    /// In words.
    pub message: String,
    /// What to do next.
    pub advice: &'static str,
    /// Every exit node that was tried, with its own reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

/// The warnings, one stable word each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warning {
    /// No kill switch: what the exit node's routes do not hold leaves by the normal route.
    KillSwitchNone,
    /// The worker can reach tailscaled's API.
    LocalapiExposed,
    /// tailscaled runs in userspace: the posture was checked, not held.
    CheckedNotHeld,
    /// The control server calls the exit node offline, and it answers.
    OfflineButAnswers,
    /// IPv6 does not come through.
    NoIpv6,
    /// IPv4 does not come through.
    NoIpv4,
    /// An address family may be used whose address nobody verified.
    FamilyUnverified,
    /// No service told the public address.
    AddressNotLearned,
    /// An accepted route to public addresses goes past the exit node.
    PublicRouteAccepted,
    /// Every exit node failed and the normal route was taken.
    FailOpen,
    /// A variable is set that has no effect here.
    NoEffect,
    /// The key of this node expires soon.
    KeyExpires,
    /// The guard runs in the machine's own network namespace.
    HostNamespace,
    /// A state file could not be removed, and tells of a posture that is not held.
    StateFileStays,
    /// The process could not be hardened.
    NotHardened,
}
