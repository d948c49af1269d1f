//! `sallyport policy` and `sallyport explain` as a person meets them: places of mistakes, witnesses, exit codes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn sallyport(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sallyport")).args(words).output().expect("it starts")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policy").join(name);
    path.to_str().expect("a path").to_owned()
}

/// A file of a test's own.
struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    fn with(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rules.yaml");
        std::fs::write(&path, text).expect("written");
        Self { _folder: folder, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("a path")
    }
}

#[test]
fn the_examples_are_sound_and_their_rules_lie_within_their_ceiling() {
    for name in ["ceiling.yaml", "rules.yaml"] {
        let checked = sallyport(&["policy", "check", &example(name)]);
        assert_eq!(checked.status.code(), Some(0), "{}", said(&checked));
    }
    let explained =
        sallyport(&["explain", "--policy", &example("ceiling.yaml"), "--rules", &example("rules.yaml")]);
    assert_eq!(explained.status.code(), Some(0), "{}", said(&explained));
    assert!(said(&explained).contains("allowed_egress[1] cidr 10.0.0.0/8"), "{}", said(&explained));
}

#[test]
fn a_mistake_is_told_with_its_line_column_and_path() {
    let file = File::with("egress:\n- cidr: 10.0.0.0/8\n  prots: [80]\n");
    let checked = sallyport(&["policy", "check", file.path()]);
    assert_eq!(checked.status.code(), Some(2));
    for part in [":3:3:", "egress[0].prots", "unknown_key"] {
        assert!(said(&checked).contains(part), "{part} is not told: {}", said(&checked));
    }
    let json = sallyport(&["policy", "check", file.path(), "--json"]);
    assert_eq!(json.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["mistakes"][0]["line"], 3);
}

#[test]
fn a_refused_rule_is_told_with_a_packet_that_shows_why() {
    let file = File::with("egress:\n- any: true\n");
    let ceiling = example("ceiling.yaml");
    let words = ["explain", "--policy", &ceiling, "--rules", file.path()];
    let refused = sallyport(&words);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("refused"), "{}", said(&refused));
    let json = sallyport(&[&words[..], &["--json"]].concat());
    assert_eq!(json.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["allowed"], false);
}

#[test]
fn a_flow_is_judged_by_the_rules() {
    let rules = example("rules.yaml");
    for (flow, code) in
        [("tcp:10.2.3.4:8080", 0), ("tcp:10.1.2.3:22", 1), ("udp:10.2.3.4:8080", 1), ("nonsense", 2)]
    {
        let judged = sallyport(&["explain", "--rules", &rules, "--flow", flow]);
        assert_eq!(judged.status.code(), Some(code), "{flow}: {}", said(&judged));
    }
}

#[test]
fn a_difference_is_told_by_what_opens_and_what_closes() {
    let (wide, narrow) =
        (File::with("egress:\n- cidr: 10.2.0.0/16\n"), File::with("egress:\n- cidr: 10.2.0.0/17\n"));
    let same = sallyport(&["policy", "diff", wide.path(), wide.path()]);
    assert_eq!(same.status.code(), Some(0), "{}", said(&same));
    let closes = sallyport(&["policy", "diff", wide.path(), narrow.path()]);
    assert_eq!(closes.status.code(), Some(1), "{}", said(&closes));
    assert!(said(&closes).contains("10.2.128.0"), "{}", said(&closes));
}

#[test]
fn the_tailnets_own_policy_has_a_word_too() {
    let policy = File::with(
        "{ \"tagOwners\": { \"tag:worker\": [], \"tag:db\": [] },\n// workers reach the database\n\
         \"acls\": [{ \"action\": \"accept\", \"src\": [\"tag:worker\"], \"dst\": [\"tag:db:5432\"] }], }",
    );
    let ask = |tag: &str, flow: &str| {
        let asked = sallyport(&["explain", "--tailnet-policy", policy.path(), "--as", tag, "--flow", flow]);
        (asked.status.code(), said(&asked))
    };
    for (tag, flow, code) in [
        ("tag:worker", "tag:db:5432", 0),
        ("tag:worker", "tag:db:22", 1),
        ("tag:db", "tag:db:5432", 1),
        ("tag:worker", "db-host:5432", 10),
        ("worker", "tag:db:5432", 2),
    ] {
        let (got, text) = ask(tag, flow);
        assert_eq!(got, Some(code), "{tag} to {flow}: {text}");
    }
    assert!(ask("tag:worker", "tag:db:5432").1.contains("acls[0]"), "{}", ask("tag:worker", "tag:db:5432").1);
}
