//! `sallyport lab`.

use std::process::ExitCode;

use crate::report::Failure;

/// The verbs of `sallyport lab`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {}

/// Runs one verb of `sallyport lab`.
pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {}
}
