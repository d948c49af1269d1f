//! Looking up the names of check services and probe targets along the workload's own path. The machine's resolver is
//! of no use behind an exit node: a private one is cut off, and a local forwarder asks from outside the path.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::address::Family;
use crate::env::Host;
use crate::path::{Path, PathError};

/// How long one resolver is waited for before the next is asked.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long a datagram is waited for before it is sent again.
const RESEND: Duration = Duration::from_millis(500);
/// Largest answer over UDP; a longer one is asked for again over TCP.
const MAX_DATAGRAM: usize = 1232;
/// Most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 4;

/// Where names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolvers {
    /// As every program of this machine does it.
    System,
    /// These, along the path.
    Listed(Vec<SocketAddr>),
}

/// Why a name has no address.
#[derive(Debug, Error)]
pub enum LookupError {
    /// There is no such name, or it has no address of this family.
    #[error("{name} has no {family} address")]
    NoAddress {
        /// The name.
        name: String,
        /// The family.
        family: Family,
    },
    /// The name cannot be asked for.
    #[error("{0:?} is no name that can be looked up")]
    BadName(String),
    /// Every resolver failed; the last one's cause.
    #[error("no resolver answered for {name}")]
    Failed {
        /// The name.
        name: String,
        /// What the last one met.
        source: Box<ResolverError>,
    },
}

/// Why one resolver did not answer.
#[derive(Debug, Error)]
pub enum ResolverError {
    /// Not in time.
    #[error("{0} did not answer in time")]
    Silent(SocketAddr),
    /// The way to it is closed.
    #[error("no way to the resolver {resolver}")]
    Path {
        /// The resolver.
        resolver: SocketAddr,
        /// Why.
        source: PathError,
    },
    /// It answered with an error.
    #[error("{resolver} answered {code}")]
    Refused {
        /// The resolver.
        resolver: SocketAddr,
        /// Its response code.
        code: ResponseCode,
    },
    /// It answered something that is no DNS.
    #[error("{0} answered what is no DNS message")]
    Garbled(SocketAddr),
    /// The socket failed.
    #[error("asking {resolver} failed")]
    Io {
        /// The resolver.
        resolver: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The machine's own resolver failed.
    #[error("the machine's resolver failed")]
    System(#[source] io::Error),
}

/// The addresses of a host of one family, in the resolver's order.
///
/// # Errors
/// See [`LookupError`].
pub async fn look_up(
    host: &Host,
    family: Family,
    path: &Path,
    resolvers: &Resolvers,
) -> Result<Vec<IpAddr>, LookupError> {
    let name = match host {
        Host::Address(address) if Family::of(*address) == family => return Ok(vec![*address]),
        Host::Address(address) => {
            return Err(LookupError::NoAddress { name: address.to_string(), family });
        }
        Host::Name(name) => name,
    };
    let mut addresses = match resolvers {
        Resolvers::System => by_system(name, family).await?,
        Resolvers::Listed(resolvers) => by_list(name, family, path, resolvers).await?,
    };
    addresses.truncate(MAX_ADDRESSES);
    if addresses.is_empty() {
        return Err(LookupError::NoAddress { name: name.clone(), family });
    }
    Ok(addresses)
}

async fn by_system(name: &str, family: Family) -> Result<Vec<IpAddr>, LookupError> {
    let found = tokio::net::lookup_host((name, 0)).await.map_err(|source| LookupError::Failed {
        name: name.to_owned(),
        source: Box::new(ResolverError::System(source)),
    })?;
    Ok(found.map(|address| address.ip().to_canonical()).filter(|ip| Family::of(*ip) == family).collect())
}

async fn by_list(
    name: &str,
    family: Family,
    path: &Path,
    resolvers: &[SocketAddr],
) -> Result<Vec<IpAddr>, LookupError> {
    let (query, id) = question(name, family)?;
    let mut last = None;
    for resolver in resolvers {
        let asked = timeout(PATIENCE, ask(*resolver, &query, id, path)).await;
        match asked.unwrap_or(Err(ResolverError::Silent(*resolver))) {
            Ok(message) => return Ok(addresses(&message, family)),
            Err(error) => last = Some(error),
        }
    }
    let source = Box::new(last.expect("the list of resolvers is never empty"));
    Err(LookupError::Failed { name: name.to_owned(), source })
}

fn question(name: &str, family: Family) -> Result<(Vec<u8>, u16), LookupError> {
    let bad = || LookupError::BadName(name.to_owned());
    let mut asked = Name::from_ascii(name).map_err(|_| bad())?;
    asked.set_fqdn(true);
    let kind = match family {
        Family::Ipv4 => RecordType::A,
        Family::Ipv6 => RecordType::AAAA,
    };
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(asked, kind));
    let bytes = message.to_vec().map_err(|_| bad())?;
    Ok((bytes, message.metadata.id))
}

async fn ask(resolver: SocketAddr, query: &[u8], id: u16, path: &Path) -> Result<Message, ResolverError> {
    if path.carries_udp() {
        let message = ask_by_udp(resolver, query, id, path).await?;
        if !message.metadata.truncation {
            return judge(message, resolver);
        }
    }
    judge(ask_by_tcp(resolver, query, id, path).await?, resolver)
}

fn judge(message: Message, resolver: SocketAddr) -> Result<Message, ResolverError> {
    match message.metadata.response_code {
        // A name that does not exist is an answer: it has no address.
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(message),
        code => Err(ResolverError::Refused { resolver, code }),
    }
}

async fn ask_by_udp(
    resolver: SocketAddr,
    query: &[u8],
    id: u16,
    path: &Path,
) -> Result<Message, ResolverError> {
    let failed = |source| ResolverError::Io { resolver, source };
    path.verify_route(resolver).map_err(|source| ResolverError::Path { resolver, source })?;
    let any: SocketAddr = if resolver.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).await.map_err(failed)?;
    socket.connect(resolver).await.map_err(failed)?;
    let mut answer = [0; MAX_DATAGRAM];
    loop {
        socket.send(query).await.map_err(failed)?;
        let received = timeout(RESEND, async {
            loop {
                let length = socket.recv(&mut answer).await.map_err(failed)?;
                // An answer to something else is noise, or a guess of somebody's.
                if let Some(message) = matching(&answer[..length], query, id) {
                    return Ok(message);
                }
            }
        });
        if let Ok(message) = received.await {
            return message;
        }
    }
}

