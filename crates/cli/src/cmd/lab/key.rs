//! `sallyport lab key`: the one place, beside `lab status --json`, where an auth key is printed.

use std::io::Write;
use std::process::ExitCode;

use sallyport_lab::control::{KeyOrder, Uses};
use sallyport_lab::wire::{Request, Spent};

use super::{Named, ask, failure, print_json};
use crate::report::Failure;

/// Arguments of `sallyport lab key`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
    /// Tags that a node gets by it, separated by commas; the worker's if left out
    #[arg(long, value_delimiter = ',', value_name = "TAGS")]
    tags: Option<Vec<String>>,
    /// Good for one login
    #[arg(long)]
    single_use: bool,
    /// Already expired
    #[arg(long)]
    expired: bool,
    /// Already withdrawn
    #[arg(long, conflicts_with = "expired")]
    revoked: bool,
    /// Print its id, tags and uses too, as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `sallyport lab key`.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let record = args.named.find()?.record().map_err(failure)?;
    let order = KeyOrder {
        tags: args.tags.clone().unwrap_or_else(|| record.topology.worker().tags.clone()),
        uses: if args.single_use { Uses::Single } else { Uses::Many },
        lifetime_seconds: 24 * 60 * 60,
    };
    let spent = match (args.expired, args.revoked) {
        (true, _) => Some(Spent::Expired),
        (false, true) => Some(Spent::Revoked),
        (false, false) => None,
    };
    let key = ask(&args.named, &Request::Key { order, spent })?;
    if args.json {
        print_json(&key)?;
    } else {
        let text = key["key"].as_str().unwrap_or_default();
        writeln!(anstream::stdout(), "{text}").map_err(failure)?;
    }
    Ok(ExitCode::SUCCESS)
}
