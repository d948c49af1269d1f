#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use super::*;

fn order(name: &str, target: Option<&str>) -> Order {
    Order { name: name.into(), target: target.map(Into::into), parameters: Parameters::default() }
}

fn checked(order: &Order) -> Result<Checked, OrderError> {
    check(order, &Topology::built_in())
}

#[test]
fn every_fault_has_one_name_and_says_what_it_does_and_undoes() {
    let names: BTreeSet<&str> = TABLE.iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), TABLE.len());
    for kind in TABLE {
        assert!(!kind.effect.is_empty() && !kind.undo.is_empty(), "{}", kind.name);
    }
}

#[test]
fn every_fault_has_a_target_in_the_built_in_topology() {
    for kind in TABLE {
        let target = match kind.target {
            Target::Peer | Target::Exit | Target::Node | Target::Host => Some("exit-us-east"),
            Target::Worker | Target::Lab => None,
        };
        let checked = checked(&order(kind.name, target)).unwrap();
        assert_eq!(checked.key().name, kind.name);
        assert_eq!(checked.host.is_none(), kind.target == Target::Lab);
    }
}

#[test]
fn a_target_that_does_not_fit_is_answered_with_those_that_do() {
    assert_eq!(
        checked(&order("exit-unapproved", Some("app"))).unwrap_err().to_string(),
        "exit-unapproved cannot be done to app, but to exit-us-central, exit-us-east"
    );
    assert_eq!(
        checked(&order("exit-killed", None)).unwrap_err().to_string(),
        "exit-killed needs a target: app, exit-us-central, exit-us-east"
    );
    assert!(checked(&order("control-down", Some("control"))).is_err());
    assert_eq!(checked(&order("worker-killed", Some("worker"))).unwrap().host.as_deref(), Some("worker"));
}

#[test]
fn an_unknown_name_is_answered_with_its_nearest() {
    assert_eq!(
        checked(&order("exit-kill", None)).unwrap_err().to_string().split("; ").next(),
        Some("no fault named exit-kill")
    );
    assert!(checked(&order("worker-kill", None)).unwrap_err().to_string().contains("worker-killed"));
    assert_eq!(checked(&order("xyz", None)).unwrap_err().to_string(), "no fault named xyz");
}

#[test]
fn all_that_is_wrong_is_said_together() {
    let parameters =
        Parameters { percent: Some(0.0), rate: Some(1), link: Some(Link::Internet), ..Parameters::default() };
    let wrong = checked(&Order { parameters, ..order("link-loss", Some("worker")) }).unwrap_err();
    assert_eq!(
        wrong.0,
        [
            "link-loss takes no --rate",
            "--percent must be above 0 and at most 100",
            "only an exit has a link w0"
        ]
    );
}

#[test]
fn a_fault_is_known_by_its_link_too_where_it_takes_one() {
    let loss = checked(&order("link-loss", Some("exit-us-east"))).unwrap();
    assert_eq!(loss.key().to_string(), "link-loss exit-us-east u0");
    let killed = checked(&order("exit-killed", Some("exit-us-east"))).unwrap();
    assert_eq!(killed.key().to_string(), "exit-killed exit-us-east");
}
