//! `sallyport lab down`.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use sallyport_lab::registry::{LabDir, Registry, RegistryError};
use sallyport_lab::wire::{self, Request};

use super::{Named, failure};
use crate::report::Failure;

/// How long a supervisor may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(15);

/// Arguments of `sallyport lab down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
    /// Take every lab of this machine down
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// Runs `sallyport lab down`.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let registry = Registry::of_machine();
    let swept = registry.sweep().map_err(failure)?;
    for name in &swept {
        talk(&format!("swept what the killed lab {name} had left"));
    }
    let labs = match registry.find(args.named.name.as_deref()) {
        _ if args.all => registry.living().map_err(failure)?,
        Ok(lab) => vec![lab],
        // It was killed, and what it left has just been swept.
        Err(RegistryError::Missing { .. }) if meant(&swept, args.named.name.as_deref()) => Vec::new(),
        Err(error) => return Err(failure(error)),
    };
    for lab in labs {
        take_down(&registry, &lab)?;
        talk(&format!("lab {} is down", lab.name()));
    }
    Ok(ExitCode::SUCCESS)
}

fn meant(swept: &[String], name: Option<&str>) -> bool {
    name.map_or(!swept.is_empty(), |name| swept.iter().any(|other| other == name))
}

fn talk(text: &str) {
    // Nothing is lost where nobody listens.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Asks the supervisor to end, waits, and kills it where it does not.
fn take_down(registry: &Registry, lab: &LabDir) -> Result<(), Failure> {
    let asked = wire::ask(lab, &Request::Down, |_| {});
    let pid = lab.record().map(|record| record.supervisor_pid);
    if asked.is_err()
        && let Ok(pid) = pid
    {
        // Still coming up, or not answering: a signal ends it in either case.
        signal(pid, nix::sys::signal::Signal::SIGTERM);
    }
    if gone_within(registry, lab, PATIENCE)? {
        return Ok(());
    }
    if let Ok(pid) = pid {
        talk(&format!("the supervisor of lab {} does not end; killing it", lab.name()));
        signal(pid, nix::sys::signal::Signal::SIGKILL);
    }
    if gone_within(registry, lab, PATIENCE)? {
        registry.sweep().map_err(failure)?;
        return Ok(());
    }
    Err(failure(anyhow!("lab {} does not end", lab.name())))
}

fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        // It may have ended in the meantime.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
    }
}

fn gone_within(registry: &Registry, lab: &LabDir, patience: Duration) -> Result<bool, Failure> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        match registry.find(Some(lab.name())) {
            Err(RegistryError::Missing { .. }) => return Ok(true),
            found => found.map_err(failure)?,
        };
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(false)
}
