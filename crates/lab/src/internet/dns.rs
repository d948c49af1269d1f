//! The recursive DNS server of the fake Internet: honest, lying or silent, with a log of every question.
//!
//! It knows the lab's names ([`zone`]) and says of every other that it does not exist. Over UDP and TCP, IPv4 and
//! IPv6, on [`RESOLVER`]'s addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::journal::{Excerpt, Journal};
use super::table::{DNS_PORT, LIE, RESOLVER};
use super::{ServeError, Tasks};
use crate::stamp::Stamp;

mod answer;
pub mod zone;

use zone::{Records, Zone};

/// How long a TCP client may be idle.
const PATIENCE: Duration = Duration::from_secs(15);

/// How many TCP clients are served at a time.
const CONNECTIONS: usize = 128;

/// How the server treats its callers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Mode {
    /// Right answers.
    #[default]
    Honest,
    /// These addresses wherever an honest server would give some.
    Lying {
        /// In place of IPv4 addresses.
        v4: Ipv4Addr,
        /// In place of IPv6 addresses.
        v6: Ipv6Addr,
    },
    /// No answer at all; questions are taken and logged.
    Silent,
}

impl Mode {
    /// Lying with the addresses of [`LIE`].
    #[must_use]
    pub const fn lying() -> Self {
        Self::Lying { v4: LIE.v4, v6: LIE.v6 }
    }
}

/// How a question came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// On a connection.
    Tcp,
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Answered with records.
    Answered,
    /// Answered with wrong addresses.
    Lied,
    /// The name is there, the type is not.
    NoData,
    /// NXDOMAIN.
    NoSuchName,
    /// Another class or operation than this server does.
    Refused,
    /// FORMERR.
    Malformed,
    /// No answer.
    Silence,
}

/// A question as it came.
#[derive(Debug, Clone, Serialize)]
pub struct Question {
    /// When.
    pub at: Stamp,
    /// Who.
    pub source: SocketAddr,
    /// How.
    pub transport: Transport,
    /// The name in presentation format, with its last dot; empty where it could not be read.
    pub name: String,
    /// The record type, such as `AAAA`; empty where it could not be read.
    #[serde(rename = "type")]
    pub kind: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// The running server: changes what it says, and reads who asked. Clones speak of the same one.
#[derive(Debug, Clone)]
pub struct Dns {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    zone: RwLock<Zone>,
    mode: RwLock<Mode>,
    asked: Journal<Question>,
}

impl Dns {
    /// Starts it with the lab's own names.
    pub(super) async fn start(tasks: &Tasks) -> Result<Self, ServeError> {
        let shared = Arc::new(Shared {
            zone: RwLock::new(Zone::lab()),
            mode: RwLock::new(Mode::Honest),
            asked: Journal::default(),
        });
        for address in RESOLVER.both() {
            let address = SocketAddr::new(address, DNS_PORT);
            let socket = UdpSocket::bind(address).await.map_err(ServeError::bind("dns over udp", address))?;
            let listener =
                TcpListener::bind(address).await.map_err(ServeError::bind("dns over tcp", address))?;
            tasks.spawn(serve_datagrams(socket, Arc::clone(&shared)));
            tasks.spawn(serve_connections(listener, Arc::clone(&shared), tasks.clone()));
        }
        Ok(Self { shared })
    }

    /// Changes how it treats its callers, from the next question on.
    pub fn set_mode(&self, mode: Mode) {
        *self.shared.mode.write().unwrap_or_else(PoisonError::into_inner) = mode;
    }

    /// How it treats its callers now.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.shared.mode.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets what stands under a name.
    pub fn define(&self, name: &str, records: Records) {
        self.shared.zone.write().unwrap_or_else(PoisonError::into_inner).define(name, records);
    }

    /// Removes a name; whether it was there.
    #[must_use]
    pub fn forget(&self, name: &str) -> bool {
        self.shared.zone.write().unwrap_or_else(PoisonError::into_inner).forget(name)
    }

    /// What it knows now.
    #[must_use]
    pub fn zone(&self) -> Zone {
        self.shared.zone.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was asked.
    #[must_use]
    pub fn log(&self) -> Excerpt<Question> {
        self.shared.asked.read()
    }
}

impl Shared {
    fn receive(&self, message: &[u8], source: SocketAddr, transport: Transport) -> Option<Vec<u8>> {
        let reply = {
            let zone = self.zone.read().unwrap_or_else(PoisonError::into_inner);
            let mode = self.mode.read().unwrap_or_else(PoisonError::into_inner);
            answer::answer(message, &zone, &mode, transport)?
        };
        let answer::Reply { name, kind, outcome, message } = reply;
        self.asked.write(Question { at: Stamp::now(), source, transport, name, kind, outcome });
        message
    }
}

async fn serve_datagrams(socket: UdpSocket, shared: Arc<Shared>) {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        // An error here is an ICMP message about an earlier answer.
        let Ok((length, source)) = socket.recv_from(&mut buffer).await else { continue };
        if let Some(message) = shared.receive(&buffer[..length], source, Transport::Udp)
            && let Err(error) = socket.send_to(&message, source).await
        {
            tracing::debug!(%source, %error, "dns answer not sent");
        }
    }
}

async fn serve_connections(listener: TcpListener, shared: Arc<Shared>, tasks: Tasks) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, source)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tasks.spawn(async move {
            let _place = place;
            if let Err(error) = converse(stream, source, &shared).await {
                tracing::debug!(%source, %error, "dns connection ended");
            }
        });
    }
}

/// Questions and answers on one connection, each with its length in front (RFC 1035, 4.2.2).
async fn converse(mut stream: TcpStream, source: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    loop {
        let question = async {
            let length = stream.read_u16().await?;
            let mut message = vec![0; usize::from(length)];
            stream.read_exact(&mut message).await?;
            std::io::Result::Ok(message)
        };
        let message = tokio::time::timeout(PATIENCE, question).await??;
        if let Some(answer) = shared.receive(&message, source, Transport::Tcp) {
            let length = u16::try_from(answer.len()).map_err(std::io::Error::other)?;
            stream.write_u16(length).await?;
            stream.write_all(&answer).await?;
        }
    }
}
