//! From a document to a policy: every word is looked up, every mistake is kept with its place.
//!
//! Sections and fields are matched without regard to case, as Go does. A word that a control server would refuse is a
//! mistake; a section or field that is not known is none, and a doubt instead: it may change what rules mean.

use std::collections::BTreeMap;

use super::hujson::{Kind, Member, Position, Value};
use super::mistake::{Found, Mistakes};
use super::model::{AutoApprovers, Group, Ipv4, Policy, Selector};
use super::selector::{self, Names, Use};
use super::service::Protocol;
use super::verdict::Doubt;

/// Sections that never change which flow is allowed.
const WITHOUT_EFFECT: [&str; 9] = [
    "derpmap",
    "ipsets",
    "nodeattrs",
    "onecgnatroute",
    "postures",
    "randomizeclientport",
    "services",
    "ssh",
    "sshtests",
];

/// Reads a whole document.
pub(super) fn read(document: &Value) -> Result<Policy, Mistakes> {
    let mut reader = Reader { policy: Policy::default(), found: Found::default() };
    let Kind::Object(members) = &document.kind else {
        reader.expected(document, "", "an object of sections");
        return reader.found.or(reader.policy);
    };
    let sections: BTreeMap<String, &Member> = members
        .iter()
        .filter(|member| member.value.kind != Kind::Null)
        .map(|member| (member.key.to_ascii_lowercase(), member))
        .collect();
    reader.names(&sections);
    reader.rules(&sections);
    reader.approvers(&sections);
    reader.tests(&sections);
    reader.others(&sections);
    reader.found.or(reader.policy)
}

mod file_tests;
mod rules;

struct Reader {
    policy: Policy,
    found: Found,
}

type Sections<'a> = BTreeMap<String, &'a Member>;

impl Reader {
    fn expected(&mut self, value: &Value, path: &str, what: &str) {
        self.found.add(value.at, path, format!("expected {what}, found {}", value.kind.name()));
    }

