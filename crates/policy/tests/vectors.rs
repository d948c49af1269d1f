//! The vectors of the sandbox API's reference (§4.4), the field cases of part C that are decided before anything
//! starts, and bad input.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use sallyport_policy::file::{Format, Policy, parse, parse_ceiling, parse_rules};
use sallyport_policy::{
    Ceiling, Fault, Mistakes, Platform, Reason, RuleChange, compile, contains, diff, evaluate, limits,
};

/// A ceiling of these entitlements, in YAML flow style.
fn ceiling(entitlements: &str) -> Ceiling {
    parse_ceiling(format!("allowed_egress: {entitlements}").as_bytes(), Format::Yaml).unwrap()
}

fn allows(ceiling: &Ceiling, rule: &str) -> bool {
    let rules = parse_rules(format!("egress: [{rule}]").as_bytes(), Format::Yaml).unwrap();
    contains(ceiling, &rules).is_allowed()
}

fn mistakes(text: &str) -> Mistakes {
    parse(text.as_bytes(), Format::Yaml).unwrap_err()
}

fn faults(text: &str) -> Vec<(String, Fault)> {
    mistakes(text).told().iter().map(|mistake| (mistake.path.to_string(), mistake.fault)).collect()
}

#[test]
fn the_vectors_of_the_sandbox_api_hold() {
    let vectors: &[(&str, &[(&str, bool)])] = &[
        ("unrestricted", &[("{selector: {pod_labels: {app: db}}}", true)]),
        ("none", &[("{selector: {pod_labels: {app: db}}}", false), ("{any: true}", false)]),
        (
            "[{any: true}]",
            &[
                ("{selector: {pod_labels: {app: db}}}", false),
                ("{dns_name: pkg.example.org}", true),
                ("{cidr: 203.0.113.0/24}", true),
                ("{tenant: same_org}", false),
                ("{cidr: 10.0.0.0/8}", false),
                ("{cidr: 0.0.0.0/0}", false),
                ("{cidr: 100.0.0.0/8}", false),
                ("{cidr: {cidr: 100.0.0.0/8, except: [100.64.0.0/10]}}", true),
            ],
        ),
        (
            "[{any: true, ports: [443]}]",
            &[("{any: true}", false), ("{any: true, ports: [443]}", true), ("{dns_name: a.b}", true)],
        ),
        ("[{any: true, ports: [80]}]", &[("{dns_name: a.b}", false)]),
        ("[{selector: {pod_labels: {a: '1'}}}]", &[("{selector: {pod_labels: {a: '1', b: '2'}}}", true)]),
        ("[{selector: {pod_labels: {a: '1', b: '2'}}}]", &[("{selector: {pod_labels: {a: '1'}}}", false)]),
        (
            "[{selector: {pod_labels: {a: '1'}}}]",
            &[("{selector: {pod_labels: {a: '1'}, namespace_labels: {n: x}}}", false)],
        ),
        (
            "[{selector: {pod_labels: {a: '1'}, namespace_labels: {n: x}}, ports: ['8000-8100']}]",
            &[
                ("{selector: {pod_labels: {a: '1'}}, ports: [8080]}", false),
                (
                    "{selector: {pod_labels: {a: '1', b: '2'}, namespace_labels: {n: x, m: y}}, ports: [8080]}",
                    true,
                ),
                ("{selector: {pod_labels: {a: '1'}, namespace_labels: {n: x}}, ports: [8080, 9000]}", false),
                ("{selector: {pod_labels: {a: '1'}, namespace_labels: {n: x}}}", false),
            ],
        ),
        ("[{cidr: 0.0.0.0/0}]", &[("{dns_name: pkg.example.org}", false), ("{any: true}", false)]),
        (
            "[{cidr: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]",
            &[
                ("{cidr: 10.0.0.0/8}", false),
                ("{cidr: 10.2.0.0/16}", true),
                ("{cidr: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}", true),
                ("{cidr: {cidr: 10.0.0.0/8, except: [10.1.0.0/17, 10.1.128.0/17]}}", true),
            ],
        ),
        (
            "[{dns_name: '*.example.com'}]",
            &[
                ("{dns_name: foo.example.com}", true),
                ("{dns_name: '*.example.com'}", true),
                ("{dns_name: a.b.example.com}", false),
                ("{dns_name: example.com}", false),
                ("{dns_name: FOO.Example.COM}", true),
            ],
        ),
        (
            "[{dns_name: '*', dns_name_except: [evil.com]}]",
            &[
                ("{dns_name: evil.com}", false),
                ("{dns_name: www.evil.com}", true),
                ("{dns_name: '*.com'}", false),
            ],
        ),
        ("[{tenant: same_org}]", &[("{tenant: same_user}", false), ("{tenant: same_org}", true)]),
        ("[{any: true}]", &[("{any: true, route: uplink}", false)]),
        (
            "[{any: true, route: {exit_nodes: [a, b]}}]",
            &[("{any: true, route: {exit_nodes: [b]}}", true), ("{any: true}", false)],
        ),
        ("[{cidr: 192.0.2.0/25}, {cidr: 192.0.2.128/25}]", &[("{cidr: 192.0.2.0/24}", false)]),
        ("[{any: true, ports: ['80-90', '91-99']}]", &[("{any: true, ports: ['85-95']}", true)]),
    ];
    for (entitlements, rules) in vectors {
        let ceiling = ceiling(entitlements);
        for (rule, covered) in *rules {
            assert_eq!(allows(&ceiling, rule), *covered, "{rule} under {entitlements}");
        }
    }
}