async fn ask_by_tcp(
    resolver: SocketAddr,
    query: &[u8],
    id: u16,
    path: &Path,
) -> Result<Message, ResolverError> {
    let failed = |source| ResolverError::Io { resolver, source };
    let mut stream =
        path.connect(resolver).await.map_err(|source| ResolverError::Path { resolver, source })?;
    let length = u16::try_from(query.len()).expect("a question fits a message");
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend(query);
    stream.write_all(&framed).await.map_err(failed)?;
    let length = stream.read_u16().await.map_err(failed)?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.map_err(failed)?;
    matching(&answer, query, id).ok_or(ResolverError::Garbled(resolver))
}

/// The message, if it answers this very question.
fn matching(answer: &[u8], query: &[u8], id: u16) -> Option<Message> {
    let message = Message::from_vec(answer).ok()?;
    let asked = Message::from_vec(query).ok()?;
    let is_answer = message.metadata.id == id
        && message.metadata.message_type == hickory_proto::op::MessageType::Response
        && message.queries == asked.queries;
    is_answer.then_some(message)
}

/// The addresses in an answer. Aliases were followed by the resolver; what it put in is taken in its order.
fn addresses(message: &Message, family: Family) -> Vec<IpAddr> {
    let in_class = message.answers.iter().filter(|record| record.dns_class == DNSClass::IN);
    in_class
        .filter_map(|record| match (&record.data, family) {
            (RData::A(address), Family::Ipv4) => Some(IpAddr::V4(address.0)),
            (RData::AAAA(address), Family::Ipv6) => Some(IpAddr::V6(address.0)),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests;
