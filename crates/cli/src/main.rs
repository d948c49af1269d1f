//! The one binary `sallyport`: arguments in, output and exit codes out. Also called as `egress-guard`.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod cmd;
mod report;

fn main() -> ExitCode {
    let args = args::Cli::parse_from(args::with_alias(std::env::args_os()));
    match cmd::run(args.command) {
        Ok(code) => code,
        Err(failure) => report::failure(&failure),
    }
}
