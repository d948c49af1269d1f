//! One HTTP request over a unix socket: for the control server's admin interface.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

/// The largest answer that is read.
const LARGEST_ANSWER: usize = 16 << 20;

/// A request that got no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Nobody listens.
    #[error("cannot connect to {socket}")]
    Connect {
        /// The socket.
        socket: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke, or what came was not HTTP.
    #[error("no answer from {socket}")]
    Broken {
        /// The socket.
        socket: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Too slow.
    #[error("no answer from {socket} within {} ms", .deadline.as_millis())]
    Slow {
        /// The socket.
        socket: String,
        /// How long was waited.
        deadline: Duration,
    },
}

/// Sends one request on a connection of its own and reads the whole answer.
///
/// # Errors
/// [`RequestError`]; an answer of any status is none.
pub async fn request(
    socket: &Path,
    method: Method,
    path: &str,
    body: Vec<u8>,
    deadline: Duration,
) -> Result<(StatusCode, Bytes), RequestError> {
    let name = || socket.display().to_string();
    tokio::time::timeout(deadline, exchange(socket, method, path, body))
        .await
        .unwrap_or_else(|_| Err(RequestError::Slow { socket: name(), deadline }))
}

async fn exchange(
    socket: &Path,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, Bytes), RequestError> {
    let name = || socket.display().to_string();
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|source| RequestError::Connect { socket: name(), source })?;
    let broken =
        |source: Box<dyn std::error::Error + Send + Sync>| RequestError::Broken { socket: name(), source };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(error.into()))?;
    let exchange = async {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(hyper::header::HOST, "lab")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| broken(error.into()))?;
        let answer = sender.send_request(request).await.map_err(|error| broken(error.into()))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await.map_err(broken)?;
        Ok((status, body.to_bytes()))
    };
    tokio::pin!(connection, exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The connection may end before its last bytes have been taken.
        _ = &mut connection => exchange.await,
    }
}
