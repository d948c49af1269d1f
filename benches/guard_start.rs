//! `make bench BENCH=guard-start`: from the guard's first instruction to "the worker may start", beside the same job done by
//! `tailscale up`, `tailscale set --exit-node` and `curl` in a shell script without sleeps. Sides alternate within one run, on one lab,
//! inside the worker's place; each first login starts from a tailscaled whose state was wiped.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints")]
#![expect(clippy::cast_precision_loss, reason = "KiB fit")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

#[path = "support/report.rs"]
mod report;

use report::{Case, Quantiles, Report};

const LAB: &str = "bench-guard-start";
const EXIT_NODE: &str = "exit-us-east";
const EXPECTED: &str = "203.0.113.10";
const INNER: &str = "SALLYPORT_BENCH_INNER";

fn main() -> ExitCode {
    if std::env::args().any(|arg| arg == "--peak-rss") {
        return print_peak_rss();
    }
    // Inside the worker's place, this same binary drives both sides.
    if std::env::var_os(INNER).is_some() {
        return measure();
    }
    lab(&["up", "--detach"]);
    let status = Command::new(sallyport())
        .args(["lab", "run", "--name", LAB, "--"])
        .arg(std::env::current_exe().expect("this binary has a path"))
        .env(INNER, "1")
        .status()
        .expect("sallyport lab run starts");
    lab(&["down"]);
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One run of the guard, in milliseconds.
struct Run {
    /// From spawn to exit.
    whole: f64,
    /// From the event that tells of tailscaled's state Running to the exit.
    after_running: f64,
}

fn measure() -> ExitCode {
    let logins = count("LOGINS", 40);
    let repeats = count("REPEATS", 100);
    let mut report = Report::new("guard-start", "make bench BENCH=guard-start");

    for (case, news, target) in [
        ("first login, control prompt", None, Target { p50: 1.0, p95: Some(1.0) }),
        (
            "first login, control's news held back 800 ms",
            Some("800ms"),
            Target { p50: 0.35, p95: Some(0.35) },
        ),
    ] {
        let (mut ours, mut after, mut peer) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..logins {
            fresh(news);
            let run = guard();
            ours.push(run.whole);
            after.push(run.after_running);
            fresh(news);
            peer.push(script());
        }
        report.cases.push(compared(case, &ours, &peer, target));
        if news.is_none() {
            let added = Quantiles::of(&after);
            let met = added.p50 <= 120.0 && added.p99 <= 400.0;
            let case = "added after tailscaled reports Running, control prompt";
            report.cases.push(alone(case, after.len(), "ms", added, "p50 <= 120 ms, p99 <= 400 ms", met));
        }
    }

    fresh(None);
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    guard();
    for _ in 0..repeats {
        ours.push(guard().whole);
        peer.push(script());
    }
    report.cases.push(compared("node already logged in", &ours, &peer, Target { p50: 0.35, p95: None }));

    let mut peaks = Vec::new();
    for _ in 0..20 {
        fresh(None);
        peaks.push(peak_rss());
    }
    let peaks = Quantiles::of(&peaks);
    let met = peaks.max <= 16.0;
    report.cases.push(alone(
        "peak resident set of the guard, first login",
        20,
        "MiB",
        peaks,
        "max <= 16 MiB",
        met,
    ));
    match report.finish() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot write the report: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Target {
    p50: f64,
    p95: Option<f64>,
}

fn compared(case: &str, ours: &[f64], peer: &[f64], target: Target) -> Case {
    let (ours_q, peer_q) = (Quantiles::of(ours), Quantiles::of(peer));
    let ratio = ours_q.over(&peer_q);
    let met = ratio.p50 <= target.p50 && target.p95.is_none_or(|p95| ratio.p95 <= p95);
    let name = "tailscale up; tailscale set; curl";
    Case {
        case: case.into(),
        runs: ours.len(),
        unit: "ms".into(),
        ours: ours_q,
        peers: BTreeMap::from([(name.into(), peer_q)]),
        ratio: BTreeMap::from([(name.into(), ratio)]),
        target: match target.p95 {
            Some(p95) => format!("p50 <= {}x, p95 <= {p95}x", target.p50),
            None => format!("p50 <= {}x", target.p50),
        },
        met,
    }
}

/// A figure without a peer.
fn alone(case: &str, runs: usize, unit: &str, ours: Quantiles, target: &str, met: bool) -> Case {
    let (peers, ratio) = (BTreeMap::new(), BTreeMap::new());
    Case { case: case.into(), runs, unit: unit.into(), ours, peers, ratio, target: target.into(), met }
}

/// The worker's tailscaled with no state, and the control server as `news` says.
fn fresh(news: Option<&str>) {
    lab(&["reset"]);
    if let Some(delay) = news {
        lab(&["fault", "control-batches", "--delay", delay]);
    }
}

/// Both sides of a comparison do the same job: this exit node, this public address.
fn guard_command(command: &mut Command) -> &mut Command {
    command
        .env("TS_EXIT_NODE_PRIMARY", EXIT_NODE)
        .env("TS_EGRESS_EXPECTED_IPS", EXPECTED)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}

/// One guard, which has to succeed.
fn guard() -> Run {
    let began = Instant::now();
    let mut child = guard_command(Command::new(sallyport()).args(["guard", "--json"]))
        .spawn()
        .expect("sallyport guard starts");
    let mut running = None;
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines().map_while(Result::ok) {
        // Told when tailscaled says Running.
        if line.contains("\"event\":\"logged-in\"") {
            running = Some(Instant::now());
        }
        said.push_str(&line);
        said.push('\n');
    }
    let mut talk = String::new();
    let _ = child.stderr.take().expect("stderr is a pipe").read_to_string(&mut talk);
    let status = child.wait().expect("the guard ends");
    let ended = Instant::now();
    assert!(status.success(), "the guard failed:\n{said}{talk}");
    let running = running.unwrap_or_else(|| panic!("the guard never said that tailscaled runs:\n{said}"));
    let ms = |from: Instant| ended.duration_since(from).as_secs_f64() * 1000.0;
    Run { whole: ms(began), after_running: ms(running) }
}

/// Peak resident set of one guard, MiB: a process between us and it, so that its children's accounting is the guard's alone.
fn peak_rss() -> f64 {
    let output = guard_command(
        Command::new(std::env::current_exe().expect("this binary has a path")).arg("--peak-rss"),
    )
    .output()
    .expect("this binary starts");
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim()
        .parse()
        .unwrap_or_else(|_| panic!("no figure in {said:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The process between: runs one guard and prints the largest resident set among its children, which is that guard's.
fn print_peak_rss() -> ExitCode {
    use nix::sys::resource::{UsageWho, getrusage};
    let status = Command::new(sallyport())
        .arg("guard")
        .stdout(Stdio::null())
        .status()
        .expect("sallyport guard starts");
    assert!(status.success(), "the guard failed");
    let kib = getrusage(UsageWho::RUSAGE_CHILDREN).expect("own accounting is readable").max_rss();
    println!("{}", kib as f64 / 1024.0);
    ExitCode::SUCCESS
}

/// One run of the script, in milliseconds.
fn script() -> f64 {
    let began = Instant::now();
    let output =
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/guard_start_peer.sh"))
            .env("TAILSCALE", tailscale())
            .env("EXIT_NODE", EXIT_NODE)
            .env("EXPECTED_IP", EXPECTED)
            .env("CHECK_URL", "http://203.0.113.9/")
            .output()
            .expect("the script starts");
    let took = began.elapsed().as_secs_f64() * 1000.0;
    assert!(output.status.success(), "the script failed: {}", String::from_utf8_lossy(&output.stderr));
    took
}

fn lab(words: &[&str]) {
    let output = Command::new(sallyport())
        .arg("lab")
        .args(words)
        .args(["--name", LAB])
        .output()
        .expect("sallyport lab starts");
    assert!(output.status.success(), "sallyport lab {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn sallyport() -> PathBuf {
    // The release build that `make bench` makes just before.
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    target.join("release/sallyport")
}

fn tailscale() -> PathBuf {
    let versions = include_str!("../versions.env");
    let version = versions.lines().find_map(|line| line.strip_prefix("TAILSCALE_VERSION=")).expect("pinned");
    let cache = std::env::var_os("SALLYPORT_CACHE").map(PathBuf::from).expect("make sets SALLYPORT_CACHE");
    cache.join(format!("tailscale-{version}/tailscale"))
}

fn count(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
