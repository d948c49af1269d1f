//! `sallyport lab demo`: the seed's five goals and six failures on a real tailnet, each with a worker that asks the world
//! who it is. Everything is done by this binary's own verbs, so whatever the table shows, a reader can type.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::report::Failure;

/// Arguments of `sallyport lab demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also write the table as JSON to this file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Name of the lab that the demo raises and takes down
    #[arg(long, default_value = "demo")]
    name: String,
}

/// What a row is to end in.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// The worker starts, and the world sees this address.
    Starts { seen_as: &'static str, selected: &'static str },
    /// The worker does not start; the guard exits with this code and reason word.
    Refused { code: i32, reason: &'static str },
}

/// One row: what was wanted, configured, broken, and is to come out.
struct Row {
    goal: &'static str,
    environment: &'static [(&'static str, &'static str)],
    faults: &'static [&'static [&'static str]],
    expected: Expected,
}

const UPLINK: &str = "198.51.100.1";
const EAST: &str = "203.0.113.10";
const CENTRAL: &str = "203.0.113.11";

/// The five rows of the seed's table, with its values, then six failures.
const ROWS: &[Row] = &[
    Row {
        goal: "tailnet only, normal Internet route",
        environment: &[("TS_REQUIRE_EXIT_NODE", "false")],
        faults: &[],
        expected: Expected::Starts { seen_as: UPLINK, selected: "" },
    },
    Row {
        goal: "use one exit node if available",
        environment: &[("TS_EXIT_NODE_PRIMARY", "exit-us-east"), ("TS_REQUIRE_EXIT_NODE", "false")],
        faults: &[],
        expected: Expected::Starts { seen_as: EAST, selected: "exit-us-east" },
    },
    Row {
        goal: "require one exit node",
        environment: &[("TS_EXIT_NODE_PRIMARY", "exit-us-east"), ("TS_REQUIRE_EXIT_NODE", "true")],
        faults: &[],
        expected: Expected::Starts { seen_as: EAST, selected: "exit-us-east" },
    },
    Row {
        goal: "try fallbacks",
        environment: FALLBACKS,
        faults: &[],
        expected: Expected::Starts { seen_as: EAST, selected: "exit-us-east" },
    },
    Row {
        goal: "pinned public egress",
        environment: PINNED,
        faults: &[],
        expected: Expected::Starts { seen_as: EAST, selected: "exit-us-east" },
    },
    Row {
        goal: "failure: primary off",
        environment: FALLBACKS,
        faults: &[&["exit-killed", "exit-us-east"]],
        expected: Expected::Starts { seen_as: CENTRAL, selected: "exit-us-central" },
    },
    Row {
        goal: "failure: every exit node off",
        environment: FALLBACKS,
        faults: &[&["exit-killed", "exit-us-east"], &["exit-killed", "exit-us-central"]],
        expected: Expected::Refused { code: 5, reason: "exit-no-answer" },
    },
    Row {
        goal: "failure: wrong public address",
        environment: &[
            ("TS_EXIT_NODE_PRIMARY", "exit-us-east"),
            ("TS_REQUIRE_EXIT_NODE", "true"),
            ("TS_EGRESS_EXPECTED_IPS", "203.0.113.99"),
        ],
        faults: &[],
        expected: Expected::Refused { code: 6, reason: "address-not-expected" },
    },
    Row {
        goal: "failure: required, but none named",
        environment: &[("TS_REQUIRE_EXIT_NODE", "true")],
        faults: &[],
        expected: Expected::Refused { code: 2, reason: "exit-node-required" },
    },
    Row {
        goal: "failure: name unknown",
        environment: &[("TS_EXIT_NODE_PRIMARY", "exit-us-north"), ("TS_REQUIRE_EXIT_NODE", "true")],
        faults: &[],
        expected: Expected::Refused { code: 5, reason: "exit-unknown" },
    },
    Row {
        goal: "failure: key rejected",
        environment: &[("TS_EXIT_NODE_PRIMARY", "exit-us-east"), ("TS_REQUIRE_EXIT_NODE", "true")],
        faults: &[&["control-refuses-key"]],
        expected: Expected::Refused { code: 4, reason: "key-rejected" },
    },
];

const FALLBACKS: &[(&str, &str)] = &[
    ("TS_EXIT_NODE_PRIMARY", "exit-us-east"),
    ("TS_EXIT_NODE_FALLBACKS", "exit-us-central,exit-us-west"),
    ("TS_REQUIRE_EXIT_NODE", "true"),
];

const PINNED: &[(&str, &str)] = &[
    ("TS_EXIT_NODE_PRIMARY", "exit-us-east"),
    ("TS_EXIT_NODE_FALLBACKS", "exit-us-central"),
    ("TS_REQUIRE_EXIT_NODE", "true"),
    ("TS_EGRESS_EXPECTED_IPS", "203.0.113.10,203.0.113.11"),
];

/// What a row came to.
#[derive(Debug, Serialize)]
struct Outcome {
    goal: &'static str,
    configured: String,
    broken: String,
    /// `started`, or `refused: <reason word>`.
    outcome: String,
    /// The address that the world saw the worker come from; none where no worker started.
    seen_as: Option<String>,
    /// The exit node in the state file.
    selected: Option<String>,
    /// The guard's own exit code.
    guard_exit_code: i32,
    /// From the guard's start to its end.
    seconds: f64,
    /// Whether this is what the seed says.
    as_expected: bool,
}

/// Runs the demo. Exit code 0 only if every row is as it should be.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let lab = Lab { name: args.name.clone() };
    demo(&lab, args).map_err(|error| Failure::general("demo-failed", error))
}

