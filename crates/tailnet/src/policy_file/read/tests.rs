//! What is read, what is a mistake and where, what is only a doubt.

use crate::policy_file::{MAX_BYTES, Policy};

fn mistakes(text: &str) -> Vec<String> {
    match Policy::parse(text) {
        Ok(policy) => panic!("{text} was read as {policy:?}"),
        Err(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
    }
}

fn read(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes}"))
}

/// A file with one rule in `acls`.
fn acl(fields: &str) -> String {
    format!(
        "{{\"tagOwners\": {{\"tag:a\": [], \"tag:b\": []}}, \"hosts\": {{\"db\": \"10.0.0.5\"}}, \
         \"groups\": {{\"group:eng\": [\"a@x.com\"]}},\n\"acls\": [{{{fields}}}]}}"
    )
}

fn grant(fields: &str) -> String {
    acl(fields).replace("\"acls\"", "\"grants\"")
}

#[test]
fn every_mistake_is_told_with_line_column_and_path() {
    let text = r#"{
  "tagOwners": { "tag:a": [], "tag:1b": [] },
  "hosts": { "db": "10.0.0.300" },
  "acls": [
    { "action": "accept", "src": ["tag:a"], "dst": ["tag:a:22"] },
    { "action": "deny", "src": ["tag:nope", "group:nope"],
      "dst": ["tag:a", "web:443", "tag:a:0"] },
  ],
}"#;
    assert_eq!(
        mistakes(text),
        [
            "line 2, column 31: tagOwners: \"tag:1b\" is no tag: want \"tag:\", a letter, then letters, digits and dashes",
            "line 3, column 20: hosts.db: \"10.0.0.300\" is no address and no prefix",
            "line 6, column 17: acls[1]: action \"deny\" is not known: there is only \"accept\"",
            "line 6, column 33: acls[1].src[0]: \"tag:nope\" is not defined in tagOwners",
            "line 6, column 45: acls[1].src[1]: \"group:nope\" is not defined in groups",
            "line 7, column 15: acls[1].dst[0]: \"tag\" is neither an address nor defined in hosts",
            "line 7, column 15: acls[1].dst[0]: \"a\" is no port: want 1 to 65535",
            "line 7, column 24: acls[1].dst[1]: \"web\" is neither an address nor defined in hosts",
            "line 7, column 35: acls[1].dst[2]: \"0\" is no port: want 1 to 65535",
        ]
    );
}

#[test]
fn a_text_that_is_no_hujson_is_one_mistake() {
    assert_eq!(mistakes("{\n  \"acls\": [}"), ["line 2, column 12: expected a value, found '}'"]);
    assert_eq!(mistakes("[]"), ["line 1, column 1: expected an object of sections, found a list"]);
    assert!(mistakes(&" ".repeat(MAX_BYTES + 1))[0].contains("longer than"));
    let bytes = Policy::parse_bytes(b"{\n \"a\xff\": 1}").expect_err("no UTF-8").to_string();
    assert_eq!(bytes, "line 2, column 4: this is no UTF-8");
}

