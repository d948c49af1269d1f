//! The daemon's bus of notifications: one stream ([`Watch`]), and one that comes back ([`Bus`]).
//!
//! The stream has no heartbeat, so silence proves nothing: poll `status` every few seconds as well. Its end does prove
//! something, and is the fastest sign that the daemon died; it is reported at once, before any attempt to reconnect.

use std::fmt;
use std::future::Future;
use std::ops::BitOr;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::http::{self, Call, Connection, Opening};
use crate::wire::notify::Notify;

/// A line longer than this is no notification (a full network map of a large tailnet takes tens of MB).
const LINE_LIMIT: usize = 64 << 20;
/// How much of a refusal is read.
const REFUSAL_LIMIT: usize = 64 << 10;
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_LAST: Duration = Duration::from_secs(2);

/// What a watch is to be told (`ipn/backend.go:NotifyWatchOpt`). Daemons ignore bits that they do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mask(u64);

impl Mask {
    /// Nothing beyond what every watch gets.
    pub const NONE: Self = Self(0);
    /// Traffic counters every 2 s.
    pub const ENGINE: Self = Self(1);
    /// The state, the session's name and the login URL, at once.
    pub const INITIAL_STATE: Self = Self(1 << 1);
    /// The preferences, at once.
    pub const INITIAL_PREFS: Self = Self(1 << 2);
    /// The network map, at once. Large.
    pub const INITIAL_NET_MAP: Self = Self(1 << 3);
    /// What is wrong, at once.
    pub const INITIAL_HEALTH: Self = Self(1 << 7);
    /// At most one map every 3 s. Rejected together with any of the next four.
    pub const RATE_LIMIT: Self = Self(1 << 8);
    /// Peers that come, change and go.
    pub const PEER_CHANGES: Self = Self(1 << 12);
    /// Never a whole network map.
    pub const NO_NET_MAP: Self = Self(1 << 13);
    /// The status, at once.
    pub const INITIAL_STATUS: Self = Self(1 << 14);
    /// Small changes of peers.
    pub const PEER_PATCHES: Self = Self(1 << 15);
    /// WireGuard state of each peer.
    pub const PEER_WIREGUARD: Self = Self(1 << 18);
    /// What a guard has to know: state, preferences, health and every peer event, never a whole map. 61574.
    pub const GUARD: Self = Self(
        Self::INITIAL_STATE.0
            | Self::INITIAL_PREFS.0
            | Self::INITIAL_HEALTH.0
            | Self::PEER_CHANGES.0
            | Self::NO_NET_MAP.0
            | Self::INITIAL_STATUS.0
            | Self::PEER_PATCHES.0,
    );

    /// Returns the bits as the daemon reads them.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl BitOr for Mask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One stream of notifications. Dropping it closes the connection.
pub struct Watch {
    name: String,
    body: Incoming,
    /// What has come and was not yet handed out; may hold several lines and part of one.
    pending: BytesMut,
    /// How much of `pending` is known to hold no end of line.
    searched: usize,
    /// Held for its drop.
    _connection: Connection,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) async fn open(socket: &Path, call: Call, deadline: Duration) -> Result<Self, Error> {
        let name = call.name();
        let opening = tokio::time::timeout(deadline, async {
            // The daemon sends the head once it listens for us, so nothing after this is missed.
            let Opening { response, connection } = http::open(socket, call).await?;
            if response.status().is_success() {
                return Ok(Opening { response, connection });
            }
            let status = response.status();
            let body = http_body_util::Limited::new(response.into_body(), REFUSAL_LIMIT).collect().await;
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            Err(http::refusal(&name, status, &body))
        })
        .await;
        let Ok(opening) = opening else { return Err(Error::NoAnswer { request: name, after: deadline }) };
        let Opening { response, connection } = opening?;
        Ok(Self {
            name,
            body: response.into_body(),
            pending: BytesMut::new(),
            searched: 0,
            _connection: connection,
        })
    }

