//! The specification, line by line.

use super::*;

/// Asks each question of one policy of one rule, in an unknown world.
fn check(rule: &str, questions: &[(&str, &str, &str)]) {
    let policy = if rule.contains("\"action\"") { acls(&[rule]) } else { grants(&[rule]) };
    for (source, destination, expected) in questions {
        let answer = reach(&policy, &World::unknown(), source, destination);
        assert_eq!(letters(&answer), *expected, "{rule}\n{source} -> {destination}\n{answer:#?}");
    }
}

#[test]
fn a_tag_reaches_what_its_rule_says_on_both_families_and_nothing_else() {
    check(
        &acl("tag:a", "tag:b:80,443"),
        &[
            ("tag:a", "tag:b:443", "AA"),
            ("tag:a", "tag:b:80/udp", "AA"),
            ("tag:a", "tag:b/icmp", "AA"),
            ("tag:a", "tag:b:443/sctp", "RR"),
            ("tag:a", "tag:b:22", "RR"),
            ("tag:a", "tag:c:443", "RR"),
            ("tag:b", "tag:b:443", "RR"),
        ],
    );
}

#[test]
fn a_protocol_binds_ports_but_not_pings() {
    check(
        r#"{"action": "accept", "src": ["tag:a"], "proto": "tcp", "dst": ["tag:b:443"]}"#,
        &[("tag:a", "tag:b:443", "AA"), ("tag:a", "tag:b:443/udp", "RR"), ("tag:a", "tag:b/icmp", "AA")],
    );
    check(
        r#"{"src": ["tag:a"], "dst": ["tag:b"], "ip": ["udp:53", "tcp:8000-8099", "sctp:*"]}"#,
        &[
            ("tag:a", "tag:b:53/udp", "AA"),
            ("tag:a", "tag:b:53", "RR"),
            ("tag:a", "tag:b:8050", "AA"),
            ("tag:a", "tag:b:8100", "RR"),
            ("tag:a", "tag:b:1/sctp", "AA"),
        ],
    );
}

#[test]
fn a_star_is_every_device_as_source_and_destination_and_not_the_internet() {
    check(
        &acl("*", "*:*"),
        &[
            ("tag:a", "tag:b:22", "AA"),
            ("tag:a", "100.64.0.77:22", "A-"),
            ("tag:a", "[fd7a:115c:a1e0::77]:22", "-A"),
            ("tag:a", "some-device:22", "AA"),
            ("tag:a", "203.0.113.9:443", "R-"),
            ("tag:a", "[2001:db8::9]:443", "-R"),
            // Some router may serve it: the file does not tell.
            ("tag:a", "10.1.2.3:80", "I-"),
        ],
    );
}

#[test]
fn an_identity_covers_both_families_and_an_address_only_itself() {
    check(&acl("tag:a", "db:5432"), &[("tag:a", "db:5432", "A-"), ("tag:a", "100.64.0.5:5432", "A-")]);
    let policy = acls(&[&acl("tag:a", "db:5432")]);
    assert_eq!(letters(&reach(&policy, &whole(), "tag:a", "database:5432")), "AR");
    let policy = acls(&[&acl("tag:a", "db6:5432"), &acl("tag:a", "db:5432")]);
    assert_eq!(letters(&reach(&policy, &whole(), "tag:a", "database:5432")), "AA");
}

#[test]
fn a_source_address_is_a_doubt_unless_it_covers_the_tailnet_or_is_known() {
    check(&acl("100.64.0.1", "tag:b:22"), &[("tag:a", "tag:b:22", "IR")]);
    check(&acl("100.64.0.0/10", "tag:b:22"), &[("tag:a", "tag:b:22", "AR")]);
    check(&acl("fd7a:115c:a1e0::/48", "tag:b:22"), &[("tag:a", "tag:b:22", "RA")]);
    check(&acl("10.0.0.0/8", "tag:b:22"), &[("tag:a", "tag:b:22", "RR")]);
    let policy = acls(&[&acl("100.64.0.1", "tag:b:22")]);
    let world = whole();
    let ask = |name: &str| {
        let source = Source::device(world.device(name).expect("a device"));
        letters(&may_reach(&policy, &world, &source, &"app:22".parse().expect("a destination")))
    };
    assert_eq!(ask("worker"), "AR");
    assert_eq!(ask("database"), "RR");
}

