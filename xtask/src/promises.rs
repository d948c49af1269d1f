//! docs/promises.md: each promise has a test or a command, and each named test exists.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::Report;

const FILE: &str = "docs/promises.md";

/// Reads the table's rows `| promise | shown by |`. The last cell holds one or more references in back-ticks:
/// `path/to/file.rs::test_name`, `path/to/file_test.go::TestName`, or a command that begins with `make `.
pub(crate) fn check() -> Result<Report> {
    let text = fs::read_to_string(FILE).with_context(|| format!("read {FILE}"))?;
    let makefile = fs::read_to_string("Makefile").context("read Makefile")?;
    let mut wrong = Vec::new();
    let (mut promises, mut references) = (0, 0);
    for (number, line) in (1..).zip(text.lines()) {
        let Some(row) = line.strip_prefix('|').and_then(|line| line.trim_end().strip_suffix('|')) else {
            continue;
        };
        let Some((promise, shown_by)) = row.rsplit_once('|') else { continue };
        let promise = promise.trim();
        if promise.starts_with("promise") || promise.starts_with("---") || promise.starts_with(":--") {
            continue;
        }
        promises += 1;
        let named: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            wrong.push(format!("{FILE}:{number}: nothing shows \"{promise}\""));
        }
        for reference in named {
            references += 1;
            if let Err(error) = exists(reference, &makefile) {
                wrong.push(format!("{FILE}:{number}: `{reference}`: {error}"));
            }
        }
    }
    ensure!(promises > 0, "{FILE} holds no promise");
    Ok(Report {
        looked_at: format!("{promises} promises, {references} tests and commands, all there"),
        wrong,
    })
}

fn exists(reference: &str, makefile: &str) -> Result<()> {
    if let Some(target) = reference.strip_prefix("make ") {
        let target = target.split_whitespace().next().unwrap_or_default();
        ensure!(makefile.lines().any(|line| line.starts_with(&format!("{target}:"))), "no such make target");
        return Ok(());
    }
    let (file, name) = reference.split_once("::").context("not `file::test` and not `make target`")?;
    ensure!(Path::new(file).is_file(), "no such file");
    let source = fs::read_to_string(file)?;
    let name = name.rsplit("::").next().unwrap_or(name);
    let keyword = if file.ends_with(".go") { "func" } else { "fn" };
    let is_there = source.contains(&format!("{keyword} {name}(")) || source.contains(&format!("\"{name}\""));
    ensure!(is_there, "no such test in that file");
    Ok(())
}
