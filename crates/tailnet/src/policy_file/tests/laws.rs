//! Laws that hold of every policy, the obvious twin, and what garbage and size may do.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const SOURCES: [&str; 12] = [
    "*",
    "tag:a",
    "tag:b",
    "group:eng",
    "group:odd",
    "autogroup:tagged",
    "autogroup:member",
    "100.64.0.1",
    "100.64.0.0/10",
    "fd7a:115c:a1e0::/48",
    "ipset:x",
    "alice@x.com",
];
const TARGETS: [&str; 14] = [
    "*",
    "tag:a",
    "tag:b",
    "tag:c",
    "db",
    "db6",
    "lan",
    "autogroup:internet",
    "autogroup:tagged",
    "autogroup:self",
    "group:eng",
    "svc:web",
    "100.64.0.0/24",
    "fd7a:115c:a1e0::/64",
];
const SERVICES: [&str; 6] = ["*", "443", "80-90", "tcp:22", "udp:*", "icmp:*"];
const DESTINATIONS: [&str; 14] = [
    "tag:b:443",
    "tag:c:22",
    "db:443",
    "db6:22",
    "app:85",
    "both:443",
    "laptop:22",
    "unheard-of:443",
    "10.1.2.3:80",
    "203.0.113.9:443",
    "[2001:db8::9]:22/udp",
    "tag:b/icmp",
    "100.64.0.77:22",
    "lan:80",
];
const EXITS: [&str; 5] = ["exit-east", "exit-new", "exit-v4", "tag:exit", "unheard-of"];

fn any_rule() -> impl Strategy<Value = String> {
    let words = |words: &'static [&'static str]| prop::collection::vec(prop::sample::select(words), 1..3);
    let via = prop::option::of(prop::sample::select(&["tag:exit", "tag:router"][..]));
    let posture = prop::bool::weighted(0.1);
    (words(&SOURCES), words(&TARGETS), words(&SERVICES), via, posture).prop_map(
        |(src, dst, ip, via, posture)| {
            let mut rule = serde_json::json!({ "src": src, "dst": dst, "ip": ip });
            if let Some(via) = via {
                rule["via"] = serde_json::json!([via]);
            }
            if posture {
                rule["srcPosture"] = serde_json::json!(["posture:ok"]);
            }
            rule.to_string()
        },
    )
}

fn any_rules() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(any_rule(), 0..6)
}

