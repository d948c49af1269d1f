//! `sallyport lab up`: in the foreground this process is the lab; with `--detach` a child of it is, and this one waits
//! until the lab is there.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use sallyport_lab::lab::{Plan, Worker};
use sallyport_lab::preflight;
use sallyport_lab::registry::record::ControlKind;
use sallyport_lab::registry::{Claim, DEFAULT_NAME, MARK, Registry};
use sallyport_lab::supervisor;
use sallyport_lab::topology::Topology;
use sallyport_lab::wire::{Failed, Reply};
use serde_json::Value;

use super::{Named, failure, print_json, status};
use crate::report::Failure;

/// Arguments of `sallyport lab up`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  sallyport lab up --detach
  sallyport lab run -- curl http://echo.lab.example/
  sallyport lab fault exit-killed exit-us-east
  sallyport lab down")]
pub(crate) struct Args {
    /// Name of the lab; several may be up side by side
    #[arg(long, default_value = DEFAULT_NAME, value_name = "NAME")]
    name: String,
    /// Topology file (TOML); the built-in one is printed by --print-topology
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Control server: the lab's own, or a `headscale` found on PATH
    #[arg(long, value_enum, default_value_t = Control::Own)]
    control: Control,
    /// Log the worker's node in, too; else the guard does it
    #[arg(long, overrides_with = "no_join_worker")]
    join_worker: bool,
    /// Leave the worker's node logged out (the default)
    #[arg(long)]
    no_join_worker: bool,
    /// Return when the lab is up, and leave it behind
    #[arg(long, short)]
    detach: bool,
    /// Print the lab's state as JSON when it is up
    #[arg(long)]
    json: bool,
    /// Print the built-in topology and exit
    #[arg(long)]
    print_topology: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Control {
    Own,
    Headscale,
}

/// Runs `sallyport lab up`.
pub(super) fn run(args: Args) -> Result<ExitCode, Failure> {
    if args.print_topology {
        let printed = write!(anstream::stdout(), "{}", sallyport_lab::topology::DEFAULT);
        return printed.map(|()| ExitCode::SUCCESS).map_err(failure);
    }
    let plan = plan(&args)?;
    preflight::check(plan.control).map_err(failure)?;
    if args.detach { detach(&args) } else { foreground(&args, plan) }
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let topology = match &args.topology {
        None => Topology::built_in(),
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
            let text = text.map_err(|error| Failure::usage("lab-topology", error))?;
            let parsed = Topology::parse(&text).with_context(|| path.display().to_string());
            parsed.map_err(failure)?
        }
    };
    let control = match args.control {
        Control::Own => ControlKind::Own,
        Control::Headscale => ControlKind::Headscale,
    };
    let worker = if args.join_worker { Worker::Join } else { Worker::Leave };
    Ok(Plan { topology, control, worker })
}

fn claim(name: &str) -> Result<Claim, Failure> {
    let registry = Registry::of_machine();
    for swept in registry.sweep().map_err(failure)? {
        talk(&format!("swept what the killed lab {swept} had left"));
    }
    registry.claim(name).map_err(failure)
}

fn talk(text: &str) {
    // Nothing is lost where nobody listens.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// The command that runs [`reap`] for a lab.
fn reaper(name: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["lab", "reap", "--name", name]);
    Ok(command)
}

/// Holds the lab in this process, and tells how it goes.
fn hold(
    args: &Args,
    plan: Plan,
    progress: &mut dyn FnMut(String),
    up: impl FnOnce(Value),
) -> Result<(), Failure> {
    let claim = claim(&args.name)?;
    let log = claim.dir().log();
    let log = std::fs::File::create(&log)
        .with_context(|| format!("cannot make {}", log.display()))
        .map_err(failure)?;
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(log);
    subscriber.try_init().map_err(|error| failure(anyhow::anyhow!(error)))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    let reaper = reaper(&args.name).map_err(failure)?;
    runtime.block_on(supervisor::run(claim, plan, reaper, progress, up)).map(drop).map_err(failure)
}

fn foreground(args: &Args, plan: Plan) -> Result<ExitCode, Failure> {
    talk(&format!("raising lab {} ...", args.name));
    let up = |state: Value| {
        // A lab is of use where nobody reads its standard output, too.
        let _ = show(&state, args);
        talk("Ctrl-C takes it down");
    };
    hold(args, plan, &mut |text| talk(&format!("  {text}")), up)?;
    talk(&format!("lab {} is down", args.name));
    Ok(ExitCode::SUCCESS)
}

fn show(state: &Value, args: &Args) -> Result<(), Failure> {
    if args.json { print_json(state) } else { status::print(state) }
}

/// The child behind `--detach`: tells its parent how it goes by JSON lines on its standard output.
pub(super) fn supervise(args: Args) -> Result<ExitCode, Failure> {
    // A session of its own: neither the terminal nor its end concerns it any more.
    nix::unistd::setsid().map_err(failure)?;
    let tell = |reply: &Reply| {
        let line = serde_json::to_string(reply).unwrap_or_default();
        // The parent may have been killed; the lab stays.
        let _ = writeln!(std::io::stdout(), "{line}");
    };
    let plan = plan(&args)?;
    let held = hold(&args, plan, &mut |text| tell(&Reply::Progress(text)), |state| {
        tell(&Reply::Done(state));
        close_standard_output();
    });
    if let Err(failure) = &held {
        tell(&Reply::Failed(Failed::from(&failure.error)));
    }
    held.map(|()| ExitCode::SUCCESS)
}

/// So that a pipe which the parent's caller reads comes to its end.
fn close_standard_output() {
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        // The descriptor is replaced, not closed: nothing else must get its number.
        let _ = nix::unistd::dup2_stdout(&null);
    }
}

fn detach(args: &Args) -> Result<ExitCode, Failure> {
    // Said here, where the user sees it; the child finds nothing more to sweep.
    claim(&args.name)?.release().map_err(failure)?;
    talk(&format!("raising lab {} ...", args.name));
    let mut child = supervisor_command(args).map_err(failure)?.spawn().map_err(failure)?;
    let lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
    for line in lines {
        let line = line.map_err(failure)?;
        match serde_json::from_str(&line).map_err(failure)? {
            Reply::Progress(text) => talk(&format!("  {text}")),
            Reply::Done(state) => {
                show(&state, args)?;
                return Ok(ExitCode::SUCCESS);
            }
            Reply::Failed(failed) => {
                let causes = failed.chain.join(": ");
                return Err(failure(anyhow::anyhow!(causes)));
            }
        }
    }
    let status = child.wait().map_err(failure)?;
    Err(failure(anyhow::anyhow!("the lab's supervisor ended while it came up ({status})")))
}

fn supervisor_command(args: &Args) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["lab", "supervise", "--name", &args.name]);
    if let Some(topology) = &args.topology {
        command.arg("--topology").arg(topology);
    }
    if let Control::Headscale = args.control {
        command.args(["--control", "headscale"]);
    }
    if args.join_worker {
        command.arg("--join-worker");
    }
    // It may be started inside another lab, and must not end with that.
    command.env_remove(MARK).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}

/// Runs the hidden `sallyport lab reap`.
pub(super) fn reap(named: &Named) -> Result<ExitCode, Failure> {
    let name = named.name.as_deref().unwrap_or(DEFAULT_NAME);
    sallyport_lab::reaper::watch(&Registry::of_machine(), name, std::io::stdin())
        .map(|()| ExitCode::SUCCESS)
        .map_err(failure)
}
