//! `sallyport lab reset`.

use std::process::ExitCode;

use sallyport_lab::wire::Request;

use super::{Named, ask};
use crate::report::Failure;

/// Arguments of `sallyport lab reset`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
}

/// Runs `sallyport lab reset`.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    ask(&args.named, &Request::Reset).map(|_| ExitCode::SUCCESS)
}