    fn members<'a>(&mut self, value: &'a Value, path: &str) -> &'a [Member] {
        match &value.kind {
            Kind::Object(members) => members,
            Kind::Null => &[],
            _ => {
                self.expected(value, path, "an object");
                &[]
            }
        }
    }

    fn items<'a>(&mut self, value: &'a Value, path: &str) -> &'a [Value] {
        match &value.kind {
            Kind::Array(items) => items,
            Kind::Null => &[],
            _ => {
                self.expected(value, path, "a list");
                &[]
            }
        }
    }

    fn text<'a>(&mut self, value: &'a Value, path: &str) -> Option<&'a str> {
        match &value.kind {
            Kind::String(text) => Some(text),
            _ => {
                self.expected(value, path, "a string");
                None
            }
        }
    }

    /// A list of strings, each with its place and path.
    fn words<'a>(&mut self, value: &'a Value, path: &str) -> Vec<(Position, String, &'a str)> {
        let items = self.items(value, path).iter().enumerate();
        let paths = items.map(|(index, item)| (item, format!("{path}[{index}]")));
        let mut words = Vec::new();
        for (item, path) in paths {
            if let Some(text) = self.text(item, &path) {
                words.push((item.at, path, text));
            }
        }
        words
    }

    /// Names first: rules look them up, wherever they stand in the file.
    fn names(&mut self, sections: &Sections<'_>) {
        if let Some(section) = sections.get("tagowners") {
            for member in self.members(&section.value, "tagOwners") {
                match member.key.parse() {
                    Ok(tag) => drop(self.policy.tags.insert(tag)),
                    Err(error) => self.found.add(member.at, "tagOwners", error_text(&error)),
                }
            }
        }
        if let Some(section) = sections.get("hosts") {
            for member in self.members(&section.value, "hosts") {
                let path = format!("hosts.{}", member.key);
                if member.key.is_empty() || member.key.contains(['@', ':', '*']) {
                    self.found.add(member.at, "hosts", format!("{:?} is no host name", member.key));
                }
                let Some(text) = self.text(&member.value, &path) else { continue };
                match selector::prefix(text) {
                    Some(prefix) => drop(self.policy.hosts.insert(member.key.clone(), prefix)),
                    None => {
                        self.found.add(
                            member.value.at,
                            &path,
                            format!("{text:?} is no address and no prefix"),
                        );
                    }
                }
            }
        }
        if let Some(section) = sections.get("groups") {
            for member in self.members(&section.value, "groups") {
                let path = format!("groups.{}", member.key);
                if member.key.strip_prefix("group:").is_none_or(str::is_empty) {
                    self.found.add(
                        member.at,
                        "groups",
                        format!("{:?}: a group is called group:NAME", member.key),
                    );
                }
                let mut group = Group::default();
                for (_, _, word) in self.words(&member.value, &path) {
                    let login = word.contains('@') && !word.contains(':');
                    if login { &mut group.users } else { &mut group.others }.insert(word.to_owned());
                }
                self.policy.groups.insert(member.key.clone(), group);
            }
        }
        // Owners are looked up too, so that a misspelt one is found; who may own a tag decides no flow.
        if let Some(section) = sections.get("tagowners") {
            for member in self.members(&section.value, "tagOwners") {
                self.selectors(&member.value, &format!("tagOwners.{}", member.key), Use::Owner);
            }
        }
    }

    fn selectors(&mut self, value: &Value, path: &str, role: Use) -> Vec<Selector> {
        let mut selectors = Vec::new();
        for (at, path, word) in self.words(value, path) {
            selectors.extend(self.selector(at, &path, word, role));
        }
        selectors
    }

    fn selector(&mut self, at: Position, path: &str, word: &str, role: Use) -> Option<Selector> {
        let names = Names { groups: &self.policy.groups, hosts: &self.policy.hosts, tags: &self.policy.tags };
        match selector::read(word, role, &names) {
            Ok(selector) => Some(selector),
            Err(message) => {
                self.found.add(at, path, message);
                None
            }
        }
    }

    fn protocol(&mut self, value: &Value, path: &str) -> Option<Protocol> {
        let text = self.text(value, path).filter(|text| !text.is_empty())?;
        match text.parse() {
            Ok(protocol) => Some(protocol),
            Err(error) => {
                self.found.add(value.at, path, error_text(&error));
                None
            }
        }
    }

    fn approvers(&mut self, sections: &Sections<'_>) {
        let Some(section) = sections.get("autoapprovers") else { return };
        let mut approvers = AutoApprovers::default();
        for member in self.members(&section.value, "autoApprovers") {
            let path = format!("autoApprovers.{}", member.key);
            match member.key.to_ascii_lowercase().as_str() {
                "exitnode" => approvers.exit_node = self.selectors(&member.value, &path, Use::Owner),
                "routes" => {
                    for route in self.members(&member.value, &path) {
                        let inner = format!("{path}.{}", route.key);
                        let who = self.selectors(&route.value, &inner, Use::Owner);
                        match selector::prefix(&route.key) {
                            Some(prefix) => approvers.routes.entry(prefix).or_default().extend(who),
                            None => self.found.add(route.at, &path, format!("{:?} is no prefix", route.key)),
                        }
                    }
                }
                // `services` and what may come approve no route.
                _ => {}
            }
        }
        self.policy.approvers = approvers;
    }

    /// The sections that are left.
    fn others(&mut self, sections: &Sections<'_>) {
        const READ: [&str; 8] =
            ["acls", "autoapprovers", "defaultsrcposture", "grants", "groups", "hosts", "tagowners", "tests"];
        for (name, member) in sections {
            match name.as_str() {
                "disableipv4" => match member.value.kind {
                    Kind::Bool(true) => self.policy.ipv4 = Ipv4::Off(member.at),
                    Kind::Bool(false) => {}
                    _ => self.expected(&member.value, "disableIPv4", "true or false"),
                },
                name if READ.contains(&name) || WITHOUT_EFFECT.contains(&name) => {}
                _ => self.policy.doubts.push(Doubt::UnknownSection(member.at, member.key.clone())),
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match &value.kind {
        Kind::Null => true,
        Kind::Array(items) => items.is_empty(),
        Kind::Object(members) => members.is_empty(),
        Kind::Bool(_) | Kind::Number(_) | Kind::String(_) => false,
    }
}

fn error_text(error: &dyn std::error::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
