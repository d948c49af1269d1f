//! Policy files: ceilings and rule sets in YAML, TOML or JSON. Unknown keys are refused, every mistake has its line
//! and column, and all mistakes are told together.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::ceiling::Ceiling;
pub use crate::document::Format;
use crate::document::{Node, Value, one, read};
use crate::mistake::{Fault, Mistakes, Path, shortened};
use crate::parse::{Edge, limits};
use crate::raw::{RawAllowance, RawCeiling, RawCidr, RawPort, RawRoute, RawRule, RawRuleSet, RawSelector};
use crate::rule_set::RuleSet;

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// A ceiling: any of its keys is there.
    Ceiling(Box<Ceiling>),
    /// A rule set: any of its keys is there.
    Rules(Box<RuleSet>),
}

const CEILING: &[&str] = &[
    "allowed_egress",
    "default_egress",
    "deny_https_hostname_rules",
    "allowed_ingress",
    "default_ingress",
    "minimum_posture",
];
const RULES: &[&str] = &["egress", "ingress", "deny_egress", "deny_ingress", "dns_egress", "posture"];
const RULE: &[&str] = &["cidr", "dns_name", "dns_name_except", "tenant", "any", "selector", "ports", "route"];

/// The format that a file's name says; YAML when it says none.
#[must_use]
pub fn format_of(name: &str) -> Format {
    let ending = name.rsplit('.').next().unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "toml" => Format::Toml,
        "json" => Format::Json,
        _ => Format::Yaml,
    }
}

/// Reads a ceiling or a rule set, whichever the keys say.
///
/// # Errors
///
/// All mistakes together, with their places.
pub fn parse(bytes: &[u8], format: Format) -> Result<Policy, Mistakes> {
    let root = document(bytes, format)?;
    let has = |keys: &[&str]| matches!(&root.value, Value::Map(entries) if entries.iter().any(|(key, ..)| keys.contains(&canonical(key).as_str())));
    match (has(CEILING), has(RULES)) {
        (true, false) => ceiling(&root).map(|ceiling| Policy::Ceiling(Box::new(ceiling))),
        (false, true) => rules(&root).map(|rules| Policy::Rules(Box::new(rules))),
        (true, true) => Err(one(
            Fault::Contradiction,
            "a file holds a ceiling or a rule set, and this has keys of both; make it two files",
            Some(root.place),
        )),
        (false, false) => {
            let message =
                format!("neither a ceiling ({}) nor a rule set ({})", CEILING.join(", "), RULES.join(", "));
            Err(one(Fault::Missing, message, Some(root.place)))
        }
    }
}

/// Reads a ceiling.
///
/// # Errors
///
/// All mistakes together, with their places.
pub fn parse_ceiling(bytes: &[u8], format: Format) -> Result<Ceiling, Mistakes> {
    ceiling(&document(bytes, format)?)
}

/// Reads a rule set.
///
/// # Errors
///
/// All mistakes together, with their places.
pub fn parse_rules(bytes: &[u8], format: Format) -> Result<RuleSet, Mistakes> {
    rules(&document(bytes, format)?)
}

fn document(bytes: &[u8], format: Format) -> Result<Node, Mistakes> {
    if bytes.len() > limits::FILE_BYTES {
        return Err(one(
            Fault::Limit,
            format!("{} bytes; the limit is {}", bytes.len(), limits::FILE_BYTES),
            None,
        ));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| one(Fault::Syntax, format!("byte {} is not UTF-8", error.valid_up_to()), None))?;
    read(text.strip_prefix('\u{feff}').unwrap_or(text), format)
}

fn ceiling(root: &Node) -> Result<Ceiling, Mistakes> {
    let mut decoder = Decoder::default();
    let mut raw = RawCeiling::default();
    let at = Path::default();
    for (key, value) in decoder.map(root, &at, CEILING) {
        let at = at.key(&key);
        match key.as_str() {
            "allowed_egress" => raw.allowed_egress = decoder.allowance(&value, &at),
            "allowed_ingress" => raw.allowed_ingress = decoder.allowance(&value, &at),
            "default_egress" => raw.default_egress = decoder.rules(&value, &at),
            "default_ingress" => raw.default_ingress = decoder.rules(&value, &at),
            "deny_https_hostname_rules" => raw.deny_https_hostname_rules = decoder.truth(&value, &at),
            _ => raw.minimum_posture = decoder.text(&value, &at),
        }
    }
    finish(decoder.mistakes, Ceiling::from_raw(&raw, Edge::File), root)
}

fn rules(root: &Node) -> Result<RuleSet, Mistakes> {
    let mut decoder = Decoder::default();
    let mut raw = RawRuleSet::default();
    let at = Path::default();
    for (key, value) in decoder.map(root, &at, RULES) {
        let at = at.key(&key);
        match key.as_str() {
            "egress" => raw.egress = decoder.rules(&value, &at),
            "ingress" => raw.ingress = decoder.rules(&value, &at),
            "deny_egress" => raw.deny_egress = decoder.truth(&value, &at),
            "deny_ingress" => raw.deny_ingress = decoder.truth(&value, &at),
            "dns_egress" => raw.dns_egress = decoder.text(&value, &at),
            _ => raw.posture = decoder.text(&value, &at),
        }
    }
    finish(decoder.mistakes, RuleSet::from_raw(&raw, Edge::File), root)
}