#[test]
fn a_tagged_device_is_nobodys() {
    for word in
        ["alice@x.com", "*@x.com", "group:eng", "autogroup:member", "autogroup:admin", "autogroup:shared"]
    {
        check(&acl(word, "tag:b:22"), &[("tag:a", "tag:b:22", "RR")]);
        check(&acl("tag:a", &format!("{word}:22")), &[("tag:a", "tag:b:22", "RR")]);
    }
    check(&acl("tag:a", "autogroup:self:22"), &[("tag:a", "tag:a:22", "RR")]);
    check(&acl("autogroup:tagged", "autogroup:tagged:22"), &[("tag:a", "tag:b:22", "AA")]);
    check(&acl("autogroup:danger-all", "tag:b:22"), &[("tag:a", "tag:b:22", "AA")]);
}

#[test]
fn users_are_known_by_login_group_and_domain() {
    let ask = |rule: &str, login: &str| {
        let policy = acls(&[rule]);
        letters(&may_reach(
            &policy,
            &whole(),
            &Source::user(login),
            &"laptop:22".parse().expect("a destination"),
        ))
    };
    for word in ["alice@x.com", "Alice@X.com", "*@x.com", "group:eng", "autogroup:member", "*"] {
        assert_eq!(ask(&acl(word, "alice@x.com:22"), "alice@x.com"), "AA", "{word}");
    }
    assert_eq!(ask(&acl("alice@x.com", "*:22"), "carol@y.com"), "RR");
    assert_eq!(ask(&acl("group:eng", "*:22"), "carol@y.com"), "RR");
    assert_eq!(ask(&acl("group:none", "*:22"), "alice@x.com"), "RR");
    assert_eq!(ask(&acl("autogroup:member", "autogroup:self:22"), "alice@x.com"), "AA");
    assert_eq!(ask(&acl("autogroup:member", "autogroup:self:22"), "bob@x.com"), "RR");
    assert_eq!(ask(&acl("autogroup:admin", "*:22"), "alice@x.com"), "II");
    assert_eq!(ask(&acl("user:*@passkey", "*:22"), "alice@x.com"), "II");
}

