//! One HTTP request over one connection to a unix socket, and tailscaled's refusals read from its answers.
//!
//! A connection serves one request and ends with it: authority is judged per connection, dropping the future is how a
//! ping without an end is called off, and a restarted daemon is found at once.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::error::Error;

/// The one name that tailscaled lets clients call it (`ipn/localapi/localapi.go:validHost`).
const HOST: &str = "local-tailscaled.sock";
/// A status of ten thousand peers takes about 15 MB; more than this is no answer.
const ANSWER_LIMIT: usize = 64 << 20;
/// How much of a refusal's text is kept.
const MESSAGE_LIMIT: usize = 2048;
/// A daemon that is stopped leaves its backlog full, and connecting then fails at once instead of waiting.
const BACKLOG_PAUSE: Duration = Duration::from_millis(20);

/// A request to send.
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), body: Bytes::new() }
    }

    pub(crate) fn body(self, body: Bytes) -> Self {
        Self { body, ..self }
    }

    /// Returns how errors name this request: method and path, no query.
    pub(crate) fn name(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {}", self.method, path.strip_prefix("/localapi/v0/").unwrap_or(path))
    }
}

/// An answer whose body is still to come. Dropping it closes the connection.
pub(crate) struct Opening {
    pub(crate) response: Response<Incoming>,
    /// Held for its drop.
    pub(crate) connection: Connection,
}

/// An answer, read to its end.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// The task that moves a connection's bytes; it ends when this is dropped.
pub(crate) struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request and waits for the head of its answer. No deadline of its own.
pub(crate) async fn open(socket: &Path, call: Call) -> Result<Opening, Error> {
    let name = call.name();
    let stream = connect(socket).await?;
    // Gathered writes keep hyper from copying the body, which may hold a key, into a buffer of its own.
    let (mut sender, connection) = http1::Builder::new()
        .writev(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| disconnected(&name, error))?;
    let connection = Connection(tokio::spawn(async move {
        // What ends a connection early is told by the request that it carried.
        let _ = connection.await;
    }));
    let mut request = Request::builder().method(call.method).uri(&call.path).header(header::HOST, HOST);
    if !call.body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let request = request
        .body(Full::new(call.body))
        .map_err(|error| Error::malformed(&name, format!("the request itself: {error}")))?;
    let response = sender.send_request(request).await.map_err(|error| failed(&name, error))?;
    Ok(Opening { response, connection })
}

/// Sends a request and reads the whole answer within `deadline`.
pub(crate) async fn ask(socket: &Path, call: Call, deadline: Duration) -> Result<Answer, Error> {
    let name = call.name();
    let work = async {
        let Opening { response, connection } = open(socket, call).await?;
        let status = response.status();
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| failed(&name, error))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > ANSWER_LIMIT {
                return Err(Error::malformed(&name, format!("longer than {ANSWER_LIMIT} bytes")));
            }
            bytes.extend_from_slice(&data);
        }
        drop(connection);
        Ok(Answer { status, body: bytes.freeze() })
    };
    match tokio::time::timeout(deadline, work).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::NoAnswer { request: name, after: deadline }),
    }
}

async fn connect(socket: &Path) -> Result<UnixStream, Error> {
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(BACKLOG_PAUSE).await;
            }
            Err(error) => return Err(Error::connecting(socket, error)),
        }
    }
}

fn failed(name: &str, error: hyper::Error) -> Error {
    if error.is_parse() { Error::malformed(name, "not HTTP/1.1") } else { disconnected(name, error) }
}

fn disconnected(name: &str, error: hyper::Error) -> Error {
    Error::Disconnected { request: name.to_owned(), source: Some(Box::new(error)) }
}

/// Reads a refusal: the error that an unsuccessful answer stands for.
pub(crate) fn refusal(name: &str, status: StatusCode, body: &[u8]) -> Error {
    let request = name.to_owned();
    let message = message(body);
    match status {
        StatusCode::FORBIDDEN => Error::AccessDenied { request, message },
        StatusCode::PRECONDITION_FAILED => Error::Precondition { request, message },
        StatusCode::SERVICE_UNAVAILABLE if message == "backend not ready" => Error::NotReady,
        _ => Error::Http { request, status: status.as_u16(), message },
    }
}

/// Returns the words of a refusal, whichever of the four shapes they came in.
pub(crate) fn message(body: &[u8]) -> String {
    let text = error_field(body).unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    // One line without control characters: it goes to logs and terminals.
    let mut line: String = text
        .trim()
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(MESSAGE_LIMIT)
        .collect();
    line.truncate(line.trim_end().len());
    line
}

/// Returns what `{"Error": "..."}` or `{"error": "..."}` says; `None` if the body has neither.
pub(crate) fn error_field(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Shape {
        #[serde(rename = "Error")]
        upper: Option<String>,
        #[serde(rename = "error")]
        lower: Option<String>,
    }
    let shape: Shape = serde_json::from_slice(body).ok()?;
    shape.upper.or(shape.lower)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_shapes_of_a_refusal_say_the_same() {
        for body in ["no exit\n", r#"{"Error":"no exit"}"#, r#"{"error":"no exit"}"#, " no exit "] {
            assert_eq!(message(body.as_bytes()), "no exit", "{body}");
        }
        assert_eq!(message(br#"{"other":1}"#), r#"{"other":1}"#);
        assert_eq!(message(b""), "");
    }

    #[test]
    fn each_status_is_told_apart() {
        let refused = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).expect("a status");
            refusal("GET status", status, body.as_bytes()).reason()
        };
        assert_eq!(refused(403, "prefs write access denied"), "access-denied");
        assert_eq!(refused(403, "invalid localapi request"), "access-denied");
        assert_eq!(refused(412, "etag"), "precondition-failed");
        assert_eq!(refused(503, r#"{"error":"backend not ready"}"#), "backend-not-ready");
        assert_eq!(refused(503, "busy"), "http-error");
        assert_eq!(refused(404, "404 page not found"), "http-error");
        assert_eq!(refused(500, r#"{"error":"no preferred DERP, try again later"}"#), "http-error");
    }

    #[test]
    fn errors_name_an_endpoint_without_its_query() {
        let call = Call::new(Method::POST, "/localapi/v0/ping?ip=100.64.0.1&type=disco");
        assert_eq!(call.name(), "POST ping");
        assert_eq!(Call::new(Method::GET, "/server-status?wait=true").name(), "GET /server-status");
    }

    proptest! {
        #[test]
        fn a_refusal_is_one_short_line_whatever_came(body in prop::collection::vec(any::<u8>(), 0..5000)) {
            let said = message(&body);
            prop_assert!(!said.chars().any(char::is_control));
            prop_assert!(said.chars().count() <= MESSAGE_LIMIT);
        }
    }
}
