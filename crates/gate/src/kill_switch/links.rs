//! News of links: a new uplink gets its chain as soon as the kernel tells of it.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use crate::nf_tables::NfTablesError;
use crate::nf_tables::wire::{self, Buffer, flag};
use crate::nf_tables::{netlink, receive};

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const DONE: u16 = 3;
/// `IFLA_IFNAME`
const NAME: u16 = 3;
/// Length of `struct ifinfomsg`.
const LINK_HEADER: usize = 16;
/// `RTNLGRP_LINK`
const GROUP: u32 = 1;

/// A subscription to changes of the links of one namespace.
#[derive(Debug)]
pub struct LinkNews {
    socket: Socket,
    buffer: Vec<u8>,
}

impl LinkNews {
    /// Subscribes in the calling thread's namespace.
    ///
    /// # Errors
    /// [`NfTablesError::Socket`].
    pub fn open() -> Result<Self, NfTablesError> {
        let socket = netlink(NETLINK_ROUTE, "open")?;
        let fail = |source| NfTablesError::Socket { step: "subscribe", source };
        socket.add_membership(GROUP).map_err(fail)?;
        Ok(Self { socket, buffer: vec![0; 64 << 10] })
    }

    /// Waits for a change of links until the deadline, and says whether there was one. Lost news counts as one.
    ///
    /// # Errors
    /// [`NfTablesError::Socket`].
    pub fn wait(&mut self, deadline: Instant) -> Result<bool, NfTablesError> {
        match receive(&self.socket, &mut self.buffer, Some(deadline)) {
            Ok(length) => Ok(length.is_some()),
            Err(Errno::ENOBUFS) => Ok(true),
            Err(errno) => Err(NfTablesError::Socket { step: "read from", source: errno.into() }),
        }
    }

    /// The names of all links now.
    ///
    /// # Errors
    /// [`NfTablesError`].
    pub fn names(&mut self) -> Result<BTreeSet<String>, NfTablesError> {
        let mut request = Buffer::default();
        request.message(GET_LINK, flag::REQUEST | flag::DUMP, 1, [0; 4], |m| m.append(&[0; LINK_HEADER - 4]));
        send(self.socket.as_raw_fd(), &request.into_bytes(), MsgFlags::empty())
            .map_err(|errno| NfTablesError::Socket { step: "write to", source: errno.into() })?;
        let mut names = BTreeSet::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let length = match receive(&self.socket, &mut self.buffer, Some(deadline)) {
                Ok(Some(length)) => length,
                Ok(None) => return Err(NfTablesError::Silent),
                // News overran while listing; the list itself follows.
                Err(Errno::ENOBUFS) => continue,
                Err(errno) => return Err(NfTablesError::Socket { step: "read from", source: errno.into() }),
            };
            for message in wire::messages(&self.buffer[..length]) {
                let name = message.payload.get(LINK_HEADER..).and_then(|body| wire::attribute(body, NAME));
                match message.kind {
                    DONE if message.sequence == 1 => return Ok(names),
                    NEW_LINK => names.extend(name.map(wire::text)),
                    _ => (),
                }
            }
        }
    }
}

/// The names of all links of the calling thread's namespace.
///
/// # Errors
/// [`NfTablesError`].
pub fn link_names() -> Result<BTreeSet<String>, NfTablesError> {
    LinkNews::open()?.names()
}
