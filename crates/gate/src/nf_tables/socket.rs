//! A connection to the nf_tables of one network namespace: commit, read, and know when someone else was there.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send, setsockopt, sockopt};

use super::batch::{SUBSYSTEM, Transaction, encode, number};
use super::model::Family;
use super::wire::{self, Buffer, Message, flag};
use crate::netns::{Namespace, NetnsError};

/// How long the kernel may take to answer. It answers within milliseconds; this only bounds a lost message.
const DEADLINE: Duration = Duration::from_secs(5);
/// Room for one batch on its way to the kernel: a rule set with 100,000 elements.
const SEND_BUFFER: usize = 32 << 20;
/// Room for one datagram from the kernel; a dump's are at most 32 KiB.
const RECEIVE: usize = 64 << 10;
/// How often a read is repeated that others keep changing under our hands.
const DUMP_TRIES: usize = 20;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// What went wrong with nf_tables.
#[derive(Debug, thiserror::Error)]
pub enum NfTablesError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// A system call on the netlink socket failed.
    #[error("cannot {step} an nf_tables socket")]
    Socket {
        /// Which.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused; nothing of the transaction is in force.
    #[error("the kernel refuses {object}{}", .message.as_deref().map(|m| format!(": {m}")).unwrap_or_default())]
    Refused {
        /// The object of the first message that was refused.
        object: String,
        /// The kernel's own words, where it has any.
        message: Option<String>,
        /// Its error number.
        source: Errno,
    },
    /// Someone else changed the rules since the given generation; nothing of the transaction is in force.
    #[error("the rules were changed by someone else in between")]
    Outrun,
    /// No answer within five seconds.
    #[error("the kernel did not answer in time")]
    Silent,
}

impl NfTablesError {
    /// Whether the kernel said that the object is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { source: Errno::ENOENT, .. })
    }
}

/// The number of a namespace's rule set: it grows by one with every transaction of anyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(pub(super) u32);

impl Generation {
    /// The generation after one transaction. The kernel leaves out zero.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1).max(1))
    }
}

/// What a named counter has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CounterReading {
    /// Packets.
    pub packets: u64,
    /// Bytes with headers.
    pub bytes: u64,
}

