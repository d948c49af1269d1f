//! `sallyport lab`: a whole tailnet on this machine.

use std::io::Write;
use std::process::ExitCode;

use sallyport_gate::netns::NetnsError;
use sallyport_lab::binaries::ProgramError;
use sallyport_lab::fault::OrderError;
use sallyport_lab::preflight::Missing;
use sallyport_lab::registry::{LabDir, Registry, RegistryError};
use sallyport_lab::topology::TopologyError;
use sallyport_lab::wire::{self, Request, WireError};
use serde_json::Value;

use crate::report::Failure;

mod capture;
mod demo;
mod down;
mod fault;
mod key;
mod reset;
mod run;
mod status;
mod up;

/// The verbs of `sallyport lab`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Raise a lab and hold it until Ctrl-C; with --detach, return when it is up
    Up(up::Args),
    /// Take a lab down; sweeps what killed labs left, too
    Down(down::Args),
    /// What a lab is doing
    Status(status::Args),
    /// Run a command in the worker's place, or another host's
    Run(run::RunArgs),
    /// A shell in the worker's place, or another host's
    Shell(run::ShellArgs),
    /// Break something, or undo it
    Fault(fault::Args),
    /// Write what leaves by the worker's uplink to a file, as pcap
    Capture(capture::Args),
    /// Make an auth key and print it
    Key(key::Args),
    /// The worker as new: every fault undone, its node gone, all counters at zero
    Reset(reset::Args),
    /// The seed's five goals and six failures on a lab of its own, as a table
    Demo(demo::Args),
    /// The supervisor behind `up --detach`
    #[command(hide = true)]
    Supervise(up::Args),
    /// Clears away what a killed supervisor leaves
    #[command(hide = true)]
    Reap(Named),
}

/// Which lab is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// Name of the lab; may be left out while only one is up
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Named {
    fn find(&self) -> Result<LabDir, Failure> {
        Registry::of_machine().find(self.name.as_deref()).map_err(failure)
    }
}

/// Runs one verb of `sallyport lab`.
pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Up(args) => up::run(args),
        Command::Down(args) => down::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Run(args) => Err(run::run(&args)),
        Command::Shell(args) => Err(run::shell(&args)),
        Command::Fault(args) => fault::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Reset(args) => reset::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Supervise(args) => up::supervise(args),
        Command::Reap(named) => up::reap(&named),
    }
}

/// Asks the supervisor of a lab.
fn ask(named: &Named, request: &Request) -> Result<Value, Failure> {
    let progress = |text: &str| {
        // Talk; nothing is lost where nobody listens.
        let _ = writeln!(anstream::stderr(), "{text}");
    };
    wire::ask(&named.find()?, request, progress).map_err(failure)
}

/// Prints JSON on standard output.
fn print_json(value: &Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::general("lab-failed", error))?;
    writeln!(anstream::stdout(), "{text}").map_err(|error| Failure::general("lab-failed", error))
}

/// What failed, with its reason word and what to do next.
fn failure(error: impl Into<anyhow::Error>) -> Failure {
    let error = error.into();
    let is = |check: &dyn Fn(&(dyn std::error::Error + 'static)) -> bool| error.chain().any(check);
    if is(&|cause| cause.is::<Missing>()) || is(&|cause| cause.is::<ProgramError>()) {
        return Failure::general("lab-unequipped", error).advise("make setup, as root");
    }
    if is(&|cause| cause.is::<TopologyError>()) {
        return Failure::usage("lab-topology", error)
            .advise("see docs/lab.md for what a topology file holds");
    }
    if is(&|cause| cause.is::<OrderError>()) {
        return Failure::usage("lab-fault", error).advise("sallyport lab fault --list");
    }
    if is(&|cause| cause.is::<NetnsError>()) {
        return Failure::general("lab-namespace", error);
    }
    let registry = error.chain().find_map(|cause| cause.downcast_ref::<RegistryError>());
    match registry {
        Some(RegistryError::Name { .. }) => Failure::usage("lab-name", error),
        Some(RegistryError::InUse { .. }) => Failure::general("lab-in-use", error)
            .advise("another --name, or `sallyport lab down` with this one"),
        Some(RegistryError::Missing { .. }) => {
            Failure::general("lab-missing", error).advise("sallyport lab up --detach")
        }
        Some(RegistryError::Ambiguous { .. }) => Failure::usage("lab-ambiguous", error).advise("--name NAME"),
        Some(RegistryError::Starting { .. }) => {
            Failure::general("lab-starting", error).advise("wait a moment")
        }
        Some(RegistryError::Io { .. } | RegistryError::Record { .. }) => Failure::general("lab-files", error),
        None if is(&|cause| matches!(cause.downcast_ref(), Some(WireError::Failed(_)))) => {
            Failure::general("lab-refused", error)
        }
        None => Failure::general("lab-failed", error),
    }
}
