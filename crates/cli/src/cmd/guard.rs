//! `sallyport guard`.

use std::process::ExitCode;

use crate::report::Failure;

/// Arguments of `sallyport guard`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs `sallyport guard`.
pub(crate) fn run(_args: Args) -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
