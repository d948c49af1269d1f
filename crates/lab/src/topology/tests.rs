#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

/// What is wrong with the default file after one replacement.
fn mistakes(from: &str, to: &str) -> Vec<String> {
    assert!(DEFAULT.contains(from), "{from} is not in the default");
    match Topology::parse(&DEFAULT.replace(from, to)) {
        Err(TopologyError::Mistakes(mistakes)) => {
            mistakes.into_iter().map(|mistake| format!("{}: {}", mistake.at, mistake.what)).collect()
        }
        other => panic!("expected mistakes, got {other:?}"),
    }
}

#[test]
fn the_built_in_topology_is_the_one_that_is_documented() {
    let topology = Topology::built_in();
    let names: Vec<&str> = topology.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["app", "control", "exit-us-central", "exit-us-east", "worker"]);
    assert_eq!(topology.control().addresses.ipv4, Ipv4Addr::new(10, 77, 0, 1));
    assert_eq!(topology.worker().public.unwrap(), Dual { ipv4: Ipv4Addr::new(198, 51, 100, 1), ipv6: None });
    assert_eq!(topology.tags(), ["tag:app", "tag:exit", "tag:worker"]);
    assert_eq!(topology.names()["exit-us-east-public"].ipv4, Ipv4Addr::new(203, 0, 113, 10));
}

#[test]
fn an_unknown_key_is_an_error_that_names_it() {
    let text = DEFAULT.replace("public = [\"198.51.100.1\"]", "publik = [\"198.51.100.1\"]");
    let Err(TopologyError::Syntax(message)) = Topology::parse(&text) else { panic!("accepted") };
    assert!(message.contains("publik"), "{message}");
}

#[test]
fn all_mistakes_are_listed_together() {
    let text = DEFAULT
        .replace("domain = \"tail1234.ts.net\"", "domain = \"Tail\"")
        .replace("role = \"worker\"", "role = \"app\"")
        .replace("[\"tag:exit\"]", "[\"exit\"]");
    let Err(TopologyError::Mistakes(mistakes)) = Topology::parse(&text) else { panic!("accepted") };
    let places: Vec<&str> = mistakes.iter().map(|mistake| mistake.at.as_str()).collect();
    assert_eq!(
        places,
        ["domain", "hosts.exit-us-central.tags", "hosts.exit-us-east.tags", "hosts.worker.public", "hosts"]
    );
}

#[test]
fn an_address_belongs_to_one_host() {
    assert_eq!(
        mistakes("10.77.0.30", "10.77.0.10"),
        ["hosts.worker.addresses: 10.77.0.10 is taken by hosts.app.addresses"]
    );
    assert_eq!(
        mistakes("\"198.51.100.1\"", "\"203.0.113.9\""),
        ["hosts.worker.public: 203.0.113.9 is taken by the fake Internet's services"]
    );
    assert_eq!(mistakes("\"10.77.0.30\"", "\"10.77.0.254\"").len(), 1);
}

#[test]
fn an_exit_needs_a_public_address_of_its_own() {
    assert_eq!(
        mistakes("public = [\"203.0.113.10\", \"2001:db8:10::10\"]", ""),
        ["hosts.exit-us-east.public: an exit needs one public IPv4 and at most one public IPv6 address"]
    );
    for private in ["10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.1.1", "224.0.0.1", "0.1.2.3", "255.0.0.1"]
    {
        let found = mistakes("203.0.113.10", private);
        assert_eq!(found, [format!("hosts.exit-us-east.public: {private} is not a public address")]);
    }
    assert_eq!(mistakes("2001:db8:10::10", "fd00::1").len(), 1);
}

#[test]
fn an_exit_without_ipv6_is_allowed() {
    let text = DEFAULT.replace(", \"2001:db8:10::10\"", "");
    let topology = Topology::parse(&text).unwrap();
    assert_eq!(topology.host("exit-us-east").unwrap().public.unwrap().ipv6, None);
}

#[test]
fn a_host_lives_on_the_underlay() {
    for outside in ["10.78.0.30", "10.77.0.0", "10.77.0.255"] {
        let found = mistakes("10.77.0.30", outside);
        assert_eq!(
            found,
            [format!("hosts.app.addresses: {outside} is not a host address of underlay.networks")]
        );
    }
    assert_eq!(mistakes("10.77.0.254", "10.78.0.254").len(), 1, "the gateway too");
    assert!(!mistakes("10.77.0.0/24", "203.0.113.0/24").is_empty(), "plain http needs a private network");
    assert!(!mistakes("\"10.77.0.0/24\", ", "").is_empty());
}

#[test]
fn a_name_is_a_dns_label_and_not_the_internets() {
    assert_eq!(mistakes("[hosts.app]", "[hosts.App]").len(), 1);
    assert_eq!(mistakes("[hosts.app]", "[hosts.internet]").len(), 1);
    assert_eq!(mistakes("[hosts.app]", &format!("[hosts.{}]", "a".repeat(41))).len(), 1);
}

#[test]
fn there_is_one_control_server_and_it_is_no_node() {
    let second = "[hosts.control2]\nrole = \"control\"\naddresses = [\"10.77.0.2\"]\ntags = [\"tag:x\"]\n\n[hosts.app]";
    assert_eq!(mistakes("[hosts.app]", second).len(), 2);
}
