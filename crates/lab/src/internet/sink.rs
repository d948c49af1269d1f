//! The numbered-packet sink: counts what arrives, by sender and by the address that the world sees.
//!
//! UDP payloads, and the same payloads one after the other on TCP connections, on [`SINK_PORT`] of [`ECHO`]'s
//! addresses. Times are the kernel's, so a busy runtime does not lengthen a silence.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns, RxqOvfl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use serde::Serialize;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::table::{ECHO, SINK_PORT};
use super::{ServeError, Tasks};
use crate::numbered::{LENGTH, Numbered};
use crate::stamp::Stamp;

mod arrivals;

pub use arrivals::{Arrival, Arrivals, SILENCES, SenderArrivals, Silence, TRACKED, Tally};

/// Room for what arrives while the runtime is busy, in bytes: about 10,000 small packets.
const BUFFER: usize = 8 << 20;

/// How many TCP senders are served at a time.
const CONNECTIONS: usize = 512;

/// What arrived until now.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// When this was read; silence lasts from a sender's last packet to here.
    pub at: Stamp,
    /// Datagrams that the kernel dropped because the sink was too slow. Not zero: the counts are too low.
    pub dropped: u64,
    /// The counts.
    #[serde(flatten)]
    pub tally: Tally,
}

/// The running sink; clones speak of the same one.
#[derive(Debug, Clone)]
pub struct Sink {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    tally: Tally,
    dropped: u64,
}

impl Sink {
    /// Starts it.
    pub(super) async fn start(tasks: &Tasks) -> Result<Self, ServeError> {
        let sink = Self { state: Arc::default() };
        for address in ECHO.both() {
            let address = SocketAddr::new(address, SINK_PORT);
            let fail = || ServeError::bind("sink", address);
            let socket = UdpSocket::bind(address).await.map_err(fail())?;
            setsockopt(&socket, ReceiveTimestampns, &true).map_err(|errno| fail()(errno.into()))?;
            setsockopt(&socket, RxqOvfl, &1).map_err(|errno| fail()(errno.into()))?;
            setsockopt(&socket, RcvBufForce, &BUFFER).map_err(|errno| fail()(errno.into()))?;
            let listener = TcpListener::bind(address).await.map_err(fail())?;
            tasks.spawn(sink.clone().take_datagrams(socket));
            tasks.spawn(sink.clone().take_connections(listener, tasks.clone()));
        }
        Ok(sink)
    }

    /// What arrived until now.
    #[must_use]
    pub fn report(&self) -> Report {
        let state = self.lock();
        Report { at: Stamp::now(), dropped: state.dropped, tally: state.tally.clone() }
    }

    /// What arrived of one sender until now; nothing where it was never heard.
    #[must_use]
    pub fn heard(&self, sender: u32) -> SenderArrivals {
        self.lock().tally.senders.get(&sender).cloned().unwrap_or_default()
    }

    /// Starts all counts anew.
    pub fn clear(&self) {
        *self.lock() = State::default();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_datagrams(self, socket: UdpSocket) {
        let mut buffer = [0; 2048];
        let mut control = nix::cmsg_space!(TimeSpec, u32);
        // The kernel's count runs as long as the socket does; ours may start anew.
        let mut dropped_before = 0;
        loop {
            let received =
                socket.async_io(Interest::READABLE, || receive(&socket, &mut buffer, &mut control)).await;
            // An error is an ICMP message, which does not concern us.
            let Ok(datagram) = received else { continue };
            let mut state = self.lock();
            state.tally.add(&buffer[..datagram.length], datagram.at, datagram.source);
            state.dropped += u64::from(datagram.dropped.wrapping_sub(dropped_before));
            dropped_before = datagram.dropped;
        }
    }

    async fn take_connections(self, listener: TcpListener, tasks: Tasks) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            let Ok((stream, source)) = listener.accept().await else {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                continue;
            };
            let sink = self.clone();
            tasks.spawn(async move {
                let _place = place;
                sink.take_stream(stream, source.ip()).await;
            });
        }
    }

    /// Reads payloads until the sender goes, or sends something else.
    async fn take_stream(&self, mut stream: TcpStream, source: IpAddr) {
        let mut payload = [0; LENGTH];
        while stream.read_exact(&mut payload).await.is_ok() {
            self.lock().tally.add(&payload, Stamp::now(), source);
            if Numbered::decode(&payload).is_none() {
                return;
            }
        }
    }
}

struct Datagram {
    length: usize,
    at: Stamp,
    source: IpAddr,
    /// How many the kernel has dropped on this socket so far.
    dropped: u32,
}

fn receive(socket: &UdpSocket, buffer: &mut [u8], control: &mut [u8]) -> io::Result<Datagram> {
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(control), flags)?;
    let mut at = None;
    let mut dropped = 0;
    for part in message.cmsgs()? {
        match part {
            ControlMessageOwned::ScmTimestampns(time) => at = Some(Stamp::from(time)),
            ControlMessageOwned::RxqOvfl(count) => dropped = count,
            _ => {}
        }
    }
    let source = message.address.as_ref().and_then(source_of);
    let source = source.ok_or_else(|| io::Error::other("a datagram without a source"))?;
    Ok(Datagram { length: message.bytes, at: at.unwrap_or_else(Stamp::now), source, dropped })
}

fn source_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()).to_canonical()))
}
