//! The one shape of every benchmark's result, `target/bench/NAME.json`: our figures beside a named peer's, from one run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde::Serialize;

/// A whole benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The benchmark's name.
    pub(crate) name: String,
    /// The commit it ran on, with `-dirty` where the tree had changes.
    pub(crate) commit: String,
    /// Processor, cores, kernel.
    pub(crate) machine: String,
    /// The command that prints the same again.
    pub(crate) command: String,
    /// One entry a case.
    pub(crate) cases: Vec<Case>,
}

/// One case.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    /// What was done.
    pub(crate) case: String,
    /// How often, each side.
    pub(crate) runs: usize,
    /// The unit of every figure but the ratios.
    pub(crate) unit: String,
    /// Our figures.
    pub(crate) ours: Quantiles,
    /// The peers' figures, by name.
    pub(crate) peers: BTreeMap<String, Quantiles>,
    /// Ours over peer, by peer's name.
    pub(crate) ratio: BTreeMap<String, Ratio>,
    /// What is to be met, in words.
    pub(crate) target: String,
    /// Whether it was.
    pub(crate) met: bool,
}

/// Quantiles of a sample (nearest rank).
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Quantiles {
    /// Median.
    pub(crate) p50: f64,
    /// 95th percentile.
    pub(crate) p95: f64,
    /// 99th percentile.
    pub(crate) p99: f64,
    /// Largest.
    pub(crate) max: f64,
}

/// Ours over peer.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Ratio {
    /// Of the medians.
    pub(crate) p50: f64,
    /// Of the 95th percentiles.
    pub(crate) p95: f64,
}

impl Quantiles {
    /// Quantiles of a non-empty sample.
    pub(crate) fn of(sample: &[f64]) -> Self {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        // Nearest rank in whole numbers: a percentage of the count, rounded up, at least one.
        let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        Self { p50: rank(50), p95: rank(95), p99: rank(99), max: rank(100) }
    }

    /// Ours over `peer`.
    pub(crate) fn over(&self, peer: &Self) -> Ratio {
        Ratio { p50: self.p50 / peer.p50, p95: self.p95 / peer.p95 }
    }
}

impl Report {
    /// An empty report of the commit and machine that this runs on.
    pub(crate) fn new(name: &str, command: &str) -> Self {
        Self {
            name: name.into(),
            commit: commit(),
            machine: machine(),
            command: command.into(),
            cases: Vec::new(),
        }
    }

    /// Prints a line a case and writes `target/bench/NAME.json`. Returns whether every target was met.
    pub(crate) fn finish(self) -> std::io::Result<bool> {
        for case in &self.cases {
            let ratios: Vec<String> = case
                .ratio
                .iter()
                .map(|(peer, ratio)| format!("{peer}: p50 {:.2}x p95 {:.2}x", ratio.p50, ratio.p95))
                .collect();
            println!(
                "{} | n={} | p50 {:.1} p95 {:.1} p99 {:.1} max {:.1} {} | {} | {} | {}",
                case.case,
                case.runs,
                case.ours.p50,
                case.ours.p95,
                case.ours.p99,
                case.ours.max,
                case.unit,
                ratios.join(", "),
                case.target,
                if case.met { "met" } else { "NOT MET" }
            );
        }
        let folder = target_dir().join("bench");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.json", self.name));
        std::fs::write(&path, serde_json::to_string_pretty(&self).map_err(std::io::Error::other)?)?;
        println!("written: target/bench/{}.json", self.name);
        Ok(self.cases.iter().all(|case| case.met))
    }
}

fn target_dir() -> PathBuf {
    // Cargo runs a benchmark in its package's folder, crates/NAME.
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("../../target"), PathBuf::from)
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn commit() -> String {
    let dirty = if output("git", &["status", "--porcelain"]).is_empty() { "" } else { "-dirty" };
    format!("{}{dirty}", output("git", &["rev-parse", "--short", "HEAD"]))
}

fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}, {cores} cores, Linux {}", model.unwrap_or("unknown processor"), output("uname", &["-r"]))
}