#[test]
fn rules_that_control_servers_refuse_are_mistakes() {
    for (fields, message) in [
        (r#""src": ["*"], "dst": ["*:*"]"#, "it has no action"),
        (r#""action": "accept", "dst": ["*:*"]"#, "it has no src"),
        (r#""action": "accept", "src": [], "dst": ["*:*"]"#, "it is empty"),
        (r#""action": "accept", "src": ["*"]"#, "it has no dst"),
        (r#""action": "accept", "src": ["*"], "dst": []"#, "it is empty"),
        (r#""action": "accept", "src": ["autogroup:internet"], "dst": ["*:*"]"#, "cannot stand here"),
        (r#""action": "accept", "src": ["autogroup:self"], "dst": ["*:*"]"#, "cannot stand here"),
        (r#""action": "accept", "src": ["*"], "dst": ["autogroup:danger-all:*"]"#, "cannot stand here"),
        (r#""action": "accept", "src": ["*"], "proto": "*", "dst": ["*:*"]"#, "is no protocol"),
        (r#""action": "accept", "src": ["*"], "dst": ["tag:b:90-80"]"#, "ends before it begins"),
        (r#""action": "accept", "src": ["autogroup:"], "dst": ["*:*"]"#, "needs a name"),
        (r#""action": "accept", "src": [""], "dst": ["*:*"]"#, "an empty name"),
        (r#""action": "accept", "src": "*", "dst": ["*:*"]"#, "expected a list, found a string"),
        (r#""action": "accept", "src": [7], "dst": ["*:*"]"#, "expected a string, found a number"),
        (r#""action": "accept", "src": ["*"], "users": ["*"], "dst": ["*:*"]"#, "says again"),
    ] {
        let all = mistakes(&acl(fields));
        assert!(all.iter().any(|mistake| mistake.contains(message)), "{fields}: {all:?}");
    }
    for (fields, message) in [
        (r#""src": ["*"], "dst": ["*"]"#, "grants nothing"),
        (r#""src": ["*"], "dst": ["0.0.0.0/0"], "ip": ["*"]"#, "use autogroup:internet"),
        (r#""src": ["*"], "dst": ["::/0"], "ip": ["*"]"#, "use autogroup:internet"),
        (r#""src": ["*"], "dst": ["autogroup:internet"], "app": {"x.com/cap": []}"#, "app cannot be granted"),
        (r#""src": ["*"], "dst": ["*"], "ip": ["nope:1"]"#, "is no protocol"),
        (r#""src": ["*"], "dst": ["*"], "ip": ["*"], "via": ["group:eng"]"#, "want a tag"),
        (r#""src": ["*"], "dst": ["*"], "ip": ["*"], "via": ["tag:c"]"#, "not defined in tagOwners"),
    ] {
        let all = mistakes(&grant(fields));
        assert!(all.iter().any(|mistake| mistake.contains(message)), "{fields}: {all:?}");
    }
}

#[test]
fn selectors_are_read_in_headscales_order_and_split_at_the_last_colon() {
    for dst in [
        "100.64.0.1:22",
        "10.0.0.0/8:*",
        "[fd7a:115c:a1e0::1]:443",
        "fd7a:115c:a1e0::1:443",
        "[fd00::/8]:80-90,443",
        "*:*",
        "a@x.com:22",
        "name@:22",
        "*@x.com:22",
        "group:eng:22",
        "tag:b:22",
        "autogroup:internet:443",
        "autogroup:self:*",
        "autogroup:member:*",
        "db:5432",
        "ipset:prod:443",
        "svc:web:443",
    ] {
        read(&acl(&format!(r#""action": "accept", "src": ["*"], "dst": ["{dst}"]"#)));
    }
}

#[test]
fn sections_and_fields_are_found_whatever_their_case_and_by_their_old_names() {
    let old = read(
        r#"{"TagOwners": {"tag:a": []}, "ACLs": [{"Action": "accept", "Users": ["tag:a"], "Ports": ["tag:a:22"]}]}"#,
    );
    let new = read(
        r#"{"tagOwners": {"tag:a": []}, "acls": [{"action": "accept", "src": ["tag:a"], "dst": ["tag:a:22"]}]}"#,
    );
    assert_eq!(old.rule_count(), 1);
    assert_eq!(old.rules.expect("rules")[0].targets, new.rules.expect("rules")[0].targets);
}

#[test]
fn names_may_be_used_before_they_are_defined() {
    read(
        r#"{"acls": [{"action": "accept", "src": ["group:g", "tag:a"], "dst": ["h:22"]}],
            "hosts": {"h": "10.0.0.0/8"}, "groups": {"group:g": ["a@x"]}, "tagOwners": {"tag:a": ["group:g", "tag:a"]}}"#,
    );
}

#[test]
fn names_that_are_none_are_mistakes() {
    for (text, message) in [
        (r#"{"groups": {"eng": []}}"#, "a group is called group:NAME"),
        (r#"{"groups": {"group:": []}}"#, "a group is called group:NAME"),
        (r#"{"hosts": {"a@b": "10.0.0.1"}}"#, "is no host name"),
        (r#"{"hosts": {"a:b": "10.0.0.1"}}"#, "is no host name"),
        (r#"{"hosts": {"a": 7}}"#, "expected a string"),
        (r#"{"tagOwners": {"tag:a": ["tag:b"]}}"#, "not defined in tagOwners"),
        (r#"{"tagOwners": {"tag:a": ["*"]}}"#, "want a user, a group or a tag"),
        (r#"{"tagOwners": []}"#, "expected an object, found a list"),
        (r#"{"autoApprovers": {"exitNode": ["tag:a"]}}"#, "not defined in tagOwners"),
        (r#"{"autoApprovers": {"routes": {"10.0.0.0/99": []}}}"#, "is no prefix"),
        (r#"{"disableIPv4": 1}"#, "expected true or false"),
    ] {
        let all = mistakes(text);
        assert!(all.iter().any(|mistake| mistake.contains(message)), "{text}: {all:?}");
    }
}

#[test]
fn tests_of_the_file_name_single_hosts_and_ports() {
    let file = |test: &str| {
        format!(
            "{{\"tagOwners\": {{\"tag:a\": []}}, \"hosts\": {{\"net\": \"10.0.0.0/8\"}}, \"tests\": [{{{test}}}]}}"
        )
    };
    read(&file(
        r#""src": "tag:a", "proto": "tcp", "accept": ["tag:a:22", "[fd7a:115c:a1e0::1]:22"], "deny": ["10.0.0.1:80"]"#,
    ));
    for (test, message) in [
        (r#""src": "tag:a""#, "neither accept nor deny"),
        (r#""accept": ["tag:a:22"]"#, "it has no src"),
        (r#""src": "tag:a", "accept": ["tag:a"]"#, "is no single port"),
        (r#""src": "tag:a", "accept": ["a"]"#, "has no port"),
        (r#""src": "tag:a", "accept": ["tag:a:*"]"#, "is no single port"),
        (r#""src": "tag:a", "accept": ["tag:a:22-23"]"#, "is no single port"),
        (r#""src": "tag:a", "accept": ["tag:a:+22"]"#, "is no single port"),
        (r#""src": "tag:a", "accept": ["10.0.0.0/8:22"]"#, "more than one address"),
        (r#""src": "tag:a", "accept": ["net:22"]"#, "more than one address"),
        (r#""src": "tag:a", "accept": ["autogroup:internet:443"]"#, "cannot stand here"),
        (r#""src": "*", "accept": ["tag:a:22"]"#, "cannot stand here"),
        (r#""src": "tag:a", "proto": "icmp", "accept": ["tag:a:22"]"#, "tcp, udp and sctp only"),
    ] {
        let all = mistakes(&file(test));
        assert!(all.iter().any(|mistake| mistake.contains(message)), "{test}: {all:?}");
    }
}

#[test]
fn many_mistakes_are_told_up_to_a_limit() {
    let rules = "{\"action\": \"deny\", \"src\": [\"tag:a\"], \"dst\": [\"x\"]},".repeat(1000);
    assert_eq!(mistakes(&format!("{{\"acls\": [{rules}]}}")).len(), 50);
}
