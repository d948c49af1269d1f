//! Checks that the workspace keeps to its own map. `cargo xtask arrows | promises | pins`; each prints what is wrong and
//! exits 1, or says what it looked at.

use std::process::ExitCode;

mod arrows;
mod pins;
mod promises;

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let checked = match task.as_str() {
        "arrows" => arrows::check(),
        "promises" => promises::check(),
        "pins" => pins::check(),
        _ => Err(anyhow::anyhow!("which check? type: cargo xtask arrows | promises | pins")),
    };
    match checked {
        Ok(report) if report.wrong.is_empty() => {
            println!("{task}: {}", report.looked_at);
            ExitCode::SUCCESS
        }
        Ok(report) => {
            for line in &report.wrong {
                eprintln!("{task}: {line}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{task}: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// What a check saw.
struct Report {
    /// One line on what was looked at, for the reader who wonders whether the check checks anything.
    looked_at: String,
    /// What is wrong; empty is good.
    wrong: Vec<String>,
}
