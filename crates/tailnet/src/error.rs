//! Everything that keeps tailscaled from answering, each told apart, because each has its own remedy.
//!
//! tailscaled writes its refusals in four shapes (plain text, `{"Error"}`, `{"error"}`, and a 200 whose `Error` is not
//! empty); [`crate::Client`] reads all of them into these variants.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a request to tailscaled did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no socket at the path: the daemon was not started, or listens elsewhere.
    #[error("no tailscaled socket at {}", .socket.display())]
    SocketMissing {
        /// Path that was tried.
        socket: PathBuf,
    },
    /// The socket is there and nobody listens: the daemon is down.
    #[error("tailscaled is not running: nobody listens on {}", .socket.display())]
    Refused {
        /// Path that was tried.
        socket: PathBuf,
    },
    /// This process may not open the socket.
    #[error("not permitted to open {}", .socket.display())]
    NotPermitted {
        /// Path that was tried.
        socket: PathBuf,
    },
    /// Connecting failed in another way, as on a path that is no socket.
    #[error("cannot connect to {}", .socket.display())]
    Connect {
        /// Path that was tried.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The daemon did not answer in time: it is stopped, overloaded, or has no backend yet.
    #[error("tailscaled gave no answer to {request} within {after:?}")]
    NoAnswer {
        /// Method and endpoint.
        request: String,
        /// The deadline.
        after: Duration,
    },
    /// The connection ended before the answer did: the daemon went away.
    #[error("tailscaled closed the connection during {request}")]
    Disconnected {
        /// Method and endpoint.
        request: String,
        /// What the transport said, if it said anything.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The daemon is up and says that its backend is not.
    #[error("tailscaled's backend is not ready")]
    NotReady,
    /// The daemon refuses this process: writing needs root, the daemon's own uid, or its operator user.
    #[error("tailscaled denied {request}: {message}")]
    AccessDenied {
        /// Method and endpoint.
        request: String,
        /// The daemon's words.
        message: String,
    },
    /// A condition of the request did not hold (412).
    #[error("tailscaled says a precondition of {request} failed: {message}")]
    Precondition {
        /// Method and endpoint.
        request: String,
        /// The daemon's words.
        message: String,
    },
    /// The daemon refused these preferences.
    #[error("tailscaled refused the preferences: {message}")]
    PrefsRefused {
        /// The daemon's words.
        message: String,
    },
    /// Any other status than success.
    #[error("tailscaled answered {request} with {status}: {message}")]
    Http {
        /// Method and endpoint.
        request: String,
        /// HTTP status.
        status: u16,
        /// The daemon's words.
        message: String,
    },
    /// The answer is not what this endpoint answers.
    #[error("tailscaled's answer to {request} cannot be read: {detail}")]
    Malformed {
        /// Method and endpoint.
        request: String,
        /// What is wrong with it; never its content.
        detail: String,
    },
}

impl Error {
    /// Returns a stable word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::SocketMissing { .. } => "socket-missing",
            Self::Refused { .. } => "daemon-down",
            Self::NotPermitted { .. } => "socket-not-permitted",
            Self::Connect { .. } => "socket-unusable",
            Self::NoAnswer { .. } => "no-answer",
            Self::Disconnected { .. } => "disconnected",
            Self::NotReady => "backend-not-ready",
            Self::AccessDenied { .. } => "access-denied",
            Self::Precondition { .. } => "precondition-failed",
            Self::PrefsRefused { .. } => "prefs-refused",
            Self::Http { .. } => "http-error",
            Self::Malformed { .. } => "malformed-answer",
        }
    }

    /// Tells whether the daemon cannot be reached or does not talk, as against one that answers.
    pub fn is_unreachable(&self) -> bool {
        self.is_down()
            || matches!(
                self,
                Self::NotPermitted { .. } | Self::Connect { .. } | Self::NoAnswer { .. } | Self::NotReady
            )
    }

    /// Tells whether this is a lack of permission: of ours on the socket, or of our uid with the daemon.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::NotPermitted { .. } | Self::AccessDenied { .. })
    }

    /// Tells whether there is no daemon behind the socket at this moment.
    pub fn is_down(&self) -> bool {
        matches!(self, Self::SocketMissing { .. } | Self::Refused { .. } | Self::Disconnected { .. })
    }

    pub(crate) fn connecting(socket: &Path, source: io::Error) -> Self {
        let socket = socket.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::SocketMissing { socket },
            io::ErrorKind::ConnectionRefused => Self::Refused { socket },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { socket },
            _ => Self::Connect { socket, source },
        }
    }

    /// The connection ended where more was to come.
    pub(crate) fn ended(request: &str) -> Self {
        Self::Disconnected { request: request.to_owned(), source: None }
    }

    pub(crate) fn malformed(request: &str, detail: impl Into<String>) -> Self {
        Self::Malformed { request: request.to_owned(), detail: detail.into() }
    }
}