#[test]
fn the_seed_rule_is_refused_under_any_and_passes_with_a_selector_of_its_form() {
    let rule = "{selector: {pod_labels: {tailscale.com/parent-resource: internal-api, tailscale.com/parent-resource-ns: default}, \
                namespace_labels: {kubernetes.io/metadata.name: tailscale}}, ports: [8080]}";
    assert!(!allows(&ceiling("[{any: true}]"), rule));
    let form = "[{selector: {pod_labels: {tailscale.com/parent-resource: internal-api}, namespace_labels: {kubernetes.io/metadata.name: tailscale}}, ports: [8080]}]";
    assert!(allows(&ceiling(form), rule));
    assert!(!allows(&ceiling(&form.replace("8080", "443")), rule));
    assert!(!allows(
        &ceiling("[{selector: {pod_labels: {tailscale.com/parent-resource: internal-api}}, ports: [8080]}]"),
        rule
    ));
}

#[test]
fn the_table_of_case_23_holds() {
    let ceilings = ["unrestricted", "[{any: true}]", "[{dns_name: '*'}]", "[{dns_name: '*.nodesource.com'}]"];
    let rules: &[(&str, [bool; 4])] = &[
        ("{}", [true; 4]),
        ("egress: []", [true; 4]),
        ("deny_egress: true", [true; 4]),
        ("egress: [{dns_name: nodesource.com}]", [true, true, true, false]),
        ("egress: [{dns_name: deb.nodesource.com}]", [true, true, true, true]),
        ("egress: [{dns_name: a.b.nodesource.com}]", [true, true, true, false]),
        ("egress: [{dns_name: NodeSource.COM}]", [true, true, true, false]),
        ("egress: [{cidr: 0.0.0.0/0}]", [true, false, false, false]),
    ];
    for (rule, verdicts) in rules {
        let rules = parse_rules(rule.as_bytes(), Format::Yaml).unwrap();
        for (entitlements, verdict) in ceilings.iter().zip(verdicts) {
            assert_eq!(
                contains(&ceiling(entitlements), &rules).is_allowed(),
                *verdict,
                "{rule:?} under {entitlements}"
            );
        }
    }
    assert_eq!(faults("egress: [{dns_name: '*'}]"), [("egress[0].dns_name".to_owned(), Fault::EveryName)]);
    assert_eq!(
        faults("{deny_egress: true, egress: [{dns_name: a.b}]}"),
        [("deny_egress".to_owned(), Fault::Contradiction)]
    );
    assert_eq!(faults("allowed_egress: []"), [("allowed_egress".to_owned(), Fault::EmptyList)]);
    let text = mistakes("allowed_egress: []").to_string();
    assert!(text.contains("unrestricted") && text.contains("none"), "{text}");
}

