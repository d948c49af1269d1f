//! What the machine is in the middle of. A state holds only what is true in it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use sallyport_tailnet::{ExitNodeArg, StableId};

use super::{Ticket, Unreached};
use crate::address::PerFamily;
use crate::check::Learned;
use crate::events::{Attempt, Ready};
use crate::exit_node::Candidate;
use crate::login::Why;
use crate::probe::Crossing;

/// Whether a state file of an earlier run may still lie there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateFile {
    Perhaps,
    Gone,
}

#[derive(Debug)]
pub(super) enum State {
    New,
    /// tailscaled is not reached yet, or again.
    Reaching {
        since: Instant,
        last: Option<Unreached>,
        lost: bool,
    },
    /// The node is not in the tailnet yet.
    LoggingIn(LoggingIn),
    /// The node is in; a route is being established.
    Working {
        work: Work,
        stage: Stage,
        until: Instant,
    },
    /// The state file is being written.
    Recording {
        ready: Box<Ready>,
    },
    Ended,
}

#[derive(Debug)]
pub(super) struct LoggingIn {
    pub(super) why: Option<Why>,
    pub(super) sent: Sent,
    /// When the login was handed over.
    pub(super) sent_at: Instant,
    /// Whether the daemon was seen without its poll of the control server since: what is seen after that is new.
    pub(super) saw_break: bool,
    /// Since when the daemon is up with tags that are not those asked for.
    pub(super) wrong_tags_since: Option<Instant>,
    pub(super) refusal: Option<String>,
    pub(super) complaint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// No login is necessary.
    Unneeded,
    UnderWay(Ticket),
    Done,
}

/// What is being established.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// The normal route: no exit node is configured.
    Normal,
    /// The normal route, because every exit node failed and that is allowed.
    FailOpen,
    /// A name whose node is not there yet.
    Name(ExitNodeArg),
    /// An exit node.
    Exit(Candidate),
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Waiting for news that would make a name good.
    Settling(Attempt),
    /// Waiting for an answer to a ping.
    Pinging,
    /// A change of preferences is under way or waited for.
    Selecting,
    /// Waiting for tailscaled to show it.
    Verifying,
    /// Probe and check are under way.
    Proving(Box<Proof>),
    /// Everything is proved; one last look that it still is so.
    Confirming(Box<Proof>),
}

/// What was proved.
#[derive(Clone, Debug, Default)]
pub(super) struct Proof {
    pub(super) ticket: Ticket,
    /// Whether the exit node answered a ping while it was already selected.
    pub(super) ponged: bool,
    pub(super) crossed: Option<PerFamily<Option<Crossing>>>,
    pub(super) learned: Option<PerFamily<Option<Learned>>>,
}

/// One pass over the exit nodes.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) queue: VecDeque<Work>,
    pub(super) tried: BTreeSet<StableId>,
    /// Those that answered a ping.
    pub(super) ponged: BTreeSet<StableId>,
    pub(super) attempts: Vec<Attempt>,
}
