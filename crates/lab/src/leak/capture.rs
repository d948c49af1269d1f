//! The leak counter's second witness: reads every frame that comes from the worker's uplink and classifies it, beside
//! the kernel's counters and without them; writes a capture file on demand.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sallyport_gate::Namespace;
use sallyport_gate::netns::NetnsError;
use serde::Serialize;

use super::classify::{Class, ENOUGH, explain};
use super::declared::Declared;
use super::pcap::Writer;
use super::summary::Summary;
use crate::packet_socket::{KernelCount, Offload, PacketSocket, PacketSocketError, View};
use crate::stamp::Stamp;

/// Room for frames that the thread has not come to yet: some seconds of a flood.
const BUFFER: usize = 32 << 20;

/// How many leaks are kept with their words.
const KEPT: usize = 64;

/// How many frames are taken at most before whoever asks for the counts has a turn: a flood never ends by itself.
const AT_ONCE: usize = 1024;

/// How long the thread sleeps at most before it looks whether it is to end, in milliseconds.
const TICK: u16 = 50;

/// A capture that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// The link could not be opened.
    #[error(transparent)]
    Socket(#[from] PacketSocketError),
    /// No thread.
    #[error("cannot start the capture's thread")]
    Thread(#[source] io::Error),
}

/// What the capture has seen since it began, or was reset.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Frames by class, by the names of the kernel's counters.
    pub packets: BTreeMap<String, u64>,
    /// Frames that the kernel had no room to hand over: with any, the counts are too low.
    pub dropped: u64,
    /// The last leaks, the oldest first.
    pub leaks: Vec<Leak>,
}

/// One leak.
#[derive(Debug, Clone, Serialize)]
pub struct Leak {
    /// When the kernel took it.
    pub at: Stamp,
    /// What it was.
    pub what: Summary,
}

/// What a recording came to.
#[derive(Debug, Clone, Serialize)]
pub struct Recorded {
    /// The file.
    pub file: PathBuf,
    /// Frames in it.
    pub frames: u64,
}

/// A running capture; ends when dropped.
#[derive(Debug)]
pub struct Capture {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    end: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    packets: BTreeMap<Class, u64>,
    kernel: KernelCount,
    /// What the kernel had dropped when the counts were last reset.
    dropped_before: u64,
    leaks: VecDeque<Leak>,
    recording: Option<Recording>,
}

#[derive(Debug)]
struct Recording {
    writer: Writer<BufWriter<File>>,
    done: Recorded,
    failed: Option<io::Error>,
}

impl Capture {
    /// Begins to read what arrives by `link` in `namespace`.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn start(namespace: &Namespace, link: &str, declared: Declared) -> Result<Self, CaptureError> {
        let socket = namespace.run(|| PacketSocket::open(link, Offload::Bare, View::Incoming, BUFFER))??;
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("capture".into());
        let theirs = Arc::clone(&shared);
        let thread = thread.spawn(move || read(socket, &declared, &theirs)).map_err(CaptureError::Thread)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What was seen.
    #[must_use]
    pub fn report(&self) -> Report {
        let state = self.shared.state();
        Report {
            packets: state.packets.iter().map(|(class, count)| (class.counter(), *count)).collect(),
            dropped: state.kernel.dropped - state.dropped_before,
            leaks: state.leaks.iter().cloned().collect(),
        }
    }

    /// Forgets what was seen.
    pub fn reset(&self) {
        let mut state = self.shared.state();
        state.packets.clear();
        state.leaks.clear();
        state.dropped_before = state.kernel.dropped;
    }

    /// Begins to write every frame to `file`; a recording that was under way ends.
    ///
    /// # Errors
    /// Those of making the file.
    pub fn record(&self, file: PathBuf) -> io::Result<()> {
        let writer = Writer::begin(BufWriter::new(File::create(&file)?))?;
        let done = Recorded { file, frames: 0 };
        self.shared.state().recording = Some(Recording { writer, done, failed: None });
        Ok(())
    }

    /// Ends the recording, if there is one.
    ///
    /// # Errors
    /// Those of writing, from whenever they came.
    pub fn stop_recording(&self) -> io::Result<Option<Recorded>> {
        let Some(recording) = self.shared.state().recording.take() else { return Ok(None) };
        if let Some(error) = recording.failed {
            return Err(error);
        }
        recording.writer.end()?;
        Ok(Some(recording.done))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only reads; what it panicked about was told by then.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn read(mut socket: PacketSocket, declared: &Declared, shared: &Shared) {
    while !shared.end.load(Ordering::Relaxed) {
        let mut waiting = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        // Woken or not, look.
        let _ = poll(&mut waiting, PollTimeout::from(TICK));
        let mut state = shared.state();
        if state.recording.is_some() {
            socket.uncut()
        } else {
            socket.cut(ENOUGH)
        }
        for _ in 0..AT_ONCE {
            match socket.receive() {
                Ok(received) => {
                    let (class, leak) = explain(received.frame, received.wire_length, declared);
                    *state.packets.entry(class).or_default() += 1;
                    if let Some(what) = leak {
                        if state.leaks.len() == KEPT {
                            state.leaks.pop_front();
                        }
                        state.leaks.push_back(Leak { at: received.at, what });
                    }
                    if let Some(recording) = &mut state.recording {
                        recording.add(received.at, received.frame, received.wire_length);
                    }
                }
                Err(Errno::EAGAIN) => break,
                // Goes by: the link was down for a moment.
                Err(Errno::ENETDOWN | Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        if let Ok(kernel) = socket.statistics() {
            state.kernel = kernel;
        }
        drop(state);
        // The lock is not a fair one.
        std::thread::yield_now();
    }
}

impl Recording {
    fn add(&mut self, at: Stamp, frame: &[u8], wire_length: usize) {
        if self.failed.is_none() {
            match self.writer.add(at, frame, wire_length) {
                Ok(()) => self.done.frames += 1,
                Err(error) => self.failed = Some(error),
            }
        }
    }
}
