//! The lines of the specification as a table, the laws of rules, the bounds.

mod laws;
mod table;

use std::fmt::Write as _;

use super::*;

/// A policy of these rules, in a tailnet that defines everything that the tests name.
fn policy(rules: &str) -> Policy {
    let text = format!(
        r#"{{
        "tagOwners": {{ "tag:a": [], "tag:b": [], "tag:c": [], "tag:exit": [], "tag:router": [] }},
        "groups": {{ "group:eng": ["alice@x.com", "bob@x.com"], "group:odd": ["tag:b"], "group:none": [] }},
        "hosts": {{ "db": "100.64.0.5", "db6": "fd7a:115c:a1e0::5", "lan": "10.1.0.0/16", "printer": "10.1.2.3" }},
        {rules}
    }}"#
    );
    Policy::parse(&text).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes}"))
}

fn acls(rules: &[&str]) -> Policy {
    policy(&format!("\"acls\": [{}]", rules.join(",")))
}

fn grants(rules: &[&str]) -> Policy {
    policy(&format!("\"grants\": [{}]", rules.join(",")))
}

/// `[src] -> [dst]`, by `acls`.
fn acl(src: &str, dst: &str) -> String {
    format!(r#"{{"action": "accept", "src": ["{src}"], "dst": ["{dst}"]}}"#)
}

fn grant(src: &str, dst: &str, ip: &str) -> String {
    format!(r#"{{"src": ["{src}"], "dst": ["{dst}"], "ip": ["{ip}"]}}"#)
}

fn tag(name: &str) -> Tag {
    name.parse().expect("a tag")
}

fn device(name: &str, tags: &[&str], last: u8, routes: &[&str]) -> Device {
    Device {
        name: format!("{name}.tail1234.ts.net"),
        identity: Identity::Tags(tags.iter().map(|name| tag(name)).collect()),
        addresses: vec![
            [100, 64, 0, last].into(),
            format!("fd7a:115c:a1e0::{last}").parse().expect("an address"),
        ],
        routes: Routes::Exactly(routes.iter().map(|route| route.parse().expect("a prefix")).collect()),
    }
}

/// Every device of a small tailnet.
fn whole() -> World {
    World::of(
        vec![
            device("worker", &["tag:a"], 1, &[]),
            device("app", &["tag:b"], 2, &[]),
            device("both", &["tag:b", "tag:c"], 3, &[]),
            device("database", &["tag:c"], 5, &[]),
            device("exit-east", &["tag:exit"], 6, &["0.0.0.0/0", "::/0"]),
            device("exit-new", &["tag:exit"], 7, &[]),
            device("exit-v4", &["tag:c"], 8, &["0.0.0.0/0"]),
            device("router", &["tag:router"], 9, &["10.1.0.0/16", "198.51.100.0/24"]),
            Device { identity: Identity::User("alice@x.com".into()), ..device("laptop", &[], 10, &[]) },
        ],
        Coverage::All,
    )
}

/// The same devices, and perhaps others.
fn partial() -> World {
    World::of(whole().devices().to_vec(), Coverage::Some)
}

fn reach(policy: &Policy, world: &World, source: &str, destination: &str) -> Answer {
    may_reach(policy, world, &Source::tagged(tag(source)), &destination.parse().expect("a destination"))
}

/// The answer as `v4/v6`, a letter each: allowed, refused, indeterminate, or `-` for none.
fn letters(answer: &Answer) -> String {
    let mut out = String::new();
    for verdict in [&answer.v4, &answer.v6] {
        let letter = match verdict.as_ref().map(Verdict::overall) {
            Some(Overall::Allowed) => 'A',
            Some(Overall::Refused) => 'R',
            Some(Overall::Indeterminate) => 'I',
            None => '-',
        };
        out.write_char(letter).expect("a string takes everything");
    }
    out
}

/// Every doubt of an answer, by its word.
fn doubts(answer: &Answer) -> Vec<&'static str> {
    let mut words: Vec<_> = answer
        .families()
        .flat_map(|(_, verdict)| match verdict {
            Verdict::Indeterminate { why, .. } => why.iter().map(Doubt::reason).collect(),
            Verdict::Allowed { .. } | Verdict::Refused { .. } => Vec::new(),
        })
        .collect();
    words.sort_unstable();
    words.dedup();
    words
}
