//! What is meant: one module a verb. Only this crate prints.

use std::process::ExitCode;

use crate::args::Command;
use crate::report::Failure;

pub(crate) mod explain;
pub(crate) mod guard;
pub(crate) mod lab;
pub(crate) mod policy;

/// Runs one verb.
pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Explain(args) => explain::run(args),
        Command::Guard(args) => guard::run(args),
        Command::Lab(command) => lab::run(command),
        Command::Policy(command) => policy::run(command),
    }
}
