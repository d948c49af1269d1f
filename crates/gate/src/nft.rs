//! The `nft` program, run inside a namespace: one script is one transaction.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

use crate::netns::{Namespace, NetnsError};

/// A call of `nft` that did not work.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// The program could not be run: is `nftables` installed?
    #[error("cannot run nft in namespace {label}")]
    Run {
        /// The namespace.
        label: String,
        /// Why.
        source: io::Error,
    },
    /// `nft` refused; nothing of the script is in force.
    #[error("nft refused in namespace {label}: {message}")]
    Refused {
        /// The namespace.
        label: String,
        /// What `nft` wrote on its standard error.
        message: String,
    },
    /// `nft -j` answered something that is not its schema.
    #[error("nft answered something unexpected in namespace {label}")]
    Answer {
        /// The namespace.
        label: String,
        /// Why it could not be read.
        source: serde_json::Error,
    },
}

/// Applies a script as one transaction: all of it, or nothing.
///
/// # Errors
/// [`NftError::Refused`] with `nft`'s message.
pub fn apply(namespace: &Namespace, script: &str) -> Result<(), NftError> {
    run(namespace, &["-f", "-"], script).map(drop)
}

/// Runs a listing such as `["list", "counters", …]` and returns nft's JSON.
///
/// # Errors
/// [`NftError::Refused`] where the object is not there, [`NftError::Answer`].
pub fn list(namespace: &Namespace, what: &[&str]) -> Result<serde_json::Value, NftError> {
    let mut arguments = vec!["-j"];
    arguments.extend(what);
    let output = run(namespace, &arguments, "")?;
    serde_json::from_slice(&output.stdout)
        .map_err(|source| NftError::Answer { label: namespace.label().to_string(), source })
}

fn run(namespace: &Namespace, arguments: &[&str], input: &str) -> Result<Output, NftError> {
    // The child inherits the namespace of the thread that forks it.
    let output = namespace
        .run(|| {
            let mut child = Command::new("nft")
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // nft that has already failed closes its input; its message tells more than the broken pipe.
                let _ = stdin.write_all(input.as_bytes());
            }
            child.wait_with_output()
        })?
        .map_err(|source| NftError::Run { label: namespace.label().to_string(), source })?;
    if output.status.success() {
        return Ok(output);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(NftError::Refused { label: namespace.label().to_string(), message })
}