fn demo(lab: &Lab, args: &Args) -> Result<ExitCode> {
    let mut talk = anstream::stderr();
    writeln!(
        talk,
        "raising the lab `{}`: real tailscaleds, a control server, a fake Internet ...",
        lab.name
    )?;
    let began = Instant::now();
    lab.verb(["up", "--detach"])?;
    let down = TakeDown(lab);
    writeln!(talk, "up in {:.1} s", began.elapsed().as_secs_f64())?;

    let mut outcomes = Vec::new();
    let mut state_file = None;
    for (index, row) in (1..).zip(ROWS) {
        writeln!(talk, "[{index:>2}/{}] {}", ROWS.len(), row.goal)?;
        let (outcome, state) = attempt(lab, row).with_context(|| format!("row {index}, {}", row.goal))?;
        state_file = state.or(state_file);
        outcomes.push(outcome);
    }
    drop(down);

    let mut out = anstream::stdout().lock();
    writeln!(out, "{}", table(&outcomes))?;
    if let Some(state) = state_file {
        writeln!(out, "\nThe state file of the last worker that started:\n{}", state.trim_end())?;
    }
    if let Some(path) = &args.report {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let json = serde_json::json!({ "rows": outcomes, "seconds": began.elapsed().as_secs_f64() });
        std::fs::write(path, serde_json::to_string_pretty(&json)?)
            .with_context(|| format!("write {}", path.display()))?;
        writeln!(out, "\nThe same as JSON: {}", path.display())?;
    }
    let wrong = outcomes.iter().filter(|outcome| !outcome.as_expected).count();
    writeln!(
        out,
        "\n{} rows as expected, {wrong} not, {:.0} s",
        outcomes.len() - wrong,
        began.elapsed().as_secs_f64()
    )?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One row: a fresh worker machine, the guard, and, only if the guard says so, the worker.
fn attempt(lab: &Lab, row: &Row) -> Result<(Outcome, Option<String>)> {
    lab.verb(["reset"])?;
    for fault in row.faults {
        lab.verb(std::iter::once("fault").chain(fault.iter().copied()))?;
    }
    let began = Instant::now();
    let guard = lab.in_worker(row.environment, [exe()?.as_os_str(), "guard".as_ref(), "--json".as_ref()])?;
    let seconds = began.elapsed().as_secs_f64();
    let code = guard.status.code().context("the guard was killed by a signal")?;

    let (mut seen_as, mut selected, mut state) = (None, None, None);
    let outcome = if code == 0 {
        let worker =
            lab.in_worker(&[], ["curl", "-sS", "-4", "--max-time", "10", "http://echo.lab.example/"])?;
        ensure!(worker.status.success(), "the worker could not ask who it is: {}", text(&worker.stderr));
        seen_as = Some(text(&worker.stdout));
        let file = lab.in_worker(&[], ["sh", "-c", "cat \"$TS_GUARD_STATE_FILE\""])?;
        ensure!(file.status.success(), "no state file: {}", text(&file.stderr));
        let file = text(&file.stdout);
        selected = file.lines().find_map(|line| line.strip_prefix("SELECTED_EXIT_NODE=")).map(str::to_owned);
        state = Some(file);
        "started".to_owned()
    } else {
        format!("refused: {}", reason(&guard).unwrap_or_else(|| "no reason given".to_owned()))
    };
    let as_expected = match row.expected {
        Expected::Starts { seen_as: address, selected: name } => {
            code == 0 && seen_as.as_deref() == Some(address) && selected.as_deref() == Some(name)
        }
        Expected::Refused { code: expected, reason } => {
            code == expected && outcome == format!("refused: {reason}")
        }
    };
    let outcome = Outcome {
        goal: row.goal,
        configured: configured(row.environment),
        broken: row.faults.iter().map(|fault| fault.join(" ")).collect::<Vec<_>>().join(", "),
        outcome,
        seen_as,
        selected,
        guard_exit_code: code,
        seconds,
        as_expected,
    };
    Ok((outcome, state))
}

/// The lab, driven by this binary's own verbs.
struct Lab {
    name: String,
}

impl Lab {
    /// One verb that has to succeed.
    fn verb<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let words: Vec<&str> = words.into_iter().collect();
        let output = self.command(&words)?.output()?;
        if !output.status.success() {
            bail!("`sallyport lab {}` failed: {}", words.join(" "), text(&output.stderr));
        }
        Ok(())
    }

    /// One command in the worker's place, with this environment and the lab's own.
    fn in_worker<S: AsRef<OsStr>>(
        &self,
        environment: &[(&str, &str)],
        command: impl IntoIterator<Item = S>,
    ) -> Result<Output> {
        let mut run = self.command(&["run"])?;
        run.arg("--").args(command).envs(environment.iter().copied());
        Ok(run.output()?)
    }

    fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(exe()?);
        command.arg("lab").args(words).args(["--name", &self.name]).stdin(Stdio::null());
        Ok(command)
    }
}