/// A connection. It belongs to the namespace in which it was opened, whatever thread uses it later.
#[derive(Debug)]
pub struct NfTables {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl NfTables {
    /// Opens a connection to the calling thread's namespace.
    ///
    /// # Errors
    /// [`NfTablesError::Socket`].
    pub fn open() -> Result<Self, NfTablesError> {
        let socket = netlink(NETLINK_NETFILTER, "open")?;
        let fail = |source| NfTablesError::Socket { step: "set up", source };
        // Old kernels have no texts; that is no reason to fail.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        if setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
            setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER).map_err(|errno| fail(errno.into()))?;
        }
        Ok(Self { socket, sequence: 0, buffer: vec![0; RECEIVE] })
    }

    /// Opens a connection to a namespace.
    ///
    /// # Errors
    /// [`NfTablesError::Namespace`], [`NfTablesError::Socket`].
    pub fn inside(namespace: &Namespace) -> Result<Self, NfTablesError> {
        namespace.run(Self::open)?
    }

    /// Commits a transaction: when this returns, all of it is in force.
    ///
    /// # Errors
    /// [`NfTablesError::Refused`] with the object at fault; nothing of it is in force then. After
    /// [`NfTablesError::Silent`] it is not known.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<(), NfTablesError> {
        self.commit_at(transaction, None)
    }

    /// Commits a transaction only if nobody else has changed anything since `generation`.
    ///
    /// # Errors
    /// [`NfTablesError::Outrun`] where somebody has, else as [`NfTables::commit`].
    pub fn commit_after(
        &mut self,
        transaction: &Transaction,
        generation: Generation,
    ) -> Result<(), NfTablesError> {
        self.commit_at(transaction, Some(generation.0))
    }

    fn commit_at(&mut self, transaction: &Transaction, generation: Option<u32>) -> Result<(), NfTablesError> {
        if transaction.changes.is_empty() {
            return Ok(());
        }
        let batch = encode(transaction, self.sequence.wrapping_add(1), generation);
        let count = u32::try_from(batch.objects.len()).expect("a batch has fewer messages than bytes");
        let last = batch.first.wrapping_add(count);
        self.sequence = last.wrapping_add(1);
        self.send(&batch.bytes)?;
        let mut refused = None;
        let deadline = Instant::now() + DEADLINE;
        loop {
            let length = self.receive(deadline)?;
            for message in wire::messages(&self.buffer[..length]) {
                let offset = message.sequence.wrapping_sub(batch.first);
                if message.kind != NLMSG_ERROR || offset > count {
                    continue;
                }
                if let Some((source, text)) = refusal(&message)
                    && refused.is_none()
                {
                    if source == Errno::ERESTART && offset == 0 {
                        return Err(NfTablesError::Outrun);
                    }
                    let at = (offset as usize).checked_sub(1);
                    let object = at.and_then(|at| batch.objects.get(at)).cloned();
                    refused = Some(NfTablesError::Refused {
                        object: object.unwrap_or_else(|| "the transaction".into()),
                        message: text,
                        source,
                    });
                }
                if message.sequence == last || offset == 0 {
                    return refused.map_or(Ok(()), Err);
                }
            }
        }
    }

    /// The generation now.
    ///
    /// # Errors
    /// [`NfTablesError`].
    pub fn generation(&mut self) -> Result<Generation, NfTablesError> {
        let mut found = None;
        let sequence = self.request(number::GET_GENERATION, 0, 0, |_| ())?;
        let deadline = Instant::now() + DEADLINE;
        while found.is_none() {
            let length = self.receive(deadline)?;
            for message in wire::messages(&self.buffer[..length]).filter(|m| m.sequence == sequence) {
                if let Some((source, message)) = refusal(&message) {
                    return Err(NfTablesError::Refused { object: "the generation".into(), message, source });
                }
                found =
                    message.payload.get(4..).and_then(|body| wire::attribute(body, 1)).and_then(wire::be32);
            }
        }
        found.map(Generation).ok_or(NfTablesError::Silent)
    }

    /// The named counters of a table.
    ///
    /// # Errors
    /// [`NfTablesError`].
    pub fn counters(
        &mut self,
        family: Family,
        table: &str,
    ) -> Result<BTreeMap<String, CounterReading>, NfTablesError> {
        let objects = self.dump(number::GET_OBJECT, family, |m| m.text(1, table))?;
        let mut readings = BTreeMap::new();
        for object in objects {
            let Some(name) = wire::attribute(&object, 2).map(wire::text) else { continue };
            let data = wire::attribute(&object, 4).unwrap_or_default();
            let value = |kind| wire::attribute(data, kind).and_then(wire::be64).unwrap_or_default();
            if wire::attribute(&object, 1).map(wire::text).as_deref() == Some(table) {
                readings.insert(name, CounterReading { packets: value(2), bytes: value(1) });
            }
        }
        Ok(readings)
    }

    /// Reads all objects of one type, each as its attributes. What does not exist is an empty list.
    pub(super) fn dump(
        &mut self,
        number: u16,
        family: Family,
        filter: impl Fn(&mut Buffer),
    ) -> Result<Vec<Vec<u8>>, NfTablesError> {
        for _ in 0..DUMP_TRIES {
            if let Some(objects) = self.dump_once(number, family, &filter)? {
                return Ok(objects);
            }
        }
        Err(NfTablesError::Outrun)
    }

    /// `None` where the rules changed while they were read.
    fn dump_once(
        &mut self,
        number: u16,
        family: Family,
        filter: &impl Fn(&mut Buffer),
    ) -> Result<Option<Vec<Vec<u8>>>, NfTablesError> {
        let sequence = self.request(number, flag::DUMP, family.number(), filter)?;
        let mut objects = Vec::new();
        let mut whole = true;
        let deadline = Instant::now() + DEADLINE;
        loop {
            let length = self.receive(deadline)?;
            for message in wire::messages(&self.buffer[..length]).filter(|m| m.sequence == sequence) {
                whole &= message.flags & flag::DUMP_INTERRUPTED == 0;
                match message.kind {
                    NLMSG_DONE => return Ok(whole.then_some(objects)),
                    NLMSG_ERROR => match refusal(&message) {
                        Some((Errno::ENOENT, _)) => return Ok(Some(Vec::new())),
                        Some((Errno::EINTR, _)) => return Ok(None),
                        Some((source, message)) => {
                            let object = format!("to list the {family} rules");
                            return Err(NfTablesError::Refused { object, message, source });
                        }
                        None => (),
                    },
                    _ => objects.push(message.payload.get(4..).unwrap_or_default().to_vec()),
                }
            }
        }
    }

    fn request(
        &mut self,
        number: u16,
        flags: u16,
        family: u8,
        body: impl FnOnce(&mut Buffer),
    ) -> Result<u32, NfTablesError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut buffer = Buffer::default();
        buffer.message(
            SUBSYSTEM << 8 | number,
            flag::REQUEST | flags,
            self.sequence,
            [family, 0, 0, 0],
            body,
        );
        self.send(&buffer.into_bytes())?;
        Ok(self.sequence)
    }

    fn send(&self, bytes: &[u8]) -> Result<(), NfTablesError> {
        match send(self.socket.as_raw_fd(), bytes, MsgFlags::empty()) {
            Ok(_) => Ok(()),
            Err(errno) => Err(NfTablesError::Socket { step: "write to", source: errno.into() }),
        }
    }

    fn receive(&mut self, deadline: Instant) -> Result<usize, NfTablesError> {
        match receive(&self.socket, &mut self.buffer, Some(deadline)) {
            Ok(Some(length)) => Ok(length),
            Ok(None) => Err(NfTablesError::Silent),
            Err(errno) => Err(NfTablesError::Socket { step: "read from", source: errno.into() }),
        }
    }
}

