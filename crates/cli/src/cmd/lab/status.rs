//! `sallyport lab status`.

use std::io::Write;
use std::process::ExitCode;

use comfy_table::{Table, presets};
use sallyport_lab::wire::Request;
use serde_json::Value;

use super::{Named, ask, failure, print_json};
use crate::report::Failure;

/// Arguments of `sallyport lab status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
    /// Everything, as JSON; with the worker's auth key
    #[arg(long)]
    json: bool,
}

/// Runs `sallyport lab status`.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let state = ask(&args.named, &Request::Status)?;
    if args.json {
        print_json(&state)?
    } else {
        print(&state)?
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a lab's state for people.
pub(super) fn print(state: &Value) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    let mut line = |text: String| writeln!(out, "{text}").map_err(failure);
    line(format!(
        "lab {} is up, raised in {:.1} s; control server: {} at {} ({})",
        text(&state["name"]),
        state["raised_in_seconds"].as_f64().unwrap_or_default(),
        text(&state["control"]["kind"]),
        text(&state["control"]["login_server"]),
        process(&state["control"]["process"]),
    ))?;
    line(hosts(state))?;
    for fault in items(&state["faults"]) {
        let parts = ["name", "host", "link"].into_iter().filter_map(|part| fault.get(part)?.as_str());
        line(format!("fault in force: {}", parts.collect::<Vec<_>>().join(" ")))?;
    }
    let counters = state["uplink"]["counters"].as_object();
    let counted = counters.into_iter().flatten().filter(|(_, count)| count["packets"].as_u64() > Some(0));
    let counted: Vec<String> = counted.map(|(name, count)| format!("{name} {}", count["packets"])).collect();
    line(format!(
        "packets on the worker's uplink: {}",
        if counted.is_empty() { "none".into() } else { counted.join(", ") }
    ))?;
    let internet = &state["internet"];
    line(format!(
        "the Internet saw: echo {}, dns {} ({})",
        internet["echo"]["total"],
        internet["dns"]["total"],
        internet["dns_mode"].as_str().unwrap_or("lying"),
    ))
}

fn hosts(state: &Value) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "HOST",
        "ROLE",
        "UNDERLAY",
        "PUBLIC",
        "TAILNET",
        "TAILSCALED",
        "NODE",
    ]);
    for host in items(&state["hosts"]) {
        let daemon = &host["tailscaled"];
        let tailnet = items(&daemon["tailnet_addresses"]).next().map(text).unwrap_or("-");
        let backend = daemon["backend"].as_str().unwrap_or("-");
        let daemon_state = match daemon {
            Value::Null => "-".to_string(),
            _ => match daemon["process"]["state"].as_str() {
                Some("running") => backend.to_string(),
                _ => process(&daemon["process"]),
            },
        };
        table.add_row([
            text(&host["name"]),
            text(&host["role"]),
            text(&host["addresses"]["ipv4"]),
            host["public"]["ipv4"].as_str().unwrap_or("-"),
            tailnet,
            &daemon_state,
            &node(&host["node"]),
        ]);
    }
    table.trim_fmt()
}

fn node(node: &Value) -> String {
    if node.is_null() {
        return "-".into();
    }
    let is = |key: &str| node[key].as_bool() == Some(true);
    let mut words = vec![if is("online") { "online" } else { "offline" }];
    if is("expired") {
        words.push("expired");
    }
    let advertised = items(&node["advertised_routes"]).count();
    if advertised > 0 {
        words.push(if items(&node["approved_routes"]).count() >= advertised {
            "exit"
        } else {
            "exit not approved"
        });
    }
    words.join(", ")
}

fn process(process: &Value) -> String {
    match process["state"].as_str() {
        Some("running") => format!("running, pid {}", process["pid"]),
        Some("stopped") => format!("stopped, pid {}", process["pid"]),
        Some("ended") => format!("ended: {}", text(&process["how"])),
        _ => "not started".into(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
