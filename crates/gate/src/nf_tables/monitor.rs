//! News of other people's transactions: the kernel tells every commit in the namespace, and whose it was.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use nix::errno::Errno;

use super::batch::{SUBSYSTEM, number};
use super::socket::{Generation, NfTablesError, netlink, receive};
use super::wire;
use crate::netns::Namespace;

/// `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;

/// One transaction of someone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The generation that it made.
    pub generation: Generation,
    /// The process that made it, in our process namespace (0 where it is not to be seen).
    pub process: u32,
    /// That process's name.
    pub name: String,
}

/// A subscription to the transactions of one namespace.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
}

/// What a [`Monitor`] has to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A transaction.
    Commit(Commit),
    /// Some were lost: look for yourself.
    Lost,
}

impl Monitor {
    /// Subscribes in the calling thread's namespace.
    ///
    /// # Errors
    /// [`NfTablesError::Socket`].
    pub fn open() -> Result<Self, NfTablesError> {
        let socket = netlink(NETLINK_NETFILTER, "open")?;
        socket.add_membership(GROUP).map_err(|source| NfTablesError::Socket { step: "subscribe", source })?;
        // A large transaction of someone else is many messages before the one we wait for.
        let _ = socket.set_rx_buf_sz(4 << 20);
        Ok(Self { socket, buffer: vec![0; 64 << 10] })
    }

    /// Subscribes in a namespace.
    ///
    /// # Errors
    /// [`NfTablesError`].
    pub fn inside(namespace: &Namespace) -> Result<Self, NfTablesError> {
        namespace.run(Self::open)?
    }

    /// Waits for news until the deadline; `None` then.
    ///
    /// # Errors
    /// [`NfTablesError::Socket`].
    pub fn wait(&mut self, deadline: Instant) -> Result<Option<News>, NfTablesError> {
        loop {
            match receive(&self.socket, &mut self.buffer, Some(deadline)) {
                Ok(None) => return Ok(None),
                Ok(Some(length)) => {
                    let commit =
                        wire::messages(&self.buffer[..length]).filter_map(|message| commit(&message)).last();
                    if let Some(commit) = commit {
                        return Ok(Some(News::Commit(commit)));
                    }
                }
                Err(Errno::ENOBUFS) => return Ok(Some(News::Lost)),
                Err(errno) => return Err(NfTablesError::Socket { step: "read from", source: errno.into() }),
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn commit(message: &wire::Message<'_>) -> Option<Commit> {
    if message.kind != SUBSYSTEM << 8 | number::NEW_GENERATION {
        return None;
    }
    let body = message.payload.get(4..)?;
    Some(Commit {
        generation: Generation(wire::attribute(body, 1).and_then(wire::be32)?),
        process: wire::attribute(body, 2).and_then(wire::be32).unwrap_or_default(),
        name: wire::attribute(body, 3).map(wire::text).unwrap_or_default(),
    })
}
