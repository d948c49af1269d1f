//! What can be broken in a lab, by name: one table, from which the command line, its help and the checks are made.
//! Pure. How each is done and undone is in the modules below.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host::Link;
use crate::topology::{Role, Topology};

pub mod apply;
mod table;

pub use table::TABLE;

/// What a fault is done to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// An exit node, or an app device.
    Peer,
    /// An exit node.
    Exit,
    /// The worker; needs no name.
    Worker,
    /// Any host, the control server's included.
    Host,
    /// A node of the tailnet, by name.
    Node,
    /// The control server, the policy or the DNS, of which there is one.
    Lab,
}

/// A parameter that a fault takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parameter {
    /// `--link`
    Link,
    /// `--delay`
    Delay,
    /// `--jitter`
    Jitter,
    /// `--percent`
    Percent,
    /// `--rate`
    Rate,
    /// `--text`
    Text,
    /// `--online`
    Online,
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "--link",
            Self::Delay => "--delay",
            Self::Jitter => "--jitter",
            Self::Percent => "--percent",
            Self::Rate => "--rate",
            Self::Text => "--text",
            Self::Online => "--online",
        })
    }
}

/// A kind of fault: one line of [`TABLE`].
#[derive(Debug)]
pub struct Kind {
    /// Its name, such as `exit-killed`.
    pub name: &'static str,
    /// What it is done to.
    pub target: Target,
    /// What may be said beside.
    pub takes: &'static [Parameter],
    /// What it does.
    pub effect: &'static str,
    /// What undoing it does.
    pub undo: &'static str,
    /// Whether headscale can do it; the lab's own control server can do all.
    pub headscale: bool,
}

/// What was said beside the name of a fault.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Which link; the underlay's where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// A delay, one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// How far a delay may be off, either way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Duration>,
    /// A share in percent, above 0 and at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// Kilobits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// An error text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What is told of a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub online: Option<bool>,
}

impl Parameters {
    fn said(&self) -> impl Iterator<Item = Parameter> {
        let said = [
            (Parameter::Link, self.link.is_some()),
            (Parameter::Delay, self.delay.is_some()),
            (Parameter::Jitter, self.jitter.is_some()),
            (Parameter::Percent, self.percent.is_some()),
            (Parameter::Rate, self.rate.is_some()),
            (Parameter::Text, self.text.is_some()),
            (Parameter::Online, self.online.is_some()),
        ];
        said.into_iter().filter(|(_, said)| *said).map(|(parameter, _)| parameter)
    }
}

/// What was asked for, unchecked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The fault's name.
    pub name: String,
    /// Its target's name, where one was given.
    pub target: Option<String>,
    /// What was said beside.
    #[serde(default)]
    pub parameters: Parameters,
}

/// A fault that makes sense in a topology.
#[derive(Debug, Clone)]
pub struct Checked {
    /// What kind.
    pub kind: &'static Kind,
    /// The host it is done to; `None` for faults of the whole lab.
    pub host: Option<String>,
    /// What was said beside.
    pub parameters: Parameters,
}

impl Checked {
    /// By what an active fault is known: its name, host and link.
    #[must_use]
    pub fn key(&self) -> Key {
        let link = self.kind.takes.contains(&Parameter::Link).then(|| self.link());
        Key { name: self.kind.name.to_string(), host: self.host.clone(), link }
    }

    /// The link it is done to.
    #[must_use]
    pub fn link(&self) -> Link {
        self.parameters.link.unwrap_or(Link::Underlay)
    }
}

/// By what an active fault is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The fault's name.
    pub name: String,
    /// The host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(host) = &self.host {
            write!(f, " {host}")?;
        }
        if let Some(link) = self.link {
            write!(f, " {link}")?;
        }
        Ok(())
    }
}

/// Why an order makes no sense. All reasons are given together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct OrderError(pub Vec<String>);

/// The kind of a name.
#[must_use]
pub fn kind(name: &str) -> Option<&'static Kind> {
    TABLE.iter().find(|kind| kind.name == name)
}

/// Checks an order against the table and the topology.
///
/// # Errors
/// [`OrderError`] with everything that is wrong.
pub fn check(order: &Order, topology: &Topology) -> Result<Checked, OrderError> {
    let Some(kind) = kind(&order.name) else {
        return Err(OrderError(vec![format!("no fault named {}{}", order.name, nearest(&order.name))]));
    };
    let mut wrong = Vec::new();
    let host = match host(kind, order.target.as_deref(), topology) {
        Ok(host) => host,
        Err(reason) => {
            wrong.push(reason);
            None
        }
    };
    for parameter in order.parameters.said().filter(|parameter| !kind.takes.contains(parameter)) {
        wrong.push(format!("{} takes no {parameter}", kind.name));
    }
    if order.parameters.percent.is_some_and(|percent| !(percent > 0.0 && percent <= 100.0)) {
        wrong.push("--percent must be above 0 and at most 100".into());
    }
    if order.parameters.rate == Some(0) {
        wrong.push("--rate must be above 0".into());
    }
    let role = host.as_deref().and_then(|name| topology.host(name)).map(|host| host.role);
    if order.parameters.link == Some(Link::Internet) && role.is_some_and(|role| role != Role::Exit) {
        wrong.push(format!("only an exit has a link {}", Link::Internet));
    }
    if wrong.is_empty() {
        Ok(Checked { kind, host, parameters: order.parameters.clone() })
    } else {
        Err(OrderError(wrong))
    }
}

fn host(kind: &Kind, named: Option<&str>, topology: &Topology) -> Result<Option<String>, String> {
    let fits = |role: Role| match kind.target {
        Target::Peer => matches!(role, Role::Exit | Role::App),
        Target::Exit => role == Role::Exit,
        Target::Worker => role == Role::Worker,
        Target::Host => true,
        Target::Node => role.is_node(),
        Target::Lab => false,
    };
    let fitting: Vec<&str> =
        topology.hosts.iter().filter(|host| fits(host.role)).map(|host| host.name.as_str()).collect();
    match (named, kind.target) {
        (None, Target::Lab) => Ok(None),
        (Some(name), Target::Lab) => Err(format!("{} is done to the whole lab, not to {name}", kind.name)),
        (None, Target::Worker) => Ok(fitting.first().map(ToString::to_string)),
        (None, _) => Err(format!("{} needs a target: {}", kind.name, fitting.join(", "))),
        (Some(name), _) if fitting.contains(&name) => Ok(Some(name.to_string())),
        (Some(name), _) => {
            Err(format!("{} cannot be done to {name}, but to {}", kind.name, fitting.join(", ")))
        }
    }
}

/// A hint for a mistyped name: the names that share most of its words.
fn nearest(name: &str) -> String {
    let words: Vec<&str> = name.split('-').collect();
    let mut by_score: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for kind in TABLE {
        let score = kind.name.split('-').filter(|word| words.contains(word)).count();
        by_score.entry(score).or_default().push(kind.name);
    }
    match by_score.pop_last() {
        Some((score, names)) if score > 0 => format!("; did you mean {}?", names.join(", ")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
