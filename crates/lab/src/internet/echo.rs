//! Address echoes: each tells its caller the address that the world sees, or does as badly as real ones do.
//!
//! A service is a listener with a name ([`SERVICES`]); what it does is its [`Behaviour`], which may be changed at run
//! time, so that the honest one can be turned into any of the others and back.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::{StatusCode, header};
use serde::{Deserialize, Serialize};

use super::http::{Answer, HangUp, respond, serve};
use super::journal::{Excerpt, Journal};
use super::table::{ECHO, LIE, Pair, SECOND_ECHO};
use super::{ServeError, Tasks};
use crate::stamp::Stamp;

/// How long the slow echo stalls by default.
const DEFAULT_STALL: Duration = Duration::from_secs(10);

/// How much the huge echo sends after the address.
const HUGE_BODY: usize = 1 << 20;

/// What an address echo does with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Behaviour {
    /// The caller's address and a newline, as plain text.
    Honest,
    /// The same form with another address.
    Lying {
        /// What IPv4 callers are told.
        v4: Ipv4Addr,
        /// What IPv6 callers are told.
        v6: Ipv6Addr,
    },
    /// The honest answer, late.
    Slow {
        /// How long it takes, in milliseconds.
        stall_ms: u64,
    },
    /// An HTML page with the address in it.
    Html,
    /// Status 429.
    TooManyRequests,
    /// Status 403.
    Forbidden,
    /// Status 200 and no body.
    Empty,
    /// A JSON object with the address in it.
    Json,
    /// Status 302 to the honest echo's first port.
    Redirect,
    /// An IPv4 caller's address as an IPv4-mapped IPv6 address; honest to IPv6 callers.
    Mapped,
    /// The address, then a mebibyte of blanks: right for whoever reads all of it and trims.
    Huge,
    /// The caller's address and another one, a line each.
    TwoAddresses,
    /// The honest answer with CR LF as its line end.
    Crlf,
    /// The connection is closed without an answer.
    HangUp,
}

/// No behaviour has such a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown behaviour of an address echo: {0}")]
pub struct UnknownBehaviour(String);

impl Behaviour {
    /// Its word, which [`FromStr`] reads.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Honest => "honest",
            Self::Lying { .. } => "lying",
            Self::Slow { .. } => "slow",
            Self::Html => "html",
            Self::TooManyRequests => "too-many-requests",
            Self::Forbidden => "forbidden",
            Self::Empty => "empty",
            Self::Json => "json",
            Self::Redirect => "redirect",
            Self::Mapped => "mapped",
            Self::Huge => "huge",
            Self::TwoAddresses => "two-addresses",
            Self::Crlf => "crlf",
            Self::HangUp => "hang-up",
        }
    }

    const fn lying() -> Self {
        Self::Lying { v4: LIE.v4, v6: LIE.v6 }
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Behaviour {
    type Err = UnknownBehaviour;

    /// Reads a word; `slow` may have its stall in milliseconds behind a colon, `lying` one address.
    fn from_str(text: &str) -> Result<Self, UnknownBehaviour> {
        let unknown = || UnknownBehaviour(text.to_string());
        let (word, argument) = text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest)));
        let behaviour = match (word, argument) {
            ("honest", None) => Self::Honest,
            ("lying", None) => Self::lying(),
            ("lying", Some(address)) => match address.parse().map_err(|_| unknown())? {
                IpAddr::V4(v4) => Self::Lying { v4, v6: LIE.v6 },
                IpAddr::V6(v6) => Self::Lying { v4: LIE.v4, v6 },
            },
            ("slow", None) => Self::Slow { stall_ms: u64::try_from(DEFAULT_STALL.as_millis()).unwrap_or(0) },
            ("slow", Some(stall)) => Self::Slow { stall_ms: stall.parse().map_err(|_| unknown())? },
            ("html", None) => Self::Html,
            ("too-many-requests", None) => Self::TooManyRequests,
            ("forbidden", None) => Self::Forbidden,
            ("empty", None) => Self::Empty,
            ("json", None) => Self::Json,
            ("redirect", None) => Self::Redirect,
            ("mapped", None) => Self::Mapped,
            ("huge", None) => Self::Huge,
            ("two-addresses", None) => Self::TwoAddresses,
            ("crlf", None) => Self::Crlf,
            ("hang-up", None) => Self::HangUp,
            _ => return Err(unknown()),
        };
        Ok(behaviour)
    }
}

