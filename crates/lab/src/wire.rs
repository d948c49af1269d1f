//! What the command line and a lab's supervisor say to each other: JSON lines over the lab's socket, one request a
//! connection. Both are of one build; no other version is ever spoken to.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control::KeyOrder;
use crate::fault::Order;
use crate::registry::LabDir;

/// How long a supervisor may take to answer: undoing a fault may start and join a daemon.
const DEADLINE: Duration = Duration::from_secs(120);

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Request {
    /// The lab's state.
    Status,
    /// Do a fault.
    Fault(Order),
    /// Undo a fault.
    Undo(Order),
    /// Undo all faults.
    UndoAll,
    /// Make an auth key; `spent` ones are good for nothing when they are given out.
    Key {
        /// What it is to be good for.
        order: KeyOrder,
        /// Whether it is to be useless, and why.
        spent: Option<Spent>,
    },
    /// Begin to write all that comes from the worker's uplink to a file, as pcap.
    Record {
        /// The file, by an absolute path.
        file: PathBuf,
    },
    /// End that.
    StopRecording,
    /// The worker as new.
    Reset,
    /// End the lab.
    Down,
}

/// Why an auth key is good for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spent {
    /// Its time is over.
    Expired,
    /// It was withdrawn.
    Revoked,
}

/// One line of an answer. Progress may come several times; the others end it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// How far it is, for people.
    Progress(String),
    /// It is done.
    Done(serde_json::Value),
    /// It is not.
    Failed(Failed),
}

/// Why something was not done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failed {
    /// The error and its causes, outermost first.
    pub chain: Vec<String>,
}

impl From<&anyhow::Error> for Failed {
    fn from(error: &anyhow::Error) -> Self {
        Self { chain: error.chain().map(ToString::to_string).collect() }
    }
}

/// What went wrong between the command line and a supervisor.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The supervisor cannot be reached.
    #[error("cannot reach the supervisor of lab {name}")]
    Connect {
        /// The lab.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// It did not answer, or not to the end.
    #[error("the supervisor of lab {name} did not answer")]
    Answer {
        /// The lab.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// It answered that it could not do it.
    #[error("{}", .0.chain.join(": "))]
    Failed(Failed),
}

/// Asks a lab's supervisor and waits for the end of its answer.
///
/// # Errors
/// [`WireError`].
pub fn ask(
    dir: &LabDir,
    request: &Request,
    mut progress: impl FnMut(&str),
) -> Result<serde_json::Value, WireError> {
    let connect = |source| WireError::Connect { name: dir.name().into(), source };
    let answer = |source| WireError::Answer { name: dir.name().into(), source };
    let mut stream = UnixStream::connect(dir.socket()).map_err(connect)?;
    stream.set_read_timeout(Some(DEADLINE)).map_err(connect)?;
    let mut line = serde_json::to_vec(request).map_err(|error| answer(error.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(answer)?;
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line.map_err(answer)?).map_err(|error| answer(error.into()))? {
            Reply::Progress(text) => progress(&text),
            Reply::Done(value) => return Ok(value),
            Reply::Failed(failed) => return Err(WireError::Failed(failed)),
        }
    }
    Err(answer(std::io::ErrorKind::UnexpectedEof.into()))
}
