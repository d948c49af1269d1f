//! What a start would do, in order, without doing it: `--dry-run`. Pure.

use serde::Serialize;

use crate::env::{Config, KeySource, KillSwitch};
use crate::host::Place;
use crate::posture::Posture;

/// The plan of a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The posture that the environment spells.
    pub posture: Posture,
    /// The steps, in order.
    pub steps: Vec<String>,
    /// What is worth knowing beside them.
    pub notes: Vec<String>,
}

/// Plans the start of this configuration in this place.
#[must_use]
pub fn plan(config: &Config, place: Place) -> Plan {
    let mut steps = vec![format!(
        "wait for tailscaled at {}, at most {} s for the whole start",
        config.socket.display(),
        config.wait.as_secs()
    )];
    steps.push(log_in(config));
    if config.exit_nodes.is_empty() {
        steps.push("leave the normal route: no exit node is named".to_owned());
    } else {
        let names: Vec<_> = config.exit_nodes.iter().map(ToString::to_string).collect();
        steps.push(format!(
            "take the first of these that answers a ping, can be selected, lets packets through{}: {}",
            if config.posture == Posture::Pinned { " and has an expected address" } else { "" },
            names.join(", ")
        ));
        let targets: Vec<_> = config.probe_targets.iter().map(ToString::to_string).collect();
        steps.push(format!("probe the way out by a TCP connection to one of {}", targets.join(", ")));
    }
    let services: Vec<_> = config.check_urls.iter().map(ToString::to_string).collect();
    steps.push(format!("ask for the public address at {}", services.join(", then ")));
    steps.push(if config.expected.is_empty() {
        "note the public address; none is expected".to_owned()
    } else {
        format!("refuse any public address but {}", config.expected)
    });
    if config.fail_open {
        steps.push("if every exit node fails: clear the exit node and take the normal route".to_owned());
    }
    steps.push(format!("write {}", config.state_file.display()));
    Plan { posture: config.posture, steps, notes: notes(config, place) }
}

fn log_in(config: &Config) -> String {
    let key = match &config.key {
        KeySource::None => "no key, so it has to be logged in already".to_owned(),
        KeySource::Value(_) => "the key of TS_AUTHKEY".to_owned(),
        KeySource::File(path) => format!("the key in {}", path.display()),
    };
    let mut step = format!("log the node in at {} if it is not, with {key}", config.login_server);
    if let Some(hostname) = &config.hostname {
        step.push_str(&format!("; as {hostname}"));
    }
    if let Some(tags) = &config.tags {
        let tags: Vec<_> = tags.iter().map(String::as_str).collect();
        step.push_str(&format!("; with {}", tags.join(", ")));
    }
    step
}

fn notes(config: &Config, place: Place) -> Vec<String> {
    let mut notes = Vec::new();
    match place {
        Place::Workload => {}
        Place::Machine(why) => {
            notes.push(format!(
                "refused here without --host: this is the machine's network namespace ({why})"
            ));
        }
        Place::Unknown => notes
            .push("refused here without --host: whose network namespace this is cannot be told".to_owned()),
    }
    match (config.kill_switch, config.posture) {
        (KillSwitch::On, _) => notes.push("refused: TS_GUARD_KILL_SWITCH=on, and there is none".to_owned()),
        (KillSwitch::Auto | KillSwitch::Off, Posture::None) => {}
        (KillSwitch::Auto | KillSwitch::Off, _) => {
            notes.push(
                "no kill switch: the posture is checked at the start, and not held afterwards".to_owned(),
            );
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env;
    use crate::machine::play::config;

    #[test]
    fn a_plan_follows_the_flow_chart() {
        let config = config(&[
            (env::EXIT_NODE_PRIMARY, "exit-us-east"),
            (env::EXIT_NODE_FALLBACKS, "exit-us-central"),
            (env::EGRESS_EXPECTED_IPS, "203.0.113.10,203.0.113.11"),
        ]);
        let plan = plan(&config, Place::Workload);
        assert_eq!(plan.posture, Posture::Pinned);
        let text = plan.steps.join("\n");
        let order = [
            "wait for tailscaled",
            "log the node in",
            "exit-us-east, exit-us-central",
            "probe",
            "ask",
            "refuse",
            "write",
        ];
        let places: Vec<_> = order.iter().map(|word| text.find(word).expect("a step")).collect();
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn what_would_be_refused_is_noted() {
        let notes = plan(&config(&[(env::GUARD_KILL_SWITCH, "on")]), Place::Machine("why")).notes.join("\n");
        assert!(notes.contains("--host") && notes.contains("KILL_SWITCH=on"), "{notes}");
    }
}
