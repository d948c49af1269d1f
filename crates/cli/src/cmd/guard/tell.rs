//! The guard's events for people (stderr, one line a step) and for programs (stdout, one JSON object a line).

use std::io::Write;

use owo_colors::OwoColorize;
use sallyport_guard::Report;
use sallyport_guard::events::{Keeping, Notice, Ready};
use sallyport_guard::plan::Plan;

/// Tells.
#[derive(Debug)]
pub(super) struct Teller {
    json: bool,
}

impl Teller {
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    pub(super) fn tell(&mut self, report: &Report) {
        if self.json {
            let line = serde_json::to_string(report).expect("a report is JSON");
            let mut stdout = anstream::stdout().lock();
            // A reader that went away changes nothing for the worker: the exit code still tells.
            let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        }
        let mut stderr = anstream::stderr().lock();
        let seconds = report.elapsed.as_secs_f64();
        let _ = match &report.notice {
            // Told by the reporter of the whole program, with what to do next.
            Notice::Failed(_) => Ok(()),
            Notice::Warning { message, .. } => writeln!(stderr, "{} {message}", "warning:".yellow().bold()),
            notice => writeln!(stderr, "{} {}", format!("{seconds:7.2} s ").dimmed(), line(notice)),
        };
    }

    pub(super) fn plan(&self, plan: &Plan) {
        let mut stdout = anstream::stdout().lock();
        if self.json {
            let line = serde_json::to_string(plan).expect("a plan is JSON");
            let _ = writeln!(stdout, "{line}");
            return;
        }
        let _ = writeln!(stdout, "posture: {}", plan.posture);
        for (number, step) in (1..).zip(&plan.steps) {
            let _ = writeln!(stdout, "{number}. {step}");
        }
        for note in &plan.notes {
            let _ = writeln!(stdout, "note: {note}");
        }
    }
}

fn line(notice: &Notice) -> String {
    match notice {
        Notice::Started { posture, exit_nodes, wait_seconds, .. } => {
            let nodes = if exit_nodes.is_empty() {
                String::new()
            } else {
                format!(", exit nodes {}", exit_nodes.join(", "))
            };
            format!("posture {posture}{nodes}; at most {wait_seconds} s")
        }
        Notice::Waiting { message, .. } => format!("{message} ..."),
        Notice::Daemon { version, state, tun } => {
            let mode = if *tun { "" } else { ", in userspace" };
            format!("tailscaled {version} answers, state {state}{mode}")
        }
        Notice::LoggingIn { server, why } => format!("logging in at {server}: {why}"),
        Notice::LoggedIn { name, addresses, tags } => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let tags = if tags.is_empty() { "no tags".to_owned() } else { tags.join(", ") };
            format!("in the tailnet as {name}, {}, {tags}", addresses.join(", "))
        }
        Notice::Trying { exit_node, node, id, online } => {
            let named = if exit_node == node { String::new() } else { format!(" for {exit_node}") };
            let online = if *online { "online" } else { "reported offline" };
            format!("trying {node}{named} (id:{id}, {online})")
        }
        Notice::Answered { node, milliseconds, via } => {
            format!("{node} answered a ping in {milliseconds:.1} ms by {via}")
        }
        Notice::Selected { node, .. } => format!("{node} is selected"),
        Notice::Unchanged { node } => format!("{node} is selected already; nothing to change"),
        Notice::AttemptFailed(attempt) => {
            format!("{} cannot be used: {} [{}]", attempt.exit_node, attempt.message, attempt.reason)
        }
        Notice::Through { families } => {
            let families: Vec<_> = families.iter().map(ToString::to_string).collect();
            format!("packets come through by {}", families.join(" and "))
        }
        Notice::Address { family, address, service, expected } => {
            let verdict = match expected {
                None => "",
                Some(true) => ", as expected",
                Some(false) => ", which is NOT expected",
            };
            format!("the world sees {address} by {family} (says {service}){verdict}")
        }
        Notice::ServiceMissed { family, service, message } => {
            format!("{service} told no {family} address: {message}")
        }
        Notice::Ready(ready) => format!("ready: {}", summary(ready)),
        Notice::Warning { message, .. } => message.clone(),
        Notice::Failed(failure) => failure.message.clone(),
    }
}

fn summary(ready: &Ready) -> String {
    let how = match ready.keeping {
        Keeping::Nothing => "",
        Keeping::ByRoutes => ", by tailscaled's routes alone",
        Keeping::CheckedNotHeld => ", checked, not held",
    };
    match &ready.exit_node {
        Some(node) => format!("{} behind {node}{how}", ready.posture),
        None if ready.fail_open => format!("{} failed open: the normal route", ready.posture),
        None => "in the tailnet, Internet by the normal route".to_owned(),
    }
}
