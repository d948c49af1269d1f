//! `sallyport lab run` and `sallyport lab shell`: this process becomes the command.

use std::ffi::OsString;

use sallyport_lab::run::{RunError, become_command};

use super::{Named, failure};
use crate::report::Failure;

/// Arguments of `sallyport lab run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The guard's variables for this lab are set (TS_SOCKET, TS_AUTHKEY_FILE, TS_LOGIN_SERVER, ...), but for
the exit node, which is yours to name:
  sallyport lab run -- env TS_EXIT_NODE_PRIMARY=exit-us-east sallyport guard
  sallyport lab run --host exit-us-east -- ip address"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    place: Place,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Arguments of `sallyport lab shell`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct Place {
    #[command(flatten)]
    named: Named,
    /// The host whose place is taken; the worker's if left out
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
}

/// Runs `sallyport lab run`; returns only if that failed.
pub(super) fn run(args: &RunArgs) -> Failure {
    let (program, arguments) = args.command.split_first().expect("clap requires one");
    begin(&args.place, program, arguments)
}

/// Runs `sallyport lab shell`; returns only if that failed.
pub(super) fn shell(args: &ShellArgs) -> Failure {
    let shell =
        std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    begin(&args.place, &shell, &["-i".into()])
}

fn begin(place: &Place, program: &OsString, arguments: &[OsString]) -> Failure {
    let dir = match place.named.find() {
        Ok(dir) => dir,
        Err(failure) => return Failure { code: 125, ..failure },
    };
    let error = become_command(&dir, place.host.as_deref(), program, arguments);
    let code = match error {
        RunError::NotFound { .. } => 127,
        RunError::NotExecutable { .. } => 126,
        RunError::Registry(_) | RunError::Place(_) | RunError::Enter(_) => 125,
    };
    let reason = match error {
        RunError::NotFound { .. } => "command-not-found",
        RunError::NotExecutable { .. } => "command-not-executable",
        RunError::Place(_) => "lab-host",
        RunError::Registry(_) | RunError::Enter(_) => return Failure { code, ..failure(error) },
    };
    Failure { code, ..Failure::general(reason, error) }
}
