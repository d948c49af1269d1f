//! `sallyport guard`: the environment read, the start performed, every step told.

use std::process::ExitCode;

use sallyport_guard::env::{Config, Environment, KillSwitch, Mistakes};
use sallyport_guard::events::{Failure as GuardFailure, Notice, Step, Warning};
use sallyport_guard::host::{Place, Sight, place};
use sallyport_guard::machine::Outcome;
use sallyport_guard::reason::Reason;
use sallyport_guard::{Report, plan, secret, start};

use crate::report::Failure;

mod tell;

use tell::Teller;

const EXAMPLES: &str = "\
Everything else comes from the environment, see docs/guard.md. Examples:

  Start behind one exit node, or not at all:
    TS_AUTHKEY_FILE=/secrets/ts TS_EXIT_NODE_PRIMARY=exit-us-east TS_REQUIRE_EXIT_NODE=true sallyport guard

  A fallback, and only these public addresses:
    TS_EXIT_NODE_PRIMARY=exit-us-east TS_EXIT_NODE_FALLBACKS=exit-us-central \\
    TS_EGRESS_EXPECTED_IPS=203.0.113.10,203.0.113.11 sallyport guard

  What would be done, and why it would be refused:
    sallyport guard --dry-run

Exit codes: 0 ready, 2 configuration, 3 tailscaled, 4 login, 5 exit node, 6 public address, 7 kill switch, 1 other.";

/// Arguments of `sallyport guard`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Tell every step as one JSON object a line on stdout
    #[arg(long)]
    json: bool,
    /// Print the plan and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Run in the machine's own network namespace, whose whole traffic will leave by the exit node
    #[arg(long)]
    host: bool,
}

/// Runs `sallyport guard`.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    // First of all, while there is one thread: the key leaves the environment block.
    let environment = Environment::take();
    let hardened = secret::forbid_core_dumps();
    let mut teller = Teller::new(args.json);
    if let Err(error) = hardened {
        let message = format!("core dumps could not be forbidden: {error}");
        teller.tell(&Report::now(Notice::Warning { word: Warning::NotHardened, message }));
    }
    let config =
        Config::from_environment(environment).map_err(|mistakes| refuse_mistakes(&mut teller, mistakes))?;
    let place = place(&Sight::take());
    if args.dry_run {
        teller.plan(&plan::plan(&config, place));
        return Ok(ExitCode::SUCCESS);
    }
    permit(&config, place, &args, &mut teller)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::general("runtime", error))?;
    match runtime.block_on(start(config, |report| teller.tell(&report))) {
        Outcome::Ready(_) => Ok(ExitCode::SUCCESS),
        Outcome::Failed(failure) => Err(as_failure(*failure)),
    }
}

/// Refuses what has to be refused before anything is touched.
fn permit(config: &Config, place: Place, args: &Args, teller: &mut Teller) -> Result<(), Failure> {
    let host = match place {
        Place::Workload => None,
        Place::Machine(why) => Some(format!("this is the machine's network namespace: {why}")),
        Place::Unknown => Some("whose network namespace this is cannot be told from here".to_owned()),
    };
    match host {
        Some(message) if !args.host => return Err(refuse(teller, Reason::HostNamespace, message)),
        Some(message) => {
            let message = format!("{message}; all its traffic is meant, --host says so");
            teller.tell(&Report::now(Notice::Warning { word: Warning::HostNamespace, message }));
        }
        None => {}
    }
    if config.kill_switch == KillSwitch::On {
        let message = "TS_GUARD_KILL_SWITCH=on, and a guard that runs once has no kill switch".to_owned();
        return Err(refuse(teller, Reason::KillSwitchUnavailable, message));
    }
    Ok(())
}

fn refuse_mistakes(teller: &mut Teller, mistakes: Mistakes) -> Failure {
    let reason = mistakes.reason();
    refuse(teller, reason, mistakes.to_string())
}

/// A refusal before the start, told as a failed start is.
fn refuse(teller: &mut Teller, reason: Reason, message: String) -> Failure {
    let failure = GuardFailure {
        reason,
        exit_code: reason.exit_code(),
        step: Step::Configuration,
        message,
        advice: reason.advice(),
        attempts: Vec::new(),
    };
    teller.tell(&Report::now(Notice::Failed(Box::new(failure.clone()))));
    as_failure(failure)
}

fn as_failure(failure: GuardFailure) -> Failure {
    Failure {
        code: failure.exit_code,
        reason: failure.reason.word(),
        error: anyhow::Error::msg(failure.message),
        advice: Some(failure.advice.to_owned()),
    }
}
