//! Delay on a link, in user space, because not every kernel has netem: a thread that takes frames from one link and puts
//! them on another some time later, both ways, in order, offloaded ones as they are.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use sallyport_gate::Namespace;
use sallyport_gate::netns::NetnsError;

use crate::packet_socket::{Offload, PacketSocket, PacketSocketError, View};

const BUFFER: usize = 16 << 20;

/// Most frames under way each way; more are lost, as in a router whose queue is full.
const MOST: usize = 50_000;

/// How long the thread sleeps at most before it looks whether it is to end.
const TICK: Duration = Duration::from_millis(50);

/// A relay that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// A link could not be opened.
    #[error(transparent)]
    Socket(#[from] PacketSocketError),
    /// No thread.
    #[error("cannot start the relay's thread")]
    Thread(#[source] io::Error),
}

/// How much later a frame goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// Every frame, each way.
    pub base: Duration,
    /// And up to so much more, evenly spread. No frame overtakes another.
    pub jitter: Duration,
}

/// A running relay; ends when dropped, and with it whatever was under way.
#[derive(Debug)]
pub struct Relay {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Joins two links of `namespace`.
    ///
    /// # Errors
    /// [`RelayError`].
    pub fn start(namespace: &Namespace, links: [&str; 2], delay: Delay) -> Result<Self, RelayError> {
        let open = |link| namespace.run(|| PacketSocket::open(link, Offload::Header, View::Incoming, BUFFER));
        let sockets = [open(links[0])??, open(links[1])??];
        let end = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&end);
        let thread = std::thread::Builder::new().name("relay".into());
        let thread = thread.spawn(move || relay(sockets, delay, &told)).map_err(RelayError::Thread)?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only forwards; what it panicked about was told by then.
            let _ = thread.join();
        }
    }
}

/// Frames under way in one direction.
#[derive(Debug)]
struct Queue {
    waiting: VecDeque<(Instant, Vec<u8>)>,
    delay: Delay,
    random: u64,
}

impl Queue {
    fn new(delay: Delay, seed: u64) -> Self {
        Self { waiting: VecDeque::new(), delay, random: seed }
    }

    /// Takes a frame that arrived `now`.
    fn push(&mut self, now: Instant, frame: Vec<u8>) {
        if self.waiting.len() >= MOST {
            return;
        }
        let due = now + self.delay.base + self.delay.jitter.mul_f64(self.share());
        let due = self.waiting.back().map_or(due, |(last, _)| due.max(*last));
        self.waiting.push_back((due, frame));
    }

    fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|(due, _)| *due)
    }

    fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.waiting.pop_front_if(|(due, _)| *due <= now).map(|(_, frame)| frame)
    }

    /// From 0 to 1, the same each time from the same seed (xorshift64).
    fn share(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        f64::from(u32::try_from(self.random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

fn relay(mut sockets: [PacketSocket; 2], delay: Delay, end: &AtomicBool) {
    // What arrives by one link waits in the queue of that link, and leaves by the other.
    let mut queues = [Queue::new(delay, 0x5a11_9071), Queue::new(delay, 0x1abe_1ab5)];
    while !end.load(Ordering::Relaxed) {
        let next = queues.iter().filter_map(Queue::due).min();
        let pause = next.map_or(TICK, |due| due.saturating_duration_since(Instant::now()).min(TICK));
        let mut waiting = [
            PollFd::new(sockets[0].as_fd(), PollFlags::POLLIN),
            PollFd::new(sockets[1].as_fd(), PollFlags::POLLIN),
        ];
        // Woken or not, look.
        let _ = ppoll(&mut waiting, Some(TimeSpec::from_duration(pause)), None);
        for (socket, queue) in sockets.iter_mut().zip(&mut queues) {
            loop {
                match socket.receive() {
                    Ok(received) => queue.push(Instant::now(), received.frame.to_vec()),
                    // A frame that cannot be described is lost; a link that was down comes back.
                    Err(Errno::EINVAL | Errno::ENETDOWN | Errno::EINTR) => {}
                    Err(_) => break,
                }
            }
        }
        for (from, queue) in queues.iter_mut().enumerate() {
            while let Some(frame) = queue.pop(Instant::now()) {
                // Whatever does not go out now is lost, as on a wire.
                let _ = sockets[1 - from].send(&frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_frame_overtakes_another_and_each_waits_its_time() {
        let delay = Delay { base: Duration::from_millis(50), jitter: Duration::from_millis(40) };
        let mut queue = Queue::new(delay, 7);
        let start = Instant::now();
        for number in 0..100u8 {
            queue.push(start + Duration::from_millis(u64::from(number)), vec![number]);
        }
        assert_eq!(queue.pop(start + Duration::from_millis(49)), None);
        let later = start + Duration::from_secs(1);
        let order: Vec<u8> = std::iter::from_fn(|| queue.pop(later)).map(|frame| frame[0]).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn jitter_stays_within_its_bound() {
        let delay = Delay { base: Duration::from_millis(10), jitter: Duration::from_millis(5) };
        let start = Instant::now();
        for seed in 1..200 {
            let mut queue = Queue::new(delay, seed);
            queue.push(start, Vec::new());
            let waits = queue.due().expect("one waits").duration_since(start);
            assert!((10..=15).contains(&waits.as_millis()), "{waits:?}");
        }
    }
}
