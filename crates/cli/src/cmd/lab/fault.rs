//! `sallyport lab fault`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{Table, presets};
use sallyport_lab::fault::{self, Order, Parameters, TABLE, Target};
use sallyport_lab::host::Link;
use sallyport_lab::wire::Request;
use serde_json::{Value, json};

use super::{Named, ask, failure, print_json};
use crate::report::Failure;

/// Arguments of `sallyport lab fault`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sallyport lab fault --list
  sallyport lab fault exit-killed exit-us-east
  sallyport lab fault link-latency worker --delay 80ms --jitter 10ms
  sallyport lab fault --undo exit-killed exit-us-east
  sallyport lab fault --undo-all")]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
    /// The fault, as --list names it
    #[arg(required_unless_present_any = ["list", "undo_all"], value_name = "FAULT")]
    fault: Option<String>,
    /// The host it is done to
    #[arg(value_name = "HOST")]
    target: Option<String>,
    /// Undo it
    #[arg(long)]
    undo: bool,
    /// Undo all that are in force, the newest first
    #[arg(long, conflicts_with_all = ["fault", "undo"])]
    undo_all: bool,
    /// List all faults, with what they do and what undoes them
    #[arg(long, conflicts_with_all = ["fault", "undo", "undo_all"])]
    list: bool,
    /// Which link: u0 (underlay) or w0 (an exit's Internet side)
    #[arg(long, value_parser = link)]
    link: Option<Link>,
    /// A delay, such as 80ms or 2s
    #[arg(long, value_parser = duration)]
    delay: Option<Duration>,
    /// How far a delay may be off, either way
    #[arg(long, value_parser = duration)]
    jitter: Option<Duration>,
    /// Share of packets lost
    #[arg(long)]
    percent: Option<f64>,
    /// Kilobits a second
    #[arg(long, value_name = "KBIT")]
    rate: Option<u32>,
    /// The control server's words
    #[arg(long)]
    text: Option<String>,
    /// What is told of a node
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    online: Option<bool>,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

fn link(text: &str) -> Result<Link, String> {
    let known = [Link::Underlay, Link::Internet];
    let found = known.into_iter().find(|link| link.name() == text);
    found.ok_or_else(|| "expected u0 or w0".into())
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a time such as 80ms or 2s".to_string();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    match &text[digits.len()..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(wrong()),
    }
}

/// Runs `sallyport lab fault`.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.list {
        list(args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let request = match &args.fault {
        None => Request::UndoAll,
        Some(name) => {
            let parameters = Parameters {
                link: args.link,
                delay: args.delay,
                jitter: args.jitter,
                percent: args.percent,
                rate: args.rate,
                text: args.text.clone(),
                online: args.online,
            };
            let order = Order { name: name.clone(), target: args.target.clone(), parameters };
            // Here too, so that a mistake is a mistake of usage.
            let record = args.named.find()?.record().map_err(failure)?;
            fault::check(&order, &record.topology).map_err(failure)?;
            if args.undo { Request::Undo(order) } else { Request::Fault(order) }
        }
    };
    let answer = ask(&args.named, &request)?;
    if args.json {
        print_json(&answer)?;
    } else {
        told(&answer).map_err(failure)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn told(answer: &Value) -> std::io::Result<()> {
    let mut stderr = anstream::stderr().lock();
    if let Some(key) = answer.get("done") {
        writeln!(stderr, "in force: {}", key_text(key))?;
    }
    for key in answer.get("undone").and_then(Value::as_array).into_iter().flatten() {
        writeln!(stderr, "undone: {}", key_text(key))?;
    }
    Ok(())
}

fn key_text(key: &Value) -> String {
    let parts = ["name", "host", "link"].into_iter().filter_map(|part| key.get(part)?.as_str());
    parts.collect::<Vec<_>>().join(" ")
}

fn list(as_json: bool) -> Result<(), Failure> {
    if as_json {
        let all = TABLE.iter().map(|kind| {
            let takes: Vec<String> = kind.takes.iter().map(ToString::to_string).collect();
            json!({
                "name": kind.name, "target": target(kind.target), "takes": takes,
                "effect": kind.effect, "undo": kind.undo, "headscale": kind.headscale,
            })
        });
        return print_json(&all.collect());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["FAULT", "TARGET", "DOES", "UNDO"]);
    for kind in TABLE {
        let takes: Vec<String> = kind.takes.iter().map(ToString::to_string).collect();
        let effect = if takes.is_empty() {
            kind.effect.into()
        } else {
            format!("{} [{}]", kind.effect, takes.join(" "))
        };
        table.add_row([kind.name, target(kind.target), &effect, kind.undo]);
    }
    writeln!(anstream::stdout(), "{}", table.trim_fmt()).map_err(failure)
}

fn target(target: Target) -> &'static str {
    match target {
        Target::Peer => "exit, app",
        Target::Exit => "exit",
        Target::Worker => "(worker)",
        Target::Host => "any host",
        Target::Node => "any node",
        Target::Lab => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(duration("80ms"), Ok(Duration::from_millis(80)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["", "80", "ms", "1.5s", "2m", "-1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