    /// Waits for the next notification; `None` when the daemon closed the stream. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Disconnected`] when the connection broke, as it does at once when the daemon dies;
    /// [`Error::Malformed`] for a line that is none. After either the stream is of no further use.
    pub async fn next(&mut self) -> Result<Option<Notify>, Error> {
        loop {
            if let Some(line) = self.line() {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return match serde_json::from_slice(&line) {
                    Ok(notify) => Ok(Some(notify)),
                    Err(error) => Err(Error::malformed(&self.name, error.to_string())),
                };
            }
            if self.pending.len() > LINE_LIMIT {
                return Err(Error::malformed(&self.name, format!("a line longer than {LINE_LIMIT} bytes")));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.pending.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => {
                    let request = self.name.clone();
                    return Err(Error::Disconnected { request, source: Some(Box::new(error)) });
                }
                None => return Ok(None),
            }
        }
    }

    /// Takes the next whole line, without its end.
    fn line(&mut self) -> Option<BytesMut> {
        let Some(at) = self.pending[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.pending.len();
            return None;
        };
        let line = self.pending.split_to(self.searched + at);
        self.pending.advance(1);
        self.searched = 0;
        Some(line)
    }
}

/// What a [`Bus`] reports.
#[derive(Debug)]
pub enum BusEvent {
    /// The first connection stands; from here on nothing is missed.
    Connected,
    /// A connection stands again. What happened in between is unknown: read `status` and `prefs` now.
    Reconnected,
    /// The stream ended, or an attempt to connect failed; the next attempt follows by itself, after a pause that grows
    /// from 50 ms to 2 s.
    Disconnected(Error),
    /// The daemon said something.
    Notify(Box<Notify>),
}

type Connecting = Pin<Box<dyn Future<Output = Result<Watch, Error>> + Send>>;

enum Phase {
    Pausing(Instant),
    Connecting(Connecting),
    Watching(Box<Watch>),
}

/// A stream of notifications without an end: it reconnects, and says so.
pub struct Bus {
    client: Client,
    mask: Mask,
    phase: Phase,
    backoff: Duration,
    ever_connected: bool,
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("client", &self.client).field("mask", &self.mask).finish_non_exhaustive()
    }
}

impl Bus {
    pub(crate) fn new(client: Client, mask: Mask) -> Self {
        let phase = connecting(&client, mask);
        Self { client, mask, phase, backoff: BACKOFF_FIRST, ever_connected: false }
    }

    /// Waits for the next event. Cancelling loses nothing.
    pub async fn next(&mut self) -> BusEvent {
        loop {
            match &mut self.phase {
                Phase::Pausing(until) => {
                    tokio::time::sleep_until(*until).await;
                    self.phase = connecting(&self.client, self.mask);
                }
                Phase::Connecting(attempt) => match attempt.await {
                    Ok(watch) => {
                        self.phase = Phase::Watching(Box::new(watch));
                        let again = std::mem::replace(&mut self.ever_connected, true);
                        return if again { BusEvent::Reconnected } else { BusEvent::Connected };
                    }
                    Err(error) => return self.lost(error),
                },
                Phase::Watching(watch) => match watch.next().await {
                    Ok(Some(notify)) => {
                        // Only a daemon that talks has earned a fresh start.
                        self.backoff = BACKOFF_FIRST;
                        return BusEvent::Notify(Box::new(notify));
                    }
                    Ok(None) => return self.lost(Error::ended("GET watch-ipn-bus")),
                    Err(error) => return self.lost(error),
                },
            }
        }
    }

    fn lost(&mut self, error: Error) -> BusEvent {
        self.phase = Phase::Pausing(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF_LAST);
        BusEvent::Disconnected(error)
    }
}

fn connecting(client: &Client, mask: Mask) -> Phase {
    let client = client.clone();
    Phase::Connecting(Box::pin(async move { client.watch(mask).await }))
}
