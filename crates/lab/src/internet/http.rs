//! What every HTTP/1.1 service of the lab shares: accepting, limits, and stopping.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::{ServeError, Tasks};

/// How many connections one listener serves at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 256;

/// How long a client may take over its request.
const PATIENCE: Duration = Duration::from_secs(15);

/// An answer, or the wish to hang up without one.
pub(super) type Answer = Result<Response<Full<Bytes>>, HangUp>;

/// The connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the service hangs up")]
pub(super) struct HangUp;

/// Listens on `address` and answers every request with `answer`, until the tasks are stopped.
pub(super) async fn serve<F, Fut>(
    tasks: &Tasks,
    service: &str,
    address: SocketAddr,
    answer: F,
) -> Result<(), ServeError>
where
    F: Fn(SocketAddr, Request<Incoming>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind(address).await.map_err(ServeError::bind(service, address))?;
    let answer = Arc::new(answer);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let own = tasks.clone();
    tasks.spawn(async move {
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            let (stream, peer) = match listener.accept().await {
                Ok(connection) => connection,
                // Out of descriptors, or the client was gone already: neither is a reason to stop serving.
                Err(error) => {
                    tracing::debug!(%address, %error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            let answer = Arc::clone(&answer);
            own.spawn(async move {
                let _place = place;
                let service = service_fn(|request| answer(peer, request));
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
                if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
                    tracing::debug!(%peer, %error, "connection ended early");
                }
            });
        }
    });
    Ok(())
}

/// A complete answer.
pub(super) fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