/// Opens and binds a netlink socket of the calling thread's namespace.
pub(crate) fn netlink(protocol: isize, step: &'static str) -> Result<Socket, NfTablesError> {
    let fail = |source| NfTablesError::Socket { step, source };
    let mut socket = Socket::new(protocol).map_err(fail)?;
    socket.bind_auto().map_err(fail)?;
    Ok(socket)
}

/// Waits for one datagram. `None` at the deadline.
pub(crate) fn receive(
    socket: &Socket,
    buffer: &mut [u8],
    deadline: Option<Instant>,
) -> Result<Option<usize>, Errno> {
    loop {
        match recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => return Ok(Some(length)),
            Err(Errno::EAGAIN) => (),
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        }
        let timeout = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return Ok(None),
            Some(left) => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
            None => PollTimeout::NONE,
        };
        match poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => (),
            Err(errno) => return Err(errno),
        }
    }
}

/// The error that a message carries, with the kernel's text. `None` for an acknowledgement.
fn refusal(message: &Message<'_>) -> Option<(Errno, Option<String>)> {
    if message.kind != NLMSG_ERROR {
        return None;
    }
    let code = wire::u32_at(message.payload, 0)?.cast_signed();
    if code == 0 {
        return None;
    }
    let text = (message.flags & flag::EXTENDED != 0).then(|| {
        let quoted = usize::try_from(wire::u32_at(message.payload, 4)?).ok()?;
        let skip = if message.flags & flag::CAPPED != 0 { wire::HEADER } else { quoted.next_multiple_of(4) };
        // NLMSGERR_ATTR_MSG
        wire::attribute(message.payload.get(4 + skip..)?, 1).map(wire::text)
    });
    Some((Errno::from_raw(code.saturating_neg()), text.flatten()))
}
