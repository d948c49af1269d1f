//! The lab's fake Internet: services that answer honestly or as badly as real ones do, each with a log of its own.
//!
//! Everything here runs as tasks of the runtime it was started on and binds its sockets at once, so it lives in the
//! network namespace of the thread that called it; the handles may be used from any thread. [`table`] lists who
//! listens where.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub mod app;
pub mod dns;
pub mod echo;
mod http;
pub mod journal;
pub mod probe;
pub mod sink;
pub mod table;

/// A service that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not this namespace's, or the port is taken.
    #[error("{service} cannot listen on {address}")]
    Bind {
        /// The service.
        service: String,
        /// Where it was to listen.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

impl ServeError {
    fn bind(service: &str, address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        let service = service.to_string();
        move |source| Self::Bind { service, address, source }
    }
}

/// All services of the namespace `internet`, running until this is dropped or stopped.
#[derive(Debug)]
pub struct Internet {
    /// The address echoes.
    pub echo: echo::Echo,
    /// The recursive DNS server.
    pub dns: dns::Dns,
    /// The numbered-packet sink.
    pub sink: sink::Sink,
    /// The end-to-end probe target.
    pub probe: probe::ProbeTarget,
    tasks: Tasks,
}

impl Internet {
    /// Starts everything that [`table`] lists, on the runtime and in the namespace of the calling thread. When it
    /// returns, every socket is bound.
    ///
    /// # Errors
    /// [`ServeError`] with the first address that could not be bound; nothing is left running then.
    pub async fn start() -> Result<Self, ServeError> {
        // Stops what has been started when a later step fails.
        let tasks = Tasks::default();
        let guard = tasks.token.clone().drop_guard();
        let echo = echo::Echo::start(&tasks).await?;
        let dns = dns::Dns::start(&tasks).await?;
        let sink = sink::Sink::start(&tasks).await?;
        let probe = probe::ProbeTarget::start(&tasks).await?;
        guard.disarm();
        Ok(Self { echo, dns, sink, probe, tasks })
    }

    /// Stops all of it, and waits until every socket is closed.
    pub async fn stop(self) {
        self.tasks.stop().await;
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

/// Tasks that end together.
#[derive(Debug, Clone, Default)]
struct Tasks {
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let token = self.token.clone();
        self.tracker.spawn(async move {
            // An end by cancellation is as good as any other.
            let _ = token.run_until_cancelled(work).await;
        });
    }

    fn cancel(&self) {
        self.token.cancel();
    }

    async fn stop(&self) {
        self.token.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