/// A listener: its name, where it listens, and what it does at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name, which [`Echo::set`] takes.
    pub name: &'static str,
    /// Its addresses.
    pub at: Pair,
    /// Its port.
    pub port: u16,
    /// Whether it listens on IPv6 too.
    pub families: Families,
    /// What it does at the start, as a word.
    pub behaviour: &'static str,
}

/// Which families a service listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 and IPv6.
    Both,
    /// IPv4 alone.
    V4,
}

const fn service(name: &'static str, port: u16) -> Service {
    Service { name, at: ECHO, port, families: Families::Both, behaviour: name }
}

/// All address echoes. But for the first, the second and the IPv4-only one, the name is the behaviour.
pub const SERVICES: [Service; 16] = [
    service("honest", 80),
    Service { name: "second", at: SECOND_ECHO, port: 80, families: Families::Both, behaviour: "honest" },
    service("lying", 8001),
    service("slow", 8002),
    service("html", 8003),
    service("too-many-requests", 8004),
    service("empty", 8005),
    service("json", 8006),
    service("redirect", 8007),
    service("mapped", 8008),
    service("huge", 8009),
    service("two-addresses", 8010),
    service("crlf", 8011),
    Service { name: "ipv4-only", at: ECHO, port: 8012, families: Families::V4, behaviour: "honest" },
    service("forbidden", 8013),
    service("hang-up", 8014),
];

impl Service {
    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let families: &[IpAddr] = match self.families {
            Families::Both => &self.at.both(),
            Families::V4 => &[IpAddr::V4(self.at.v4)],
        };
        families.iter().map(|address| SocketAddr::new(*address, self.port)).collect()
    }
}

/// A request as it came.
#[derive(Debug, Clone, Serialize)]
pub struct Asked {
    /// When.
    pub at: Stamp,
    /// Which service.
    pub service: &'static str,
    /// Who: the address that the world sees.
    pub source: SocketAddr,
    /// What it did with it.
    pub behaviour: &'static str,
}

/// There is no such service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no address echo is called {0}")]
pub struct UnknownService(String);

/// The running echoes: changes what they do, and reads who asked. Clones speak of the same ones.
#[derive(Debug, Clone)]
pub struct Echo {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    behaviours: Mutex<BTreeMap<&'static str, Behaviour>>,
    asked: Journal<Asked>,
}

impl Echo {
    /// Starts all [`SERVICES`].
    pub(super) async fn start(tasks: &Tasks) -> Result<Self, ServeError> {
        let behaviours = SERVICES.iter().map(|service| (service.name, service.initial())).collect();
        let shared = Arc::new(Shared { behaviours: Mutex::new(behaviours), asked: Journal::default() });
        for service in &SERVICES {
            for address in service.addresses() {
                let shared = Arc::clone(&shared);
                let name = service.name;
                let answer = move |peer: SocketAddr, _| {
                    let behaviour = shared.receive(name, peer);
                    async move { answer(&behaviour, peer.ip().to_canonical()).await }
                };
                serve(tasks, name, address, answer).await?;
            }
        }
        Ok(Self { shared })
    }

    /// Changes what a service does from its next request on.
    ///
    /// # Errors
    /// [`UnknownService`].
    pub fn set(&self, service: &str, behaviour: Behaviour) -> Result<(), UnknownService> {
        match self.shared.lock().get_mut(service) {
            Some(current) => *current = behaviour,
            None => return Err(UnknownService(service.to_string())),
        }
        Ok(())
    }

    /// Lets every service do again what it did at the start.
    pub fn reset(&self) {
        let mut behaviours = self.shared.lock();
        for service in &SERVICES {
            behaviours.insert(service.name, service.initial());
        }
    }

    /// What each service does now.
    #[must_use]
    pub fn behaviours(&self) -> BTreeMap<&'static str, Behaviour> {
        self.shared.lock().clone()
    }

    /// Who asked.
    #[must_use]
    pub fn log(&self) -> Excerpt<Asked> {
        self.shared.asked.read()
    }
}