#[test]
fn any_opens_nothing_that_is_the_platform_s_of_case_24() {
    let rules = parse_rules(b"egress: [{any: true}]", Format::Yaml).unwrap();
    let host = Platform::standard().reserve("198.51.100.1/32".parse().unwrap(), "host");
    let program = compile(&Ceiling::unrestricted(), &rules, &host).unwrap();
    let shut = "10.1.2.3 172.16.0.1 192.168.1.1 127.0.0.1 169.254.169.254 100.64.0.1 100.100.100.100 0.0.0.0 224.0.0.1 fc00::1 fe80::1 \
                fd7a:115c:a1e0::1 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1::1 168.63.129.16 198.51.100.1";
    for address in shut.split_whitespace() {
        let v6 = address.contains(':');
        let flow = if v6 { format!("tcp:[{address}]:443") } else { format!("tcp:{address}:443") };
        assert_eq!(evaluate(&program, &flow.parse().unwrap()).reason, Reason::PlatformInternal, "{address}");
    }
    for flow in [
        "tcp:203.0.113.9:443",
        "tcp:[2001:db8::9]:22",
        "udp:8.8.8.8:53",
        "icmp:1.1.1.1",
        "pkg.example.org:443",
    ] {
        assert_eq!(evaluate(&program, &flow.parse().unwrap()).reason, Reason::RuleMatches, "{flow}");
    }
    let proxy = "tcp:{tailscale.com/parent-resource=db}@{kubernetes.io/metadata.name=tailscale}:8080";
    assert_eq!(evaluate(&program, &proxy.parse().unwrap()).reason, Reason::NoRule);
}

#[test]
fn a_rule_that_can_match_nothing_is_refused_when_it_is_declared() {
    for rule in [
        "{cidr: 127.0.0.0/8}",
        "{cidr: 100.100.0.0/16}",
        "{cidr: 'fd7a:115c:a1e0::/64'}",
        "{cidr: 169.254.169.254/32}",
        "{cidr: {cidr: 10.0.0.0/8, except: [10.0.0.0/9, 10.128.0.0/9]}}",
        "{dns_name: db.localhost}",
    ] {
        let found = faults(&format!("egress: [{rule}]"));
        assert!(matches!(found.as_slice(), [(_, Fault::MatchesNothing)]), "{rule}: {found:?}");
    }
    let found = faults("{allowed_egress: [{dns_name: a.b}], deny_https_hostname_rules: true}");
    assert!(found.contains(&("allowed_egress[0]".to_owned(), Fault::MatchesNothing)), "{found:?}");
}

#[test]
fn a_refusal_names_the_nearest_entitlement_and_a_change_that_passes() {
    let ceiling =
        ceiling("[{tenant: same_org}, {cidr: 10.0.0.0/8, ports: [443]}, {dns_name: '*.example.com'}]");
    let rules = parse_rules(b"egress: [{cidr: 10.2.0.0/16, ports: [443, 22]}]", Format::Yaml).unwrap();
    let refusals = contains(&ceiling, &rules).refusals();
    assert_eq!(refusals[0].nearest, Some(1));
    assert_eq!(refusals[0].witnesses[1].to_string(), "tcp:10.2.0.0:22");
    let RuleChange::Replace(instead) = &refusals[0].rule_change else { panic!("a change") };
    assert_eq!(instead.to_string(), "cidr 10.2.0.0/16, tcp/443");
}

#[test]
fn all_mistakes_come_together_with_their_paths_and_places() {
    let text = "egress:\n  - cidr: 10.0.0.1/8\n  - cidr: 10.0.0.0/8\n    any: true\n  - any: true\n    ports:\n      - {port: 0}\n      - {protocol: icmp, port: 90, end_port: 80}\n    prots: []\n  - dns_name: bad_name.example\n";
    let found = mistakes(text);
    let told: Vec<String> = found
        .told()
        .iter()
        .map(|m| format!("{} {} {}", m.place.unwrap().line, m.path, m.fault.word()))
        .collect();
    assert_eq!(
        told,
        [
            "9 egress[2].prots unknown_key",
            "2 egress[0].cidr invalid_cidr",
            "3 egress[1] one_destination",
            "10 egress[3].dns_name invalid_name"
        ]
    );
    let found = faults("egress: [{any: true, ports: [{port: 0}, {protocol: icmp, port: 90, end_port: 80}]}]");
    assert_eq!(
        found,
        [
            ("egress[0].ports[0].port".to_owned(), Fault::Port),
            ("egress[0].ports[1].protocol".to_owned(), Fault::Protocol),
            ("egress[0].ports[1].end_port".to_owned(), Fault::PortRange),
        ]
    );
}

