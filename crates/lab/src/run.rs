//! A command in a host's place: this process goes inside and becomes it, so that its terminal, its signals, its input
//! and its exit code are simply its own. When the lab ends, the command is killed with everything else inside.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use sallyport_gate::netns::NetnsError;

use crate::registry::record::{Phase, PlaceError, Record};
use crate::registry::{LabDir, RegistryError};

/// Why a command did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The lab's record could not be read, or the lab is not up.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The host's namespaces could not be opened.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Or not be entered.
    #[error(transparent)]
    Enter(#[from] NetnsError),
    /// The program is not there.
    #[error("{program}: not found")]
    NotFound {
        /// The program.
        program: String,
    },
    /// The program cannot be executed.
    #[error("cannot execute {program}")]
    NotExecutable {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
}

/// Becomes `command` in the place of `host`, the worker where none is named. Returns only if that failed.
///
/// The caller's environment is kept; what the lab sets comes on top, but for variables of the guard (`TS_…`) that the
/// caller has set himself. The working folder is kept where it exists inside.
///
/// Must be called while the process has one thread.
#[must_use]
pub fn become_command(
    dir: &LabDir,
    host: Option<&str>,
    program: &OsString,
    arguments: &[OsString],
) -> RunError {
    match prepare(dir, host, program, arguments) {
        Ok(mut command) => {
            let source = command.exec();
            let program = program.to_string_lossy().into_owned();
            match source.kind() {
                io::ErrorKind::NotFound => RunError::NotFound { program },
                _ => RunError::NotExecutable { program, source },
            }
        }
        Err(error) => error,
    }
}

fn prepare(
    dir: &LabDir,
    host: Option<&str>,
    program: &OsString,
    arguments: &[OsString],
) -> Result<Command, RunError> {
    let record: Record = dir.record()?;
    if record.phase != Phase::Up {
        return Err(RegistryError::Starting { name: dir.name().into() }.into());
    }
    let host = host.unwrap_or(&record.topology.worker().name);
    let here = std::env::current_dir().ok();
    record.open(host)?.enter()?;
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in record.environment.get(host).into_iter().flatten() {
        if !(name.starts_with("TS_") && std::env::var_os(name).is_some()) {
            command.env(name, value);
        }
    }
    // Entering the mount namespace led to its root.
    if let Some(here) = here.filter(|here| Path::is_dir(here)) {
        command.current_dir(here);
    }
    Ok(command)
}