impl Service {
    fn initial(&self) -> Behaviour {
        self.behaviour.parse().expect("the table holds words that a test has read")
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, Behaviour>> {
        self.behaviours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, service: &'static str, source: SocketAddr) -> Behaviour {
        let behaviour = self.lock().get(service).cloned().unwrap_or(Behaviour::Honest);
        self.asked.write(Asked { at: Stamp::now(), service, source, behaviour: behaviour.word() });
        behaviour
    }
}

async fn answer(behaviour: &Behaviour, caller: IpAddr) -> Answer {
    const TEXT: &str = "text/plain; charset=utf-8";
    let text = |body: String| Ok(respond(StatusCode::OK, TEXT, body));
    match behaviour {
        Behaviour::Honest => text(format!("{caller}\n")),
        Behaviour::Lying { v4, v6 } => match caller {
            IpAddr::V4(_) => text(format!("{v4}\n")),
            IpAddr::V6(_) => text(format!("{v6}\n")),
        },
        Behaviour::Slow { stall_ms } => {
            tokio::time::sleep(Duration::from_millis(*stall_ms)).await;
            text(format!("{caller}\n"))
        }
        Behaviour::Html => {
            let page = format!("<!doctype html><title>Your address</title><p>You are {caller}.</p>\n");
            Ok(respond(StatusCode::OK, "text/html; charset=utf-8", page))
        }
        Behaviour::TooManyRequests => {
            let mut response = respond(StatusCode::TOO_MANY_REQUESTS, TEXT, "too many requests\n");
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("60"));
            Ok(response)
        }
        Behaviour::Forbidden => Ok(respond(StatusCode::FORBIDDEN, TEXT, "forbidden\n")),
        Behaviour::Empty => Ok(respond(StatusCode::OK, TEXT, Bytes::new())),
        Behaviour::Json => {
            let body = format!("{{\"ip\":\"{caller}\"}}\n");
            Ok(respond(StatusCode::OK, "application/json", body))
        }
        Behaviour::Redirect => {
            let place = match caller {
                IpAddr::V4(_) => format!("http://{}/", ECHO.v4),
                IpAddr::V6(_) => format!("http://[{}]/", ECHO.v6),
            };
            let mut response = respond(StatusCode::FOUND, TEXT, Bytes::new());
            let place = header::HeaderValue::from_str(&place).expect("an address is a valid header value");
            response.headers_mut().insert(header::LOCATION, place);
            Ok(response)
        }
        Behaviour::Mapped => match caller {
            IpAddr::V4(v4) => text(format!("{}\n", v4.to_ipv6_mapped())),
            IpAddr::V6(v6) => text(format!("{v6}\n")),
        },
        Behaviour::Huge => text(format!("{caller}{}\n", " ".repeat(HUGE_BODY))),
        Behaviour::TwoAddresses => match caller {
            IpAddr::V4(v4) => text(format!("{v4}\n{}\n", LIE.v4)),
            IpAddr::V6(v6) => text(format!("{v6}\n{}\n", LIE.v6)),
        },
        Behaviour::Crlf => text(format!("{caller}\r\n")),
        Behaviour::HangUp => Err(HangUp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_table_is_a_behaviour_and_every_name_is_unique() {
        let names: std::collections::BTreeSet<&str> = SERVICES.iter().map(|service| service.name).collect();
        assert_eq!(names.len(), SERVICES.len());
        for service in &SERVICES {
            assert_eq!(service.initial().word(), service.behaviour, "{}", service.name);
        }
        let places: Vec<SocketAddr> = SERVICES.iter().flat_map(Service::addresses).collect();
        let distinct: std::collections::BTreeSet<SocketAddr> = places.iter().copied().collect();
        assert_eq!(places.len(), distinct.len());
    }

    #[test]
    fn a_behaviour_takes_its_argument_and_refuses_others() {
        assert_eq!("slow:250".parse(), Ok(Behaviour::Slow { stall_ms: 250 }));
        let lie = "lying:198.18.0.1".parse();
        assert_eq!(lie, Ok(Behaviour::Lying { v4: Ipv4Addr::new(198, 18, 0, 1), v6: LIE.v6 }));
        for wrong in ["", "HONEST", "honest:1", "slow:", "slow:x", "lying:me", "crlf:"] {
            assert!(wrong.parse::<Behaviour>().is_err(), "{wrong:?}");
        }
    }
}
