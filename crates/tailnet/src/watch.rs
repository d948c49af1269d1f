//! The bus: what tailscaled says of its own accord (`watch-ipn-bus`), as one stream and as one that comes back.

use std::ops::BitOr;
use std::time::Duration;

use crate::http::Lines;
use crate::{Client, Error, Notify};

/// What a watch is told of (tailscale `ipn/backend.go:NotifyWatchOpt`). Older daemons ignore bits that they do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mask(pub u32);

impl Mask {
    /// The state at the start.
    pub const INITIAL_STATE: Self = Self(2);
    /// The preferences at the start.
    pub const INITIAL_PREFS: Self = Self(4);
    /// What is wrong at the start.
    pub const INITIAL_HEALTH: Self = Self(128);
    /// Peers that come, change or go.
    pub const PEER_CHANGES: Self = Self(4096);
    /// No network maps, which are large.
    pub const NO_NET_MAP: Self = Self(8192);
    /// The status at the start.
    pub const INITIAL_STATUS: Self = Self(16384);
    /// Small changes of peers.
    pub const PEER_PATCHES: Self = Self(32768);
    /// What a guard needs, and nothing large.
    pub const GUARD: Self = Self(
        Self::INITIAL_STATE.0
            | Self::INITIAL_PREFS.0
            | Self::INITIAL_HEALTH.0
            | Self::PEER_CHANGES.0
            | Self::NO_NET_MAP.0
            | Self::INITIAL_STATUS.0
            | Self::PEER_PATCHES.0,
    );
}

impl BitOr for Mask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One open bus.
#[derive(Debug)]
pub struct Watch {
    lines: Lines,
}

impl Watch {
    pub(crate) fn new(lines: Lines) -> Self {
        Self { lines }
    }

    /// The next notification, or none when the daemon closed the stream: the fastest sign of its end. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Io`] when the connection broke, [`Error::Json`] for a line that is none.
    pub async fn next(&mut self) -> Result<Option<Notify>, Error> {
        match self.lines.next().await? {
            Some(line) => Ok(Some(serde_json::from_slice(&line)?)),
            None => Ok(None),
        }
    }
}

/// What a [`Bus`] tells.
#[derive(Debug)]
pub enum BusEvent {
    /// The bus is open, for the first time or again: whatever was known must be read anew.
    Connected,
    /// A notification.
    Notify(Box<Notify>),
    /// The bus ended; a new one is being opened.
    Disconnected(Option<Error>),
}

/// A bus that comes back: it says when it lost the daemon, and tries again with growing pauses (10 ms to 1 s).
#[derive(Debug)]
pub struct Bus {
    client: Client,
    mask: Mask,
    watch: Option<Watch>,
    pause: Duration,
}

impl Bus {
    const FIRST_PAUSE: Duration = Duration::from_millis(10);
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);

    /// A bus of `client`'s daemon. Nothing is opened before [`Bus::next`].
    pub fn new(client: Client, mask: Mask) -> Self {
        Self { client, mask, watch: None, pause: Self::FIRST_PAUSE }
    }

    /// Waits for the next event; never ends by itself. Cancel-safe.
    pub async fn next(&mut self) -> BusEvent {
        loop {
            if let Some(watch) = &mut self.watch {
                let ended = match watch.next().await {
                    Ok(Some(notify)) => return BusEvent::Notify(Box::new(notify)),
                    Ok(None) => None,
                    Err(error) => Some(error),
                };
                self.watch = None;
                return BusEvent::Disconnected(ended);
            }
            if let Ok(watch) = self.client.watch(self.mask).await {
                self.watch = Some(watch);
                self.pause = Self::FIRST_PAUSE;
                return BusEvent::Connected;
            }
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(Self::LONGEST_PAUSE);
        }
    }
}