#[test]
fn what_the_file_does_not_tell_is_never_guessed() {
    for (rule, doubt) in [
        (r#"{"src": ["tag:a"], "dst": ["tag:b"], "ip": ["*"], "srcPosture": ["posture:ok"]}"#, "posture"),
        (r#"{"src": ["tag:a"], "dst": ["tag:b"], "ip": ["*"], "someday": true}"#, "unknown-field"),
        (&grant("ipset:prod", "tag:b", "*"), "not-evaluated"),
        (&grant("tag:a", "ipset:prod", "*"), "not-evaluated"),
        (&grant("tag:a", "svc:web", "*"), "not-evaluated"),
        (&grant("autogroup:someday", "tag:b", "*"), "not-evaluated"),
        (&grant("group:odd", "tag:b", "*"), "group-members"),
        (&grant("100.64.0.7", "tag:b", "*"), "source-unknown"),
    ] {
        let answer = reach(&grants(&[rule]), &World::unknown(), "tag:a", "tag:b:22");
        assert_eq!(answer.overall(), Overall::Indeterminate, "{rule}");
        assert_eq!(doubts(&answer), [doubt], "{rule}");
    }
    for word in ["tag:b", "alice@x.com", "autogroup:member", "autogroup:tagged", "group:eng", "db"] {
        let answer =
            reach(&grants(&[&grant("tag:a", word, "*")]), &World::unknown(), "tag:a", "unheard-of:22");
        assert_eq!(doubts(&answer), ["destination-unknown"], "{word}");
    }
}

#[test]
fn a_doubtful_rule_does_not_matter_where_another_allows() {
    let policy = grants(&[
        r#"{"src": ["tag:a"], "dst": ["tag:b"], "ip": ["*"], "srcPosture": ["posture:ok"]}"#,
        &grant("tag:a", "tag:b", "tcp:22"),
    ]);
    let answer = reach(&policy, &World::unknown(), "tag:a", "tag:b:22");
    let Some(Verdict::Allowed { rule, .. }) = &answer.v4 else { panic!("{answer:?}") };
    assert_eq!(rule.path(), "grants[1]");
    assert_eq!(letters(&reach(&policy, &World::unknown(), "tag:a", "tag:b:23")), "II");
    assert_eq!(letters(&reach(&policy, &World::unknown(), "tag:a", "tag:c:22")), "RR");
}

#[test]
fn a_default_posture_and_an_unknown_section_doubt_every_answer() {
    let rule = acl("tag:a", "tag:b:22");
    let with = |section: &str| policy(&format!("{section}, \"acls\": [{rule}]"));
    let default = with(r#""defaultSrcPosture": ["posture:ok"]"#);
    let answer = reach(&default, &World::unknown(), "tag:a", "tag:b:22");
    assert_eq!(doubts(&answer), ["posture"]);
    assert_eq!(letters(&reach(&default, &World::unknown(), "tag:a", "tag:b:23")), "RR");
    let waived = policy(
        r#""defaultSrcPosture": ["posture:ok"],
           "acls": [{"action": "accept", "src": ["tag:a"], "dst": ["tag:b:22"], "srcPosture": []}]"#,
    );
    assert_eq!(letters(&reach(&waived, &World::unknown(), "tag:a", "tag:b:22")), "AA");
    let unknown = with(r#""denyEverything": true"#);
    assert_eq!(doubts(&reach(&unknown, &World::unknown(), "tag:a", "tag:b:22")), ["unknown-section"]);
    assert_eq!(letters(&reach(&unknown, &World::unknown(), "tag:a", "tag:b:23")), "II");
    for harmless in [
        r#""ssh": [{"x": 1}]"#,
        r#""nodeAttrs": [{"target": ["*"], "attr": ["funnel"]}]"#,
        r#""postures": {"posture:ok": []}"#,
        r#""ipsets": {}"#,
        r#""derpMap": {}"#,
        r#""disableIPv4": false"#,
        r#""randomizeClientPort": true"#,
        r#""sshTests": []"#,
        r#""defaultSrcPosture": []"#,
    ] {
        assert_eq!(
            letters(&reach(&with(harmless), &World::unknown(), "tag:a", "tag:b:22")),
            "AA",
            "{harmless}"
        );
    }
}

#[test]
fn without_ipv4_only_addresses_that_are_known_have_it() {
    let policy = policy(&format!("\"disableIPv4\": true, \"acls\": [{}]", acl("*", "*:*")));
    let answer = reach(&policy, &World::unknown(), "tag:a", "tag:b:22");
    assert_eq!((letters(&answer).as_str(), doubts(&answer)), ("IA", vec!["ipv4-disabled"]));
    let mut world = whole().devices().to_vec();
    for device in &mut world {
        device.addresses.retain(std::net::IpAddr::is_ipv6);
    }
    let world = World::of(world, Coverage::All);
    let source = Source::device(world.device("worker").expect("a device"));
    let answer = may_reach(&policy, &world, &source, &"app:22".parse().expect("a destination"));
    assert_eq!(letters(&answer), "-A");
}

#[test]
fn no_rules_at_all_is_undecided_and_empty_rules_refuse() {
    let answer = reach(&policy("\"ssh\": []"), &World::unknown(), "tag:a", "tag:b:22");
    assert_eq!(doubts(&answer), ["no-rules"]);
    assert_eq!(
        doubts(&reach(&policy("\"acls\": null"), &World::unknown(), "tag:a", "tag:b:22")),
        ["no-rules"]
    );
    for empty in ["\"acls\": []", "\"grants\": []", "\"acls\": [], \"grants\": []"] {
        assert_eq!(letters(&reach(&policy(empty), &World::unknown(), "tag:a", "tag:b:22")), "RR", "{empty}");
    }
}

#[test]
fn capabilities_open_no_ports() {
    check(
        r#"{"src": ["tag:a"], "dst": ["tag:b"], "app": {"x.com/cap": [{}]}}"#,
        &[("tag:a", "tag:b:443", "RR"), ("tag:a", "tag:b/icmp", "RR")],
    );
}

#[test]
fn a_subnet_needs_a_router_and_via_says_which() {
    let star = acls(&[&acl("tag:a", "*:*")]);
    let lan = acls(&[&acl("tag:a", "lan:80")]);
    for (policy, world, destination, expected) in [
        (&star, whole(), "10.1.2.3:80", "A-"),
        (&star, whole(), "10.2.0.1:80", "R-"),
        (&star, partial(), "10.2.0.1:80", "I-"),
        (&lan, whole(), "10.1.2.3:80", "A-"),
        (&lan, whole(), "printer:80", "A-"),
        (&lan, whole(), "10.2.0.1:80", "R-"),
        (&lan, World::unknown(), "10.1.2.3:80", "I-"),
        (&lan, World::unknown(), "10.2.0.1:80", "R-"),
        // A public subnet that somebody serves.
        (&star, whole(), "198.51.100.7:80", "A-"),
        (&star, partial(), "203.0.113.9:80", "R-"),
        (&lan, World::unknown(), "lan:80", "I-"),
    ] {
        let answer = reach(policy, &world, "tag:a", destination);
        assert_eq!(letters(&answer), expected, "{destination} {answer:?}");
    }
    // A tag stands for its devices, not for what is behind them.
    let router = acls(&[&acl("tag:a", "tag:router:*")]);
    assert_eq!(letters(&reach(&router, &whole(), "tag:a", "10.1.2.3:80")), "R-");
    let via = |tag: &str| {
        let rule = format!(r#"{{"src": ["tag:a"], "dst": ["lan"], "ip": ["*"], "via": ["{tag}"]}}"#);
        letters(&reach(&grants(&[&rule]), &whole(), "tag:a", "10.1.2.3:80"))
    };
    assert_eq!((via("tag:router").as_str(), via("tag:exit").as_str()), ("A-", "R-"));
    // It binds no traffic to a device itself.
    let rule = r#"{"src": ["tag:a"], "dst": ["tag:b"], "ip": ["*"], "via": ["tag:router"]}"#;
    assert_eq!(letters(&reach(&grants(&[rule]), &whole(), "tag:a", "app:80")), "AA");
}

#[test]
fn a_public_subnet_that_the_file_mentions_is_not_taken_for_the_internet() {
    let rule = acl("tag:a", "*:*");
    let policy = policy(&format!(
        r#""autoApprovers": {{"routes": {{"203.0.113.0/24": ["tag:router"]}}}}, "acls": [{rule}]"#
    ));
    assert_eq!(letters(&reach(&policy, &World::unknown(), "tag:a", "203.0.113.9:80")), "I-");
    assert_eq!(letters(&reach(&policy, &World::unknown(), "tag:a", "198.51.100.9:80")), "R-");
}

#[test]
fn the_internet_takes_its_own_word_and_keeps_its_ports() {
    check(
        &acl("tag:a", "autogroup:internet:443"),
        &[
            ("tag:a", "203.0.113.9:443", "A-"),
            ("tag:a", "[2001:db8::9]:443", "-A"),
            ("tag:a", "203.0.113.9:80", "R-"),
            ("tag:a", "10.1.2.3:443", "R-"),
            ("tag:a", "169.254.169.254:443", "R-"),
            ("tag:a", "[fe80::1]:443", "-R"),
            ("tag:a", "100.64.0.9:443", "R-"),
            ("tag:a", "tag:b:443", "RR"),
        ],
    );
    check(
        &acl("tag:a", "0.0.0.0/0:*"),
        &[("tag:a", "203.0.113.9:443", "I-"), ("tag:a", "100.64.0.9:443", "A-")],
    );
}

fn exit(policy: &Policy, world: &World, host: &str) -> Answer {
    may_use_exit(policy, world, &Source::tagged(tag("tag:a")), &host.parse().expect("a host"))
}

#[test]
fn an_exit_node_needs_the_rule_the_tag_and_the_approval() {
    let open = acls(&[&acl("tag:a", "autogroup:internet:*")]);
    for (world, host, expected) in [
        (whole(), "exit-east", "AA"),
        (whole(), "EXIT-EAST.tail1234.ts.net.", "AA"),
        (whole(), "100.64.0.6", "A-"),
        (whole(), "exit-v4", "AR"),
        (whole(), "exit-new", "RR"),
        (whole(), "gone", "RR"),
        (whole(), "203.0.113.1", "R-"),
        (whole(), "lan", "RR"),
        (partial(), "gone", "II"),
        (World::unknown(), "exit-east", "II"),
        (World::unknown(), "tag:exit", "II"),
    ] {
        let answer = exit(&open, &world, host);
        assert_eq!(letters(&answer), expected, "{host} {answer:?}");
    }
    assert_eq!(doubts(&exit(&open, &World::unknown(), "exit-east")), ["approval-unknown"]);
    let closed = acls(&[&acl("*", "*:*")]);
    for world in [whole(), partial(), World::unknown()] {
        assert_eq!(letters(&exit(&closed, &world, "exit-east")), "RR");
    }
}

#[test]
fn via_keeps_an_exit_node_to_those_with_its_tag() {
    let rule =
        r#"{"src": ["tag:a"], "dst": ["autogroup:internet"], "ip": ["*"], "via": ["tag:exit", "tag:b"]}"#;
    let policy = grants(&[rule]);
    assert_eq!(letters(&exit(&policy, &whole(), "exit-east")), "AA");
    let refused = exit(&policy, &whole(), "exit-v4");
    let Some(Verdict::Refused { why: Refusal::NoRule { nearest: Some(near), .. } }) = &refused.v4 else {
        panic!("{refused:?}")
    };
    assert_eq!(near.lacks, [Lack::Via]);
    let unknown = exit(&policy, &World::unknown(), "exit-east");
    assert_eq!(doubts(&unknown), ["approval-unknown", "destination-unknown"]);
    let Some(Verdict::Allowed { via, .. }) = reach(&policy, &whole(), "tag:a", "203.0.113.9:80").v4 else {
        panic!()
    };
    assert_eq!(via.into_iter().map(|tag| tag.to_string()).collect::<Vec<_>>(), ["tag:b", "tag:exit"]);
}

#[test]
fn an_unapproved_exit_node_says_how_it_comes_to_be_approved() {
    let rule = acl("tag:a", "autogroup:internet:*");
    let approval = |exit_node: &str| {
        let policy = policy(&format!(r#""autoApprovers": {{"exitNode": [{exit_node}]}}, "acls": [{rule}]"#));
        match exit(&policy, &whole(), "exit-new").v4 {
            Some(Verdict::Refused { why: Refusal::NotApproved { approval, .. } }) => approval,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(approval("\"tag:exit\""), Approval::Automatic);
    assert_eq!(approval("\"tag:b\", \"group:eng\""), Approval::ByHand);
    // A /0 among the routes approves no exit node.
    let policy =
        policy(&format!(r#""autoApprovers": {{"routes": {{"0.0.0.0/0": ["tag:exit"]}}}}, "acls": [{rule}]"#));
    let Some(Verdict::Refused { why: Refusal::NotApproved { approval, .. } }) =
        exit(&policy, &whole(), "exit-new").v4
    else {
        panic!()
    };
    assert_eq!(approval, Approval::ByHand);
}

#[test]
fn a_wide_rule_is_named_before_a_narrow_one_for_an_exit_node() {
    let policy = acls(&[&acl("tag:a", "autogroup:internet:443"), &acl("tag:a", "autogroup:internet:*")]);
    let Some(Verdict::Allowed { rule, opens, .. }) = exit(&policy, &whole(), "exit-east").v4 else {
        panic!()
    };
    assert_eq!((rule.path().as_str(), opens[0].is_everything()), ("acls[1]", true));
    let narrow = acls(&[&acl("tag:a", "autogroup:internet:443")]);
    let Some(Verdict::Allowed { opens, .. }) = exit(&narrow, &whole(), "exit-east").v4 else { panic!() };
    assert_eq!(opens.iter().map(ToString::to_string).collect::<Vec<_>>(), ["443"]);
}

#[test]
fn a_refusal_names_the_nearest_rule_and_the_one_that_is_missing() {
    let policy = acls(&[&acl("tag:c", "tag:b:5432"), &acl("tag:a", "tag:b:443")]);
    let answer = reach(&policy, &World::unknown(), "tag:a", "tag:b:5432");
    let Some(Verdict::Refused { why }) = &answer.v4 else { panic!("{answer:?}") };
    assert_eq!(
        why.to_string(),
        "no rule allows it; nearest is acls[1] (line 5), but for its port; one that would: \
         {\"action\":\"accept\",\"dst\":[\"tag:b:5432\"],\"proto\":\"tcp\",\"src\":[\"tag:a\"]}"
    );
    for (policy, host) in [
        (acls(&[&acl("tag:c", "tag:b:1")]), "tag:b:5432"),
        (acls(&[&acl("tag:c", "tag:b:1")]), "db:5432"),
        (acls(&[&acl("tag:c", "tag:b:1")]), "[fd7a:115c:a1e0::5]:5432"),
        (acls(&[&acl("tag:c", "tag:b:1")]), "203.0.113.9:5432/udp"),
        (grants(&[&grant("tag:c", "tag:b", "1")]), "tag:b:5432"),
        (grants(&[&grant("tag:c", "tag:b", "1")]), "database:5432"),
        (acls(&[]), "app:5432"),
    ] {
        let answer = reach(&policy, &whole(), "tag:a", host);
        let (_, verdict) = answer.families().next().expect("a family");
        let Verdict::Refused { why: Refusal::NoRule { missing, .. } } = verdict else { panic!("{answer:?}") };
        let mended = if missing.contains("action") { acls(&[missing]) } else { grants(&[missing]) };
        let answer = reach(&mended, &whole(), "tag:a", host);
        assert_eq!(answer.overall(), Overall::Allowed, "{missing} does not allow {host}");
    }
}

#[test]
fn a_tag_that_is_not_defined_is_said_so() {
    let policy = acls(&[&acl("tag:a", "tag:b:22"), &acl("*", "tag:c:22")]);
    let answer = reach(&policy, &World::unknown(), "tag:typo", "tag:b:22");
    assert!(
        matches!(&answer.v4, Some(Verdict::Refused { why: Refusal::UndefinedTag(tag) }) if tag.as_str() == "tag:typo")
    );
    assert_eq!(doubts(&reach(&policy, &World::unknown(), "tag:typo", "tag:c:22")), ["undefined-tag"]);
    assert_eq!(
        doubts(&reach(&acls(&[&acl("*", "*:*")]), &World::unknown(), "tag:a", "tag:typo:22")),
        ["undefined-tag"]
    );
}

#[test]
fn a_device_that_is_known_is_judged_by_all_its_tags() {
    let policy = acls(&[&acl("tag:a", "tag:c:22")]);
    assert_eq!(letters(&reach(&policy, &whole(), "tag:a", "both:22")), "AA");
    assert_eq!(letters(&reach(&policy, &whole(), "tag:a", "app:22")), "RR");
    assert_eq!(letters(&reach(&policy, &whole(), "tag:a", "100.64.0.3:22")), "A-");
    assert_eq!(letters(&reach(&policy, &whole(), "tag:a", "nowhere:22")), "RR");
    assert_eq!(letters(&reach(&policy, &whole(), "tag:a", "100.64.0.77:22")), "R-");
    assert_eq!(letters(&reach(&policy, &partial(), "tag:a", "100.64.0.77:22")), "I-");
}

#[test]
fn a_status_is_a_world_that_may_lack_something() {
    let status: crate::Status = serde_json::from_str(
        r#"{"BackendState": "Running",
            "Self": {"ID": "n1", "DNSName": "worker.tail1234.ts.net.", "TailscaleIPs": ["100.64.0.1"], "Tags": ["tag:a"]},
            "Peer": {
              "nodekey:1": {"ID": "n2", "DNSName": "exit-east.tail1234.ts.net.", "TailscaleIPs": ["100.64.0.6"],
                "Tags": ["tag:exit"], "AllowedIPs": ["100.64.0.6/32", "0.0.0.0/0", "::/0"]},
              "nodekey:2": {"ID": "n3", "DNSName": "router.tail1234.ts.net.", "TailscaleIPs": ["100.64.0.9"],
                "Tags": ["tag:router"], "AllowedIPs": ["100.64.0.9/32", "10.1.0.0/16"], "PrimaryRoutes": ["10.1.0.0/16"]},
              "nodekey:3": {"ID": "n4", "DNSName": "laptop.tail1234.ts.net.", "TailscaleIPs": ["100.64.0.10"]}}}"#,
    )
    .expect("a status");
    let world = World::from_status(&status);
    let policy = acls(&[
        &acl("tag:a", "autogroup:internet:*"),
        &acl("tag:a", "lan:80"),
        &acl("tag:a", "group:eng:22"),
    ]);
    assert_eq!(letters(&exit(&policy, &world, "exit-east")), "A-");
    assert_eq!(letters(&exit(&policy, &world, "router")), "I-");
    assert_eq!(letters(&exit(&policy, &world, "unseen")), "II");
    assert_eq!(letters(&reach(&policy, &world, "tag:a", "10.1.2.3:80")), "A-");
    // Whose a laptop is a status does not tell here.
    assert_eq!(doubts(&reach(&policy, &world, "tag:a", "laptop:22")), ["destination-unknown"]);
    assert_eq!(world.devices().len(), 4);
}

#[test]
fn the_files_own_tests_are_run() {
    let rules =
        [acl("tag:a", "tag:b:443"), acl("group:eng", "tag:b:22"), acl("ipset:x", "tag:c:22")].join(",");
    let policy = policy(&format!(
        r#""acls": [{rules}],
        "tests": [
            {{"src": "tag:a", "accept": ["tag:b:443"], "deny": ["tag:b:22", "tag:c:443", "db:443"]}},
            {{"src": "tag:a", "proto": "sctp", "accept": ["tag:b:443"]}},
            {{"src": "alice@x.com", "accept": ["tag:b:22"], "deny": ["tag:b:443"]}},
            {{"src": "tag:b", "deny": ["tag:c:22"]}},
            {{"src": "tag:a", "deny": ["tag:b:443"]}},
        ]"#
    ));
    let outcomes = |world: &World| -> Vec<(usize, String, Outcome)> {
        let results = run_tests(&policy, world).into_iter();
        results.map(|result| (result.test, result.destination, result.outcome)).collect()
    };
    let expected = [
        (0, "tag:b:443".to_owned(), Outcome::Passed),
        (0, "tag:b:22".to_owned(), Outcome::Passed),
        (0, "tag:c:443".to_owned(), Outcome::Passed),
        (0, "db:443".to_owned(), Outcome::Indeterminate),
        (1, "tag:b:443".to_owned(), Outcome::Failed),
        (2, "tag:b:22".to_owned(), Outcome::Passed),
        (2, "tag:b:443".to_owned(), Outcome::Passed),
        (3, "tag:c:22".to_owned(), Outcome::Indeterminate),
        (4, "tag:b:443".to_owned(), Outcome::Failed),
    ];
    assert_eq!(outcomes(&World::unknown()), expected);
    // With the devices known, db is a device of tag:c.
    assert_eq!(outcomes(&whole())[3].2, Outcome::Passed);
    // In a tailnet that is known to have nobody with the tag, every test of it fails.
    let empty = World::of(Vec::new(), Coverage::All);
    assert!(
        outcomes(&empty)
            .iter()
            .filter(|(test, ..)| *test != 2)
            .all(|(_, _, outcome)| *outcome == Outcome::Failed)
    );
}

#[test]
fn destinations_are_read_strictly() {
    for (text, shown) in [
        ("tag:b:443", "tag:b:443/tcp"),
        ("db:443/udp", "db:443/udp"),
        ("DB.tail1234.ts.net.:443", "DB.tail1234.ts.net:443/tcp"),
        ("100.64.0.1:22", "100.64.0.1:22/tcp"),
        ("[fd7a:115c:a1e0::1]:22", "[fd7a:115c:a1e0::1]:22/tcp"),
        ("tag:b/icmp", "tag:b/icmp"),
        ("100.64.0.1/icmp", "100.64.0.1/icmp"),
        ("fd7a:115c:a1e0::1/ipv6-icmp", "fd7a:115c:a1e0::1/ipv6-icmp"),
        ("[::ffff:100.64.0.1]:22", "100.64.0.1:22/tcp"),
    ] {
        let read: Destination = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(read.to_string(), shown);
        assert_eq!(shown.parse(), Ok(read));
    }
    for text in [
        "",
        ":22",
        "db",
        "db:",
        "db:0",
        "db:x",
        "db:22/",
        "db:22/nope",
        "db:22/icmp",
        "tag:b:22/icmp",
        "tag:1:22",
        "fd7a::1:22",
        "a b:22",
        "*:22",
        "10.0.0.0/8:22",
    ] {
        assert!(text.parse::<Destination>().is_err(), "{text:?} was read");
    }
}

#[test]
fn answers_are_the_same_for_programs() {
    let policy = acls(&[&acl("tag:a", "tag:b:443")]);
    let json = |destination: &str| {
        serde_json::to_value(reach(&policy, &World::unknown(), "tag:a", destination)).expect("json")
    };
    assert_eq!(
        json("tag:b:443")["v4"],
        serde_json::json!({ "verdict": "allowed", "rule": "acls[0]", "line": 5, "column": 18, "opens": ["443"] })
    );
    let refused = json("tag:b:22");
    assert_eq!(refused["v6"]["verdict"], "refused");
    assert_eq!(refused["v6"]["why"]["reason"], "no-rule");
    assert_eq!(refused["v6"]["why"]["nearest"]["rule"], "acls[0]");
    let doubtful = json("unheard-of:443");
    assert_eq!(doubtful["v4"]["verdict"], "indeterminate");
    assert_eq!(doubtful["v4"]["why"][0]["reason"], "destination-unknown");
    assert_eq!(json("100.64.0.9:443")["v6"], serde_json::Value::Null);
}