fn read(rules: &[String]) -> Policy {
    grants(&rules.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Every answer to every question, in every world.
fn answers(policy: &Policy) -> Vec<(String, Answer)> {
    let mut all = Vec::new();
    for (name, world) in [("unknown", World::unknown()), ("partial", partial()), ("whole", whole())] {
        let known = world.device("worker").map(Source::device);
        for source in [Some(Source::tagged(tag("tag:a"))), known, Some(Source::user("alice@x.com"))] {
            let Some(source) = source else { continue };
            for text in DESTINATIONS {
                let destination = text.parse().expect("a destination");
                all.push((format!("{name} {text}"), may_reach(policy, &world, &source, &destination)));
            }
            for text in EXITS {
                let host = text.parse().expect("a host");
                all.push((format!("{name} exit {text}"), may_use_exit(policy, &world, &source, &host)));
            }
        }
    }
    all
}

fn families(answer: &Answer) -> [Option<Overall>; 2] {
    [answer.v4.as_ref().map(Verdict::overall), answer.v6.as_ref().map(Verdict::overall)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn adding_a_rule_never_closes_a_flow(rules in any_rules(), more in any_rule()) {
        let mut longer = rules.clone();
        longer.push(more);
        for ((question, before), (_, after)) in answers(&read(&rules)).into_iter().zip(answers(&read(&longer))) {
            for (before, after) in families(&before).into_iter().zip(families(&after)) {
                prop_assert!(after >= before, "{}: {:?} became {:?}", question, before, after);
            }
        }
    }

    #[test]
    fn the_order_of_rules_and_of_words_decides_nothing(rules in any_rules()) {
        let mut turned: Vec<String> = rules.iter().rev().cloned().collect();
        for rule in &mut turned {
            let mut value: serde_json::Value = serde_json::from_str(rule).expect("json");
            for field in ["src", "dst", "ip"] {
                value[field].as_array_mut().expect("a list").reverse();
            }
            *rule = value.to_string();
        }
        for ((question, one), (_, other)) in answers(&read(&rules)).into_iter().zip(answers(&read(&turned))) {
            prop_assert_eq!(families(&one), families(&other), "{}", question);
        }
    }

    #[test]
    fn knowing_more_only_settles_doubts(rules in any_rules()) {
        // What is allowed or refused of a known source in a partial world is the same in the whole one, if the
        // destination is known; a doubt may go either way.
        let policy = read(&rules);
        let source = Source::device(whole().device("worker").expect("a device"));
        for text in ["app:85", "both:443", "laptop:22", "database:443", "10.1.2.3:80", "203.0.113.9:443"] {
            let destination = text.parse().expect("a destination");
            let less = families(&may_reach(&policy, &partial(), &source, &destination));
            let more = families(&may_reach(&policy, &whole(), &source, &destination));
            for (less, more) in less.into_iter().zip(more) {
                prop_assert!(less == more || less == Some(Overall::Indeterminate), "{}: {:?} {:?}", text, less, more);
            }
        }
    }

    #[test]
    fn an_allowed_flow_names_a_rule_that_allows_it_alone(rules in any_rules()) {
        let policy = read(&rules);
        for (text, answer) in DESTINATIONS.iter().map(|text| (text, reach(&policy, &whole(), "tag:a", text))) {
            for (family, verdict) in answer.families() {
                let Verdict::Allowed { rule, .. } = verdict else { continue };
                let alone = reach(&read(&rules[rule.index..=rule.index]), &whole(), "tag:a", text);
                let same = alone.families().find(|(name, _)| *name == family).map(|(_, verdict)| verdict.overall());
                prop_assert_eq!(same, Some(Overall::Allowed), "{} by {}", text, rule);
            }
        }
    }

    #[test]
    fn a_doubt_is_never_empty(rules in any_rules()) {
        for (question, answer) in answers(&read(&rules)) {
            for (_, verdict) in answer.families() {
                if let Verdict::Indeterminate { why, .. } = verdict {
                    prop_assert!(!why.is_empty(), "{}", question);
                }
            }
        }
    }

    #[test]
    fn known_devices_are_judged_as_the_obvious_twin_judges_them(rules in prop::collection::vec(plain_rule(), 0..5)) {
        let policy = grants(&rules.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>());
        let world = whole();
        let (from, to) = (world.device("worker").expect("a device"), ["app", "both", "database", "laptop"]);
        for (to, port) in to.into_iter().flat_map(|to| [22u16, 85, 443].map(|port| (to, port))) {
            let to = world.device(to).expect("a device");
            let destination = format!("{}:{port}", to.name).parse().expect("a destination");
            let answer = families(&may_reach(&policy, &world, &Source::device(from), &destination));
            for (index, answer) in answer.into_iter().enumerate() {
                let allowed = rules.iter().any(|(_, [src, dst, ip])| {
                    twin_stands(src, from, index) && twin_stands(dst, to, index) && twin_opens(ip, port)
                });
                let expected = if allowed { Overall::Allowed } else { Overall::Refused };
                prop_assert_eq!(answer, Some(expected), "{} {} {:?}", to.name, port, rules);
            }
        }
    }

    #[test]
    fn garbage_never_panics(text in "\\PC{0,200}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Policy::parse(&text);
        let _ = Policy::parse_bytes(&bytes);
        let _ = text.parse::<Destination>();
        let _ = text.parse::<Host>();
        let _ = text.parse::<Tag>();
    }

    #[test]
    fn a_policy_with_a_piece_changed_never_panics(
        rules in any_rules(), at in 0..2000usize, piece in "[\\[\\]{}:,\"*a0/@-]{0,3}",
    ) {
        let mut text = format!("{{\"tagOwners\": {{\"tag:a\": []}}, \"grants\": [{}]}}", rules.join(","));
        let at = at % text.len();
        text.replace_range(at..(at + 2).min(text.len()), &piece);
        if let Ok(policy) = Policy::parse(&text) {
            let _ = answers(&policy);
            let _ = run_tests(&policy, &whole());
        }
    }
}

/// A rule of words that leave no doubt, with what the twin needs of it.
fn plain_rule() -> impl Strategy<Value = (String, [&'static str; 3])> {
    let words =
        ["*", "tag:a", "tag:b", "tag:c", "autogroup:tagged", "db", "db6", "100.64.0.0/30", "alice@x.com"];
    let ports = ["*", "443", "80-90", "tcp:22", "udp:22"];
    let pick = |words: &'static [&'static str]| prop::sample::select(words);
    let words: &'static [&'static str] = Box::leak(Box::new(words));
    let ports: &'static [&'static str] = Box::leak(Box::new(ports));
    (pick(words), pick(words), pick(ports)).prop_map(|(src, dst, ip)| (grant(src, dst, ip), [src, dst, ip]))
}

/// Enumerates: is this word this device's, in this family?
fn twin_stands(word: &str, device: &Device, family: usize) -> bool {
    let tags: Vec<&str> = match &device.identity {
        Identity::Tags(tags) => tags.iter().map(Tag::as_str).collect(),
        _ => Vec::new(),
    };
    let address = device.addresses[family].to_string();
    match word {
        "*" => true,
        "autogroup:tagged" => !tags.is_empty(),
        "alice@x.com" => device.name.starts_with("laptop"),
        "db" => address == "100.64.0.5",
        "db6" => address == "fd7a:115c:a1e0::5",
        "100.64.0.0/30" => {
            ["100.64.0.0", "100.64.0.1", "100.64.0.2", "100.64.0.3"].contains(&address.as_str())
        }
        tag => tags.contains(&tag),
    }
}

fn twin_opens(ip: &str, port: u16) -> bool {
    match ip {
        "*" => true,
        "443" => port == 443,
        "80-90" => port == 85,
        "tcp:22" => port == 22,
        _ => false,
    }
}

#[test]
fn a_file_of_a_megabyte_is_read_and_answered_in_bounded_time() {
    let rule = grant("tag:a", "tag:b", "tcp:8080") + ",\n";
    let rules = rule.repeat((MAX_BYTES - 1000) / rule.len());
    let start = Instant::now();
    let policy = policy(&format!("\"grants\": [{rules}]"));
    assert!(policy.rule_count() > 10_000, "{}", policy.rule_count());
    assert_eq!(letters(&reach(&policy, &whole(), "tag:a", "app:8080")), "AA");
    assert_eq!(letters(&reach(&policy, &whole(), "tag:a", "app:22")), "RR");
    let tests = r#"{"src": "tag:a", "deny": ["tag:c:22"]},"#.repeat(MAX_BYTES / 50);
    assert!(
        Policy::parse(&format!("{{\"tagOwners\": {{\"tag:a\": [], \"tag:c\": []}}, \"tests\": [{tests}]}}"))
            .is_ok()
    );
    // Generous for a busy machine and a build without optimisation; nothing here is more than linear.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_label_of_a_megabyte_is_a_mistake_or_a_name() {
    let long = "x".repeat(MAX_BYTES - 100);
    assert!(Policy::parse(&format!("{{\"tagOwners\": {{\"tag:{long}\": []}}}}")).is_ok());
    assert!(Policy::parse(&format!("{{\"acls\": [{{\"src\": [\"{long}\"]}}]}}")).is_err());
    assert!(Policy::parse(&format!("{{\"{long}\": 1}}")).is_ok());
}
