//! What can go wrong between us and tailscaled, told apart as far as a caller can act on it.

use std::io;

/// Why a request to the LocalAPI brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be opened. The source's kind says why: `NotFound`, the socket is missing; `ConnectionRefused`,
    /// the daemon is down; `PermissionDenied`, we may not.
    #[error("cannot connect to tailscaled")]
    Connect(#[source] io::Error),
    /// The daemon accepted and did not answer within the deadline: it is stopped, hung, or its backend is not there yet.
    #[error("tailscaled did not answer in time")]
    Timeout,
    /// The daemon answered that it will not. All four shapes of its error bodies end here.
    #[error("tailscaled refused ({status}): {message}")]
    Refused {
        /// HTTP status; 200 for `check-prefs`, which refuses in the body alone.
        status: u16,
        /// The daemon's words, at most 4 KiB of them.
        message: String,
    },
    /// The connection broke, or what came over it was not HTTP.
    #[error("the connection to tailscaled broke")]
    Io(#[source] io::Error),
    /// The answer is not what this endpoint answers.
    #[error("tailscaled's answer cannot be read")]
    Json(#[from] serde_json::Error),
}

impl Error {
    /// Tells whether the daemon cannot be reached at all, as against one that answers.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Timeout | Self::Io(_))
    }

    /// Tells whether this is a lack of permission: of ours on the socket, or of our uid with the daemon.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Connect(source) => source.kind() == io::ErrorKind::PermissionDenied,
            Self::Refused { status, .. } => *status == 403,
            Self::Timeout | Self::Io(_) | Self::Json(_) => false,
        }
    }

    /// Reads a refusal out of an answer's body: text, `{"Error":…}`, `{"error":…}` or `{"message":…}`
    /// (`ipn/localapi/localapi.go`, `client/local/local.go:doLocalRequestNiceError`).
    pub(crate) fn refused(status: u16, body: &[u8]) -> Self {
        let text = || String::from_utf8_lossy(body).trim().to_owned();
        let message = match serde_json::from_slice::<serde_json::Value>(body) {
            Ok(value) => ["Error", "error", "message"]
                .iter()
                .find_map(|field| value.get(field)?.as_str().map(str::to_owned))
                .unwrap_or_else(text),
            Err(_) => text(),
        };
        Self::Refused { status, message: shortened(message) }
    }
}

fn shortened(mut message: String) -> String {
    const MOST: usize = 4096;
    if message.len() > MOST {
        let end = (0..=MOST).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str) -> String {
        match Error::refused(400, body.as_bytes()) {
            Error::Refused { message, .. } => message,
            other => other.to_string(),
        }
    }

    #[test]
    fn all_shapes_of_a_refusal_say_the_same() {
        assert_eq!(said("prefs write access denied\n"), "prefs write access denied");
        assert_eq!(said(r#"{"Error":"no"}"#), "no");
        assert_eq!(said(r#"{"error":"no"}"#), "no");
        assert_eq!(said(r#"{"message":"no"}"#), "no");
        assert_eq!(said(r#"{"other":1}"#), r#"{"other":1}"#);
    }

    #[test]
    fn a_long_refusal_is_cut_at_a_character() {
        assert_eq!(said(&"ä".repeat(5000)).len(), 4096);
    }
}
