//! The policy's own `tests`, run against its rules.
//!
//! As control servers do: every family that both ends have must pass for `accept`, and none may for `deny`; without a
//! protocol, TCP or UDP counts. What no device is known to be is judged by the rules alone, unless the world is whole.

use serde::Serialize;

use super::evaluate::may_reach;
use super::hujson::Position;
use super::model::{FileTest, Policy, Selector, TestTarget};
use super::place::Place;
use super::service::Protocol;
use super::verdict::{Answer, Overall};
use super::world::{Coverage, Destination, Host, Identity, Source, World};

/// What a test demands of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// It must be reached.
    Accept,
    /// It must not be.
    Deny,
}

/// What came of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As demanded.
    Passed,
    /// Not as demanded.
    Failed,
    /// The file alone does not tell.
    Indeterminate,
}

/// One line of `accept` or `deny`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestResult {
    /// Index of the test within `tests`, from 0.
    pub test: usize,
    /// Where the line stands.
    #[serde(flatten)]
    pub at: Position,
    /// Source, as written.
    pub source: String,
    /// Destination, as written.
    pub destination: String,
    /// What is demanded.
    pub demand: Demand,
    /// What came of it.
    pub outcome: Outcome,
    /// The answer that it rests on.
    pub answer: Answer,
}

/// Runs every test of the file, line by line, in its order.
pub fn run_tests(policy: &Policy, world: &World) -> Vec<TestResult> {
    let mut results = Vec::new();
    for (index, test) in policy.tests.iter().enumerate() {
        let lines = test.accept.iter().map(|line| (Demand::Accept, line));
        for (demand, line) in lines.chain(test.deny.iter().map(|line| (Demand::Deny, line))) {
            let (answer, outcome) = run(policy, world, test, line, demand);
            results.push(TestResult {
                test: index,
                at: line.at,
                source: test.source_word.clone(),
                destination: line.word.clone(),
                demand,
                outcome,
                answer,
            });
        }
    }
    results
}

fn run(
    policy: &Policy,
    world: &World,
    test: &FileTest,
    line: &TestTarget,
    demand: Demand,
) -> (Answer, Outcome) {
    let source = source(policy, world, &test.source);
    let ask = |protocol: Protocol| {
        let destination = Destination { host: host(&line.host), protocol, port: Some(line.port) };
        may_reach(policy, world, &source, &destination)
    };
    let answer = match test.protocol {
        Some(protocol) => ask(protocol),
        None => either(ask(Protocol::TCP), ask(Protocol::UDP)),
    };
    let missing = is_missing(world, &test.source) || names_nobody(world, &line.host);
    let families: Vec<Overall> = answer.families().map(|(_, verdict)| verdict.overall()).collect();
    let outcome = if missing || families.is_empty() {
        // What stands for no device fails a test, whatever it demands.
        Outcome::Failed
    } else {
        match demand {
            Demand::Accept => outcome(&families, Overall::Allowed, Overall::Refused),
            Demand::Deny => outcome(&families, Overall::Refused, Overall::Allowed),
        }
    };
    (answer, outcome)
}

fn outcome(families: &[Overall], wanted: Overall, opposite: Overall) -> Outcome {
    if families.contains(&opposite) {
        Outcome::Failed
    } else if families.iter().all(|family| *family == wanted) {
        Outcome::Passed
    } else {
        Outcome::Indeterminate
    }
}

/// The better of two answers, family by family.
fn either(one: Answer, other: Answer) -> Answer {
    let better = |one: Option<super::Verdict>, other: Option<super::Verdict>| match (&one, &other) {
        (Some(first), Some(second)) if second.overall() > first.overall() => other,
        _ => one,
    };
    Answer { v4: better(one.v4, other.v4), v6: better(one.v6, other.v6) }
}

fn host(word: &str) -> Host {
    word.parse().unwrap_or_else(|_| Host::Name(word.to_owned()))
}

fn source(policy: &Policy, world: &World, selector: &Selector) -> Source {
    match selector {
        Selector::Tag(tag) => Source::tagged(tag.clone()),
        Selector::User(login) => Source::user(login.clone()),
        Selector::Prefix(prefix) => match Place::find(policy, world, &Host::Address(prefix.addr())) {
            Place::Device { device: Some(device), .. } => {
                Source { addresses: Some(vec![prefix.addr()]), ..Source::device(device) }
            }
            Place::Device { .. } | Place::Outside(_) | Place::Many(_) | Place::Nowhere(_) => {
                Source::address(prefix.addr())
            }
        },
        // A group, a role, whatever: somebody of whom the file does not tell who it is.
        _ => Source { identity: Identity::Somebody, addresses: None },
    }
}

/// Whether the world is whole and has no device with the source's tag.
fn is_missing(world: &World, source: &Selector) -> bool {
    match source {
        Selector::Tag(tag) => names_nobody(world, tag.as_str()),
        _ => false,
    }
}

fn names_nobody(world: &World, word: &str) -> bool {
    let has = |identity: &Identity| match identity {
        Identity::Tags(tags) => tags.iter().any(|tag| tag.as_str() == word),
        Identity::User(_) | Identity::Somebody | Identity::Unknown => false,
    };
    world.coverage() == Coverage::All
        && word.starts_with("tag:")
        && !world.devices().iter().any(|device| has(&device.identity))
}
