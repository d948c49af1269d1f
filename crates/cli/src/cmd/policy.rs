//! `sallyport policy`: check a policy file, compare two.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sallyport_policy::file::{self, Policy};
use sallyport_policy::{Ceiling, Platform, Program, compile, compile_ceiling, diff};
use serde_json::json;

use crate::report::Failure;

/// The verbs of `sallyport policy`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Read a ceiling or a rule set and tell every mistake with its line and column
    ///
    /// Exit codes: 0 the file is sound, 2 it is not.
    Check {
        /// YAML, TOML or JSON, told by the name's ending
        file: PathBuf,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Tell exactly which flows open and which close from one file to another, each with an example
    ///
    /// Exit codes: 0 no difference, 1 some, 2 a file is not sound.
    Diff {
        /// The file before
        old: PathBuf,
        /// The file after
        new: PathBuf,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
}

/// Runs one verb of `sallyport policy`.
pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Check { file, json } => check(&file, json),
        Command::Diff { old, new, json } => differ(&old, &new, json),
    }
}

fn check(path: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let bytes = read(path)?;
    let parsed = file::parse(&bytes, file::format_of(&path.to_string_lossy()));
    let kind = match &parsed {
        Ok(Policy::Ceiling(_)) => "ceiling",
        Ok(Policy::Rules(_)) => "rules",
        Err(_) => "unknown",
    };
    let mistakes = parsed.as_ref().err();
    let mut out = anstream::stdout().lock();
    if as_json {
        let told = mistakes.iter().flat_map(|mistakes| mistakes.told()).map(|mistake| {
            json!({
                "path": mistake.path.to_string(), "reason": mistake.fault.word(), "message": mistake.message,
                "line": mistake.place.map(|place| place.line), "column": mistake.place.map(|place| place.column),
            })
        });
        let told: Vec<_> = told.collect();
        let more = mistakes.map_or(0, |mistakes| mistakes.more());
        say(&mut out, &json!({ "file": path.to_string_lossy(), "kind": kind, "ok": mistakes.is_none(), "mistakes": told, "more": more }).to_string())?;
        return Ok(ExitCode::from(if mistakes.is_none() { 0 } else { 2 }));
    }
    match parsed {
        Ok(_) => {
            say(&mut out, &format!("{}: sound ({kind})", path.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(mistakes) => Err(unsound(path, &mistakes)),
    }
}

fn differ(old: &Path, new: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let (before, after) = (policy(old)?, policy(new)?);
    if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
        return Err(Failure::usage(
            "policy_kinds",
            anyhow::anyhow!("one file is a ceiling and the other a rule set"),
        )
        .advise("compare two ceilings, or two rule sets"));
    }
    let difference = diff(&program(&before, old)?, &program(&after, new)?);
    let mut out = anstream::stdout().lock();
    if as_json {
        let changes = difference.changes.iter().map(|change| {
            json!({
                "direction": change.direction, "kind": change.kind.word(), "region": change.region.to_string(),
                "ports": change.ports.iter().map(ToString::to_string).collect::<Vec<_>>(), "portless": change.portless,
                "before": change.before.as_ref().map(ToString::to_string), "after": change.after.as_ref().map(ToString::to_string),
                "witness": change.witness.to_string(), "text": change.to_string(),
            })
        });
        let changes: Vec<_> = changes.collect();
        say(&mut out, &json!({ "changes": changes }).to_string())?;
    } else {
        for change in &difference.changes {
            say(&mut out, &change.to_string())?;
        }
        if difference.changes.is_empty() {
            say(&mut out, "no flow opens or closes")?;
        }
    }
    Ok(ExitCode::from(u8::from(!difference.changes.is_empty())))
}

fn program(policy: &Policy, path: &Path) -> Result<Program, Failure> {
    match policy {
        Policy::Ceiling(ceiling) => Ok(compile_ceiling(ceiling, &Platform::standard())),
        Policy::Rules(rules) => compile(&Ceiling::unrestricted(), rules, &Platform::standard())
            .map_err(|mistakes| unsound(path, &mistakes)),
    }
}

/// Reads a file's bytes; more than the limit is not read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    use std::io::Read;
    let limit = u64::try_from(sallyport_policy::limits::FILE_BYTES).unwrap_or(u64::MAX);
    let open = || {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    open().map_err(|error| {
        Failure::usage("file_unreadable", anyhow::Error::new(error).context(format!("{}", path.display())))
    })
}

/// Reads and parses a file.
pub(crate) fn policy(path: &Path) -> Result<Policy, Failure> {
    file::parse(&read(path)?, file::format_of(&path.to_string_lossy()))
        .map_err(|mistakes| unsound(path, &mistakes))
}

/// A file with mistakes, each on a line of its own.
pub(crate) fn unsound(path: &Path, mistakes: &sallyport_policy::Mistakes) -> Failure {
    let text = mistakes.to_string();
    let lines: Vec<String> = text.lines().map(|line| format!("{}:{line}", path.display())).collect();
    Failure::usage("policy_file", anyhow::anyhow!("{}", lines.join("\n       ")))
}

/// Writes one line of data.
pub(crate) fn say(out: &mut impl Write, line: &str) -> Result<(), Failure> {
    writeln!(out, "{line}").map_err(|error| Failure::general("output", error))
}
