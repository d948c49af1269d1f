//! The public address as the world sees it: services are asked in order, IPv4 and IPv6 apart, over the workload's own
//! path, each with its own deadline and size limit.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::address::{AnswerError, Family, PerFamily, parse_answer};
use crate::dns::{self, LookupError, Resolvers};
use crate::env::{CheckUrl, Scheme};
use crate::families::{self, Need};
use crate::path::{Path, PathError};
use crate::tls;

/// How long one service is waited for, from the look-up of its name to the last byte of its answer.
const DEADLINE: Duration = Duration::from_secs(4);
/// Largest answer that is read: an address has 45 characters at most.
const MAX_BODY: usize = 4096;
/// Largest head that is read.
const MAX_HEAD: usize = 16 * 1024;

/// What is asked, and by which way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The services, in order.
    pub services: Vec<CheckUrl>,
    /// Where their names are looked up.
    pub resolvers: Resolvers,
    /// The way to them.
    pub path: Path,
    /// Which family has to be waited for.
    pub need: PerFamily<Need>,
}

/// What came of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// The address, and the service that told it.
    pub seen: Option<Sighting>,
    /// The services that told none before, with what was wrong.
    pub misses: Vec<Miss>,
}

/// An address as a service saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The address.
    pub address: IpAddr,
    /// The service's URL.
    pub service: String,
}

/// A service that told no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The service's URL.
    pub service: String,
    /// What was wrong, with its causes.
    pub message: String,
    /// Whether the packets would have gone past the tailnet interface, so that none was sent.
    pub bypass: bool,
}

/// Why one service told no address.
#[derive(Debug, Error)]
enum CheckError {
    #[error(transparent)]
    LookUp(#[from] LookupError),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("TLS with {0} failed")]
    Tls(SocketAddr, #[source] std::io::Error),
    #[error("the request failed")]
    Http(#[from] hyper::Error),
    #[error("it answered {0}{redirect}", redirect = if .0.is_redirection() { ", and redirects are not followed" } else { "" })]
    Status(StatusCode),
    #[error("the answer is longer than {MAX_BODY} bytes")]
    TooLong,
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Silent,
}

impl CheckError {
    fn is_bypass(&self) -> bool {
        use dns::ResolverError;
        match self {
            Self::Path(PathError::Bypass { .. }) => true,
            Self::LookUp(LookupError::Failed { source, .. }) => {
                matches!(**source, ResolverError::Path { source: PathError::Bypass { .. }, .. })
            }
            Self::LookUp(_) | Self::Path(_) | Self::Tls(..) | Self::Http(_) => false,
            Self::Status(_) | Self::TooLong | Self::Answer(_) | Self::Silent => false,
        }
    }
}

/// Asks both families side by side. `None` is a family that was not waited for.
pub async fn ask(question: &Question) -> PerFamily<Option<Learned>> {
    let succeeded = |learned: &Learned| learned.seen.is_some();
    let ipv4 = ask_family(question, Family::Ipv4);
    let ipv6 = ask_family(question, Family::Ipv6);
    families::side_by_side(ipv4, ipv6, question.need, succeeded).await
}

async fn ask_family(question: &Question, family: Family) -> Learned {
    let mut learned = Learned::default();
    for service in &question.services {
        let asked = timeout(DEADLINE, ask_service(question, service, family)).await;
        match asked.unwrap_or(Err(CheckError::Silent)) {
            Ok(address) => {
                learned.seen = Some(Sighting { address, service: service.to_string() });
                return learned;
            }
            Err(error) => learned.misses.push(Miss {
                service: service.to_string(),
                message: with_causes(&error),
                bypass: error.is_bypass(),
            }),
        }
    }
    learned
}

async fn ask_service(question: &Question, service: &CheckUrl, family: Family) -> Result<IpAddr, CheckError> {
    let addresses = dns::look_up(&service.target.host, family, &question.path, &question.resolvers).await?;
    let start = Instant::now();
    let mut last = None;
    let mut untried = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        let target = SocketAddr::new(address, service.target.port);
        // Each address has its share of what is left, so that a dead one leaves time for the next.
        let share = DEADLINE.saturating_sub(start.elapsed()) / untried.max(1);
        untried -= 1;
        let stream = match timeout(share, question.path.connect(target)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                last = Some(error.into());
                continue;
            }
            Err(_) => {
                last = Some(CheckError::Silent);
                continue;
            }
        };
        let body = match service.scheme {
            Scheme::Http => fetch(TokioIo::new(stream), service).await?,
            Scheme::Https => {
                let stream = tls::connect(stream, &service.target.host)
                    .await
                    .map_err(|source| CheckError::Tls(target, source))?;
                fetch(TokioIo::new(stream), service).await?
            }
        };
        return Ok(parse_answer(&body, family)?);
    }
    Err(last.unwrap_or(CheckError::Silent))
}

/// One GET on a fresh connection, which ends with the answer.
async fn fetch(
    stream: impl Read + Write + Unpin + Send + 'static,
    service: &CheckUrl,
) -> Result<Vec<u8>, CheckError> {
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(MAX_HEAD).max_headers(64).handshake(stream).await?;
    let _connection = AbortOnDrop(tokio::spawn(async move {
        // What goes wrong on the connection is what the request or the body reports.
        let _ = connection.await;
    }));
    let request = Request::get(&service.path_and_query)
        .header(header::HOST, service.host_header())
        .header(header::ACCEPT, "text/plain")
        .header(header::USER_AGENT, concat!("sallyport-guard/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .expect("a parsed URL makes a request");
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(CheckError::Status(response.status()));
    }
    read_body(response).await
}

async fn read_body(mut response: Response<Incoming>) -> Result<Vec<u8>, CheckError> {
    let mut body = Vec::new();
    while let Some(frame) = response.frame().await {
        if let Ok(data) = frame?.into_data() {
            if body.len() + data.len() > MAX_BODY {
                return Err(CheckError::TooLong);
            }
            body.extend_from_slice(&data);
        }
    }
    Ok(body)
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An error and its causes on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
