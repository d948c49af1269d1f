//! The end-to-end probe target: a port that accepts, says nothing, and remembers who came.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::journal::{Excerpt, Journal};
use super::table::{ECHO, PROBE_PORT, SECOND_ECHO};
use super::{ServeError, Tasks};
use crate::stamp::Stamp;

/// How long a silent connection is kept.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that was made.
#[derive(Debug, Clone, Serialize)]
pub struct Connected {
    /// When it was accepted.
    pub at: Stamp,
    /// Who came.
    pub source: SocketAddr,
    /// Where to.
    pub target: SocketAddr,
}

/// The running probe target; clones speak of the same one.
#[derive(Debug, Clone)]
pub struct ProbeTarget {
    connected: Arc<Journal<Connected>>,
}

impl ProbeTarget {
    /// Starts listening on [`PROBE_PORT`] of both echoes' addresses.
    pub(super) async fn start(tasks: &Tasks) -> Result<Self, ServeError> {
        let connected = Arc::new(Journal::default());
        for address in ECHO.both().into_iter().chain(SECOND_ECHO.both()) {
            let target = SocketAddr::new(address, PROBE_PORT);
            let bound = TcpListener::bind(target).await;
            let listener = bound.map_err(ServeError::bind("probe target", target))?;
            let own = tasks.clone();
            let journal = Arc::clone(&connected);
            tasks.spawn(async move {
                loop {
                    let Ok((mut stream, source)) = listener.accept().await else {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    };
                    journal.write(Connected { at: Stamp::now(), source, target });
                    own.spawn(async move {
                        let mut heard = [0; 512];
                        let silence = async {
                            while matches!(stream.read(&mut heard).await, Ok(length) if length > 0) {}
                        };
                        // Whoever stays longer than that is sent away.
                        let _ = tokio::time::timeout(PATIENCE, silence).await;
                    });
                }
            });
        }
        Ok(Self { connected })
    }

    /// Who came.
    #[must_use]
    pub fn log(&self) -> Excerpt<Connected> {
        self.connected.read()
    }
}
