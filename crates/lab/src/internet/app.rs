//! The app device's HTTP service, for its own namespace: `/health` says ok, `/whoami` says who asks.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use hyper::StatusCode;
use serde::Serialize;

use super::http::{respond, serve};
use super::journal::{Excerpt, Journal};
use super::{ServeError, Tasks};
use crate::stamp::Stamp;

/// A request as it came.
#[derive(Debug, Clone, Serialize)]
pub struct Visited {
    /// When.
    pub at: Stamp,
    /// Who.
    pub source: SocketAddr,
    /// What for; cut at 256 bytes.
    pub path: String,
}

/// The running service; it stops when this is dropped.
#[derive(Debug)]
pub struct App {
    tasks: Tasks,
    visited: Arc<Journal<Visited>>,
}

impl App {
    /// Starts it on all addresses, IPv4 and IPv6, of the calling thread's namespace.
    ///
    /// # Errors
    /// [`ServeError`] where the port is taken.
    pub async fn start(port: u16) -> Result<Self, ServeError> {
        let tasks = Tasks::default();
        let visited = Arc::new(Journal::default());
        let journal = Arc::clone(&visited);
        let answer = move |source: SocketAddr, request: hyper::Request<hyper::body::Incoming>| {
            let source = SocketAddr::new(source.ip().to_canonical(), source.port());
            let path: String = request.uri().path().chars().take(256).collect();
            let (status, body) = match path.as_str() {
                "/health" => (StatusCode::OK, "ok\n".to_string()),
                "/whoami" => (StatusCode::OK, format!("{}\n", source.ip())),
                _ => (StatusCode::NOT_FOUND, "not found\n".to_string()),
            };
            journal.write(Visited { at: Stamp::now(), source, path });
            async move { Ok(respond(status, "text/plain; charset=utf-8", body)) }
        };
        // A wildcard IPv6 socket takes IPv4 callers too.
        serve(&tasks, "app", SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), answer).await?;
        Ok(Self { tasks, visited })
    }

    /// Who came.
    #[must_use]
    pub fn log(&self) -> Excerpt<Visited> {
        self.visited.read()
    }

    /// Stops it, and waits until its port is free.
    pub async fn stop(self) {
        self.tasks.stop().await;
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}