/// The value, unless decoding or checking found mistakes; then all of them, each with its place.
fn finish<T>(decoding: Mistakes, checked: Result<T, Mistakes>, root: &Node) -> Result<T, Mistakes> {
    let mut mistakes = decoding;
    let value = match checked {
        Ok(value) => Some(value),
        Err(found) => {
            // A value that decoding refused is missing to the check; that it is missing is no second mistake.
            let told = |path: &Path, mistakes: &Mistakes| {
                mistakes.told().iter().any(|mistake| mistake.path.0.starts_with(&path.0))
            };
            for mistake in found.told() {
                if !(mistake.fault == Fault::Missing && told(&mistake.path, &mistakes)) {
                    mistakes.add(&mistake.path, mistake.fault, mistake.message.clone());
                }
            }
            None
        }
    };
    mistakes.locate(|path| Some(root.place_of(path, canonical)));
    mistakes.or(value)
}

/// A key as this crate spells it: the API's other spellings are read, too.
fn canonical(key: &str) -> String {
    let mut snake = String::with_capacity(key.len() + 4);
    for c in key.chars().take(80) {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    match snake.as_str() {
        "https_hostname" => "dns_name".to_owned(),
        "https_hostname_except" => "dns_name_except".to_owned(),
        "deny_dns" => "deny_https_hostname_rules".to_owned(),
        _ => snake,
    }
}

#[derive(Default)]
struct Decoder {
    mistakes: Mistakes,
}

impl Decoder {
    fn wrong(&mut self, node: &Node, at: &Path, wanted: &str) {
        self.mistakes.add_at(
            at,
            Fault::WrongType,
            format!("{wanted} is expected here, not {}", node.value.kind()),
            Some(node.place),
        );
    }

    /// The entries with known keys; each other one, and each double, is a mistake.
    fn map(&mut self, node: &Node, at: &Path, known: &[&str]) -> BTreeMap<String, Rc<Node>> {
        let mut found = BTreeMap::new();
        let Value::Map(entries) = &node.value else {
            self.wrong(node, at, "a map");
            return found;
        };
        for (key, place, value) in entries {
            let name = canonical(key);
            if !known.contains(&name.as_str()) {
                let message =
                    format!("unknown key {:?}; the keys here are {}", shortened(key), known.join(", "));
                self.mistakes.add_at(&at.key(key), Fault::UnknownKey, message, Some(*place));
            } else if found.insert(name, Rc::clone(value)).is_some() {
                self.mistakes.add_at(
                    &at.key(key),
                    Fault::Duplicate,
                    "this key is there already",
                    Some(*place),
                );
            }
        }
        found
    }

    fn truth(&mut self, node: &Node, at: &Path) -> Option<bool> {
        let Value::Bool(truth) = node.value else {
            self.wrong(node, at, "true or false");
            return None;
        };
        Some(truth)
    }

    fn text(&mut self, node: &Node, at: &Path) -> Option<String> {
        let Value::Text(text) = &node.value else {
            self.wrong(node, at, "text (in quotes if need be)");
            return None;
        };
        Some(text.clone())
    }

    fn texts(&mut self, node: &Node, at: &Path) -> Option<Vec<String>> {
        let Value::List(items) = &node.value else {
            self.wrong(node, at, "a list");
            return None;
        };
        let texts: Vec<Option<String>> =
            items.iter().enumerate().map(|(i, item)| self.text(item, &at.index(i))).collect();
        texts.into_iter().collect()
    }

    fn allowance(&mut self, node: &Node, at: &Path) -> RawAllowance {
        match &node.value {
            Value::Text(word) => RawAllowance::Word(word.clone()),
            Value::List(_) => RawAllowance::List(self.rules(node, at)),
            _ => {
                self.wrong(node, at, "unrestricted, none or a list");
                RawAllowance::Absent
            }
        }
    }

    fn rules(&mut self, node: &Node, at: &Path) -> Vec<RawRule> {
        let Value::List(items) = &node.value else {
            self.wrong(node, at, "a list");
            return Vec::new();
        };
        items.iter().enumerate().map(|(i, item)| self.rule(item, &at.index(i))).collect()
    }

    fn rule(&mut self, node: &Node, at: &Path) -> RawRule {
        let before = self.mistakes.told().len() + self.mistakes.more();
        let mut rule = RawRule::default();
        for (key, value) in self.map(node, at, RULE) {
            let at = at.key(&key);
            match key.as_str() {
                "cidr" => rule.cidr = self.cidr(&value, &at),
                "dns_name" => rule.name = self.text(&value, &at),
                "dns_name_except" => rule.name_except = self.texts(&value, &at),
                "tenant" => rule.tenant = self.text(&value, &at),
                "any" => rule.any = self.truth(&value, &at),
                "selector" => rule.selector = self.selector(&value, &at),
                "ports" => rule.ports = self.ports(&value, &at),
                _ => rule.route = self.route(&value, &at),
            }
        }
        rule.damaged = before != self.mistakes.told().len() + self.mistakes.more();
        rule
    }

    fn cidr(&mut self, node: &Node, at: &Path) -> Option<RawCidr> {
        if let Value::Text(cidr) = &node.value {
            return Some(RawCidr { cidr: cidr.clone(), except: None });
        }
        let mut map = self.map(node, at, &["cidr", "except"]);
        let except = match map.remove("except") {
            Some(except) => Some(self.texts(&except, &at.key("except"))?),
            None => None,
        };
        let Some(cidr) = map.remove("cidr") else {
            self.mistakes.add_at(&at.key("cidr"), Fault::Missing, "the prefix is missing", Some(node.place));
            return None;
        };
        Some(RawCidr { cidr: self.text(&cidr, &at.key("cidr"))?, except })
    }

    fn selector(&mut self, node: &Node, at: &Path) -> Option<RawSelector> {
        let mut map = self.map(node, at, &["pod_labels", "namespace_labels"]);
        let mut labels = |key: &str| map.remove(key).map(|node| self.labels(&node, &at.key(key)));
        let (pod, namespace) = (labels("pod_labels"), labels("namespace_labels"));
        Some(RawSelector {
            pod_labels: pod.unwrap_or_else(|| Some(BTreeMap::new()))?,
            namespace_labels: match namespace {
                None => None,
                Some(labels) => Some(labels?),
            },
        })
    }

    fn labels(&mut self, node: &Node, at: &Path) -> Option<BTreeMap<String, String>> {
        let Value::Map(entries) = &node.value else {
            self.wrong(node, at, "a map of labels");
            return None;
        };
        let mut labels = BTreeMap::new();
        for (key, place, value) in entries {
            let text = self.text(value, &at.key(key))?;
            if labels.insert(key.clone(), text).is_some() {
                self.mistakes.add_at(
                    &at.key(key),
                    Fault::Duplicate,
                    "this label is there already",
                    Some(*place),
                );
            }
        }
        Some(labels)
    }

    fn ports(&mut self, node: &Node, at: &Path) -> Option<Vec<RawPort>> {
        let Value::List(items) = &node.value else {
            self.wrong(node, at, "a list");
            return None;
        };
        let ports: Vec<Option<RawPort>> =
            items.iter().enumerate().map(|(i, item)| self.port(item, &at.index(i))).collect();
        ports.into_iter().collect()
    }

    fn port(&mut self, node: &Node, at: &Path) -> Option<RawPort> {
        match &node.value {
            Value::Int(port) => Some(RawPort { port: *port, ..RawPort::default() }),
            Value::Text(text) => {
                let (protocol, range) = text.split_once('/').unwrap_or(("", text));
                let (first, last) =
                    range.split_once('-').map_or((range, None), |(first, last)| (first, Some(last)));
                let number = |text: &str| {
                    text.parse::<u16>()
                        .ok()
                        .filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
                        .map(i64::from)
                };
                let port = number(first).zip(last.map_or(Some(0), number));
                let Some((port, end_port)) = port.filter(|(_, end)| last.is_none() || *end != 0) else {
                    let message =
                        format!("{:?} is no port; write 443, \"8000-8100\" or \"udp/53\"", shortened(text));
                    self.mistakes.add_at(at, Fault::Port, message, Some(node.place));
                    return None;
                };
                Some(RawPort { protocol: protocol.to_owned(), port, end_port })
            }
            Value::Map(_) => {
                let map = self.map(node, at, &["protocol", "port", "end_port"]);
                let mut port = RawPort::default();
                for (key, value) in map {
                    let at = at.key(&key);
                    match (key.as_str(), &value.value) {
                        ("protocol", _) => port.protocol = self.text(&value, &at)?,
                        ("port", Value::Int(number)) => port.port = *number,
                        ("end_port", Value::Int(number)) => port.end_port = *number,
                        _ => {
                            self.wrong(&value, &at, "a number (without quotes)");
                            return None;
                        }
                    }
                }
                Some(port)
            }
            _ => {
                self.wrong(node, at, "a port: 443, \"8000-8100\", \"udp/53\" or {protocol, port, end_port}");
                None
            }
        }
    }

    fn route(&mut self, node: &Node, at: &Path) -> Option<RawRoute> {
        if let Value::Text(word) = &node.value {
            return Some(RawRoute::Word(word.clone()));
        }
        let map = self.map(node, at, &["exit_nodes", "service"]);
        match (map.get("exit_nodes"), map.get("service")) {
            (Some(nodes), None) => self.texts(nodes, &at.key("exit_nodes")).map(RawRoute::ExitNodes),
            (None, Some(service)) => self.text(service, &at.key("service")).map(RawRoute::Service),
            _ => {
                self.mistakes.add_at(
                    at,
                    Fault::Route,
                    "a route has exactly one of exit_nodes, service",
                    Some(node.place),
                );
                None
            }
        }
    }
}