/// Takes the lab down whatever happened.
struct TakeDown<'a>(&'a Lab);

impl Drop for TakeDown<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.verb(["down"]) {
            // Nobody is left to hand this to; the next `lab up` or `lab down` sweeps.
            let _ = writeln!(anstream::stderr(), "warning: {error:#}");
        }
    }
}

fn exe() -> Result<PathBuf> {
    std::env::current_exe().context("find this binary")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// The reason word of the guard's last JSON event.
fn reason(guard: &Output) -> Option<String> {
    let events = String::from_utf8_lossy(&guard.stdout);
    let mut parsed =
        events.lines().rev().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    parsed.find_map(|event| event["reason"].as_str().map(str::to_owned))
}

/// The environment as the seed's table words it.
fn configured(environment: &[(&str, &str)]) -> String {
    let short = |name: &str| match name {
        "TS_EXIT_NODE_PRIMARY" => "primary",
        "TS_EXIT_NODE_FALLBACKS" => "fallbacks",
        "TS_REQUIRE_EXIT_NODE" => "require",
        "TS_EGRESS_EXPECTED_IPS" => "expected",
        _ => "",
    };
    environment.iter().map(|(name, value)| format!("{}={value}", short(name))).collect::<Vec<_>>().join(" ")
}

/// Columns of the table: it fits a terminal's, a page's and a log's line.
const WIDTH: u16 = 118;

fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(["GOAL", "CONFIGURED", "OUTCOME", "THE WORLD SAW", "SECONDS", ""]);
    for row in outcomes {
        table.add_row([
            row.goal,
            // One variable a line: a cell is broken nowhere else.
            &row.configured.replace(' ', "\n"),
            &row.outcome,
            row.seen_as.as_deref().unwrap_or("-"),
            &format!("{:.1}", row.seconds),
            if row.as_expected { "as expected" } else { "WRONG" },
        ]);
    }
    table
}
