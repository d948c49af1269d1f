//! Whether packets come through: a TCP connection to a target on the Internet and back, nothing sent. Only this sees
//! an exit node whose own Internet side is dead.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::address::{Family, PerFamily};
use crate::check::with_causes;
use crate::dns::{self, Resolvers};
use crate::env::{Host, Target};
use crate::families::{self, Need};
use crate::path::{Path, PathError};

/// How long a family is tried. The first packet after a change of exit node may meet WireGuard's 5 s handshake retry.
const PATIENCE: Duration = Duration::from_secs(6);
/// When another connection is tried beside one that has no answer yet: sooner than TCP's own second.
const AGAIN: Duration = Duration::from_millis(400);
/// Most connections under way at once.
const MAX_UNDER_WAY: usize = 4;

/// Where to, and by which way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The targets.
    pub targets: Vec<Target>,
    /// Where names among them are looked up.
    pub resolvers: Resolvers,
    /// The way to them.
    pub path: Path,
}

/// What came of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// No target has an address of this family.
    NoTarget,
    /// A connection was made.
    Through {
        /// To where.
        target: SocketAddr,
        /// How long it took.
        took: Duration,
    },
    /// None was made in time.
    Failed {
        /// What was wrong last, with its causes.
        message: String,
    },
    /// Packets would leave past the tailnet interface; none was sent.
    Bypass {
        /// In words.
        message: String,
    },
}

impl Crossing {
    /// Whether packets came through.
    #[must_use]
    pub fn is_through(&self) -> bool {
        match self {
            Self::Through { .. } => true,
            Self::NoTarget | Self::Failed { .. } | Self::Bypass { .. } => false,
        }
    }
}

/// Probes both families side by side. `None` is a family that was not waited for.
pub async fn cross(probe: &Probe) -> PerFamily<Option<Crossing>> {
    let ipv4 = cross_family(probe, Family::Ipv4);
    let ipv6 = cross_family(probe, Family::Ipv6);
    families::side_by_side(ipv4, ipv6, PerFamily::<Need>::default(), Crossing::is_through).await
}

async fn cross_family(probe: &Probe, family: Family) -> Crossing {
    let start = Instant::now();
    let mut attempts = JoinSet::new();
    let mut failure = None;
    let mut candidates = 0;
    let aimed = |target: &&Target| match target.host {
        Host::Address(address) => Family::of(address) == family,
        Host::Name(_) => true,
    };
    for target in probe.targets.iter().filter(aimed) {
        candidates += 1;
        let (probe, target) = (probe.clone(), target.clone());
        attempts.spawn(async move { attempt(&probe, &target, family).await });
    }
    if candidates == 0 {
        return Crossing::NoTarget;
    }
    loop {
        let left = PATIENCE.saturating_sub(start.elapsed());
        tokio::select! {
            biased;
            Some(outcome) = attempts.join_next() => match outcome {
                Ok(Ok(target)) => return Crossing::Through { target, took: start.elapsed() },
                Ok(Err(Attempt::Bypass(message))) => return Crossing::Bypass { message },
                Ok(Err(Attempt::Failed(message))) => failure = Some(message),
                Err(panic) => failure = Some(panic.to_string()),
            },
            () = sleep(AGAIN.min(left)) => {
                if start.elapsed() >= PATIENCE {
                    break;
                }
                if attempts.len() < MAX_UNDER_WAY {
                    for target in probe.targets.iter().filter(aimed) {
                        let (probe, target) = (probe.clone(), target.clone());
                        attempts.spawn(async move { attempt(&probe, &target, family).await });
                    }
                }
            }
        }
    }
    let silence = || format!("no connection within {} s", PATIENCE.as_secs());
    Crossing::Failed { message: failure.unwrap_or_else(silence) }
}

/// Why one attempt made no connection.
enum Attempt {
    Bypass(String),
    Failed(String),
}

async fn attempt(probe: &Probe, target: &Target, family: Family) -> Result<SocketAddr, Attempt> {
    let addresses = dns::look_up(&target.host, family, &probe.path, &probe.resolvers)
        .await
        .map_err(|error| Attempt::Failed(with_causes(&error)))?;
    let mut failure = None;
    for address in addresses {
        match connect(probe, address, target.port).await {
            Ok(target) => return Ok(target),
            Err(error @ PathError::Bypass { .. }) => return Err(Attempt::Bypass(with_causes(&error))),
            Err(error) => failure = Some(with_causes(&error)),
        }
    }
    Err(Attempt::Failed(failure.unwrap_or_else(|| "no address".to_owned())))
}

async fn connect(probe: &Probe, address: IpAddr, port: u16) -> Result<SocketAddr, PathError> {
    let target = SocketAddr::new(address, port);
    probe.path.connect(target).await.map(|_| target)
}

#[cfg(test)]
mod tests;
