//! One HTTP/1.1 request over tailscaled's socket. A connection a request: the daemon is next door.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use crate::Error;

/// The only host that tailscaled accepts (`ipn/localapi/localapi.go:validHost`).
const HOST: &str = "local-tailscaled.sock";

/// Largest answer that is read, in bytes: a tailnet of ten thousand peers has a status of about 20 MB.
const MOST: usize = 64 << 20;

/// Sends one request and returns the answer's head; its body is still to be read.
pub(crate) async fn send(
    socket: &Path,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<Response<Incoming>, Error> {
    let stream = UnixStream::connect(socket).await.map_err(Error::Connect)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // Ends by itself when the answer has been read or dropped.
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, HOST)
        .body(Full::new(body))
        .map_err(|error| Error::Io(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    sender.send_request(request).await.map_err(broken)
}

/// Sends one request and reads the whole answer within the deadline.
pub(crate) async fn call(
    socket: &Path,
    method: Method,
    path: &str,
    body: Bytes,
    deadline: Duration,
) -> Result<Bytes, Error> {
    let answer = async {
        let response = send(socket, method, path, body).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST).collect().await;
        let body = body.map_err(|error| Error::Io(io::Error::other(error)))?.to_bytes();
        if status.is_success() { Ok(body) } else { Err(Error::refused(status.as_u16(), &body)) }
    };
    tokio::time::timeout(deadline, answer).await.unwrap_or(Err(Error::Timeout))
}

/// Lines of a body that never ends.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    pending: BytesMut,
}

impl Lines {
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        Self { body: response.into_body(), pending: BytesMut::new() }
    }

    /// The next line without its end, or none at the end of the stream. Cancel-safe: what was read is kept.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let mut line = self.pending.split_to(end + 1);
                line.truncate(end);
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return Ok(Some(line.freeze()));
            }
            if self.pending.len() > MOST {
                return Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "a line without end")));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.pending.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(broken(error)),
                None => return Ok(None),
            }
        }
    }
}

fn broken(error: hyper::Error) -> Error {
    Error::Io(io::Error::other(error))
}