#[test]
fn prefixes_and_names_have_one_spelling() {
    for bad in [
        "10.0.0.0",
        "010.0.0.0/8",
        "10.0.0.0/08",
        "10.0.0.0/+8",
        "10.0.0.0/33",
        "::ffff:10.0.0.0/104",
        "fe80::%eth0/64",
        "10.0.0.0/-1",
        "",
    ] {
        assert_eq!(faults(&format!("egress: [{{cidr: '{bad}'}}]"))[0].1, Fault::Cidr, "{bad}");
    }
    for bad in
        ["", "a..b", "a.b.", "-a.b", "a_b.c", "*", "a.*.b", "10.0.0.1", "a.0x7f", "xn--a-ecp.ru\u{0}", "::1"]
    {
        let (_, fault) = faults(&format!("egress: [{{dns_name: {bad:?}}}]"))[0].clone();
        assert!(matches!(fault, Fault::Name | Fault::EveryName | Fault::Syntax), "{bad}: {fault:?}");
    }
    let rules = parse_rules("egress: [{dns_name: BÜCHER.example}]".as_bytes(), Format::Yaml).unwrap();
    assert_eq!(rules.egress().rules()[0].to_string(), "dns_name xn--bcher-kva.example");
}

#[test]
fn bad_input_is_bounded_and_told() {
    let many = |n: usize| format!("egress:\n{}", "- {any: true, ports: [1]}\n".repeat(n));
    assert_eq!(faults(&many(limits::RULES + 1))[0].1, Fault::Limit);
    let long = format!("egress: [{{selector: {{pod_labels: {{a: {}}}}}}}]", "x".repeat(1 << 20));
    let text = mistakes(&long).to_string();
    assert!(text.len() < 1000 && text.contains("invalid_label"), "{}", text.len());
    let deep = "[".repeat(100_000);
    for format in [Format::Yaml, Format::Toml, Format::Json] {
        let text = if format == Format::Toml { format!("a = {deep}") } else { deep.clone() };
        assert!(parse(text.as_bytes(), format).is_err());
        assert!(parse(b"egress: \xff", format).is_err());
        assert!(parse(&vec![b' '; limits::FILE_BYTES + 1], format).is_err());
    }
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
    for (new, old) in "bcdefghij".chars().zip("abcdefghi".chars()) {
        bomb += &format!("{new}: &{new} [{}]\n", vec![format!("*{old}"); 10].join(", "));
    }
    assert_eq!(faults(&bomb)[0].1, Fault::Limit);
    assert_eq!(faults("egress: [{any: true, ports: [{port: '443'}]}]")[0].1, Fault::WrongType);
}

#[test]
fn what_is_written_reads_back_in_every_format() {
    let text = "allowed_egress:\n- {any: true, ports: [443, udp/53, '8000-8100'], route: {exit_nodes: [a, b]}}\n- {cidr: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}, route: uplink}\n- {dns_name: '*', dns_name_except: ['*.evil.com']}\n- {tenant: same_user}\n- {selector: {pod_labels: {a: '1'}, namespace_labels: {n: 'true'}}}\ndefault_egress: [{cidr: 203.0.113.0/24, ports: [443], route: {exit_nodes: [a]}}]\nminimum_posture: required\nallowed_ingress: unrestricted\n";
    let ceiling = parse_ceiling(text.as_bytes(), Format::Yaml).unwrap();
    let json = serde_json::to_string(&ceiling).unwrap();
    assert_eq!(parse_ceiling(json.as_bytes(), Format::Json).unwrap(), ceiling);
    assert_eq!(
        parse_ceiling(serde_saphyr::to_string(&ceiling).unwrap().as_bytes(), Format::Yaml).unwrap(),
        ceiling
    );
    assert_eq!(parse_ceiling(toml::to_string(&ceiling).unwrap().as_bytes(), Format::Toml).unwrap(), ceiling);
    assert_eq!(parse_ceiling(json.as_bytes(), Format::Yaml).unwrap(), ceiling);
}

#[test]
fn a_live_update_opens_and_closes_exactly_what_changed() {
    let program = |text: &str| {
        compile(
            &Ceiling::unrestricted(),
            &parse_rules(text.as_bytes(), Format::Yaml).unwrap(),
            &Platform::standard(),
        )
        .unwrap()
    };
    let old = program("egress: [{cidr: 192.0.2.0/24, ports: [443]}, {dns_name: '*.example.com'}]");
    let new = program("egress: [{cidr: 192.0.2.0/25, ports: [443, 80]}, {dns_name: a.example.com}]");
    let told: Vec<String> = diff(&old, &new).changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "egress opens: 192.0.2.0/25, tcp/80; for example tcp:192.0.2.0:80",
            "egress closes: 192.0.2.128/25, tcp/443; for example tcp:192.0.2.128:443",
            "egress closes: dns_name *.example.com except a.example.com, tcp/443; for example tcp:host.example.com:443",
        ]
    );
    assert!(matches!(parse(b"egress: []", Format::Yaml), Ok(Policy::Rules(_))));
}
