#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

use super::*;

fn registry() -> (tempfile::TempDir, Registry) {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::at(dir.path().join("sallyport/lab"));
    (dir, registry)
}

fn sleeper(mark: &str) -> Child {
    let mut command = Command::new("sleep");
    command.arg("1000").env(MARK, mark).spawn().unwrap()
}

#[test]
fn a_claimed_name_is_taken_until_it_is_released_and_then_nothing_is_left() {
    let (root, registry) = registry();
    let claim = registry.claim("one").unwrap();
    assert!(matches!(registry.claim("one"), Err(RegistryError::InUse { .. })));
    assert_eq!(registry.living().unwrap().len(), 1);
    claim.release().unwrap();
    assert!(registry.living().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0, "the folders above go too");
}

#[test]
fn labs_live_side_by_side_and_a_name_is_needed_only_then() {
    let (_root, registry) = registry();
    assert!(matches!(registry.find(None), Err(RegistryError::Missing { .. })));
    let one = registry.claim("one").unwrap();
    assert_eq!(registry.find(None).unwrap().name(), "one");
    let two = registry.claim("two").unwrap();
    assert!(
        matches!(registry.find(None), Err(RegistryError::Ambiguous { names }) if names == ["one", "two"])
    );
    assert_eq!(registry.find(Some("two")).unwrap().name(), "two");
    assert!(matches!(registry.find(Some("three")), Err(RegistryError::Missing { .. })));
    one.release().unwrap();
    assert_eq!(registry.find(None).unwrap().name(), "two");
    two.release().unwrap();
}

#[test]
fn what_a_dead_lab_left_is_swept_by_its_mark_and_not_by_its_name() {
    let (_root, registry) = registry();
    let claim = registry.claim("one").unwrap();
    let dir = claim.dir().clone();
    let (mut ours, mut other) = (sleeper(claim.id().as_str()), sleeper("one"));
    assert!(registry.sweep().unwrap().is_empty(), "a living lab is not swept");
    // As after kill -9: the lock is free, everything else is still there.
    drop(claim);
    assert_eq!(registry.sweep().unwrap(), ["one"]);
    assert_eq!(ours.wait().unwrap().signal(), Some(9));
    assert_eq!(other.try_wait().unwrap(), None, "a process with another mark lives on");
    assert!(!dir.path().exists());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn taking_the_name_of_a_dead_lab_sweeps_it_first() {
    let (_root, registry) = registry();
    let dead = registry.claim("one").unwrap();
    let old = dead.id().clone();
    let mut left = sleeper(old.as_str());
    drop(dead);
    let new = registry.claim("one").unwrap();
    assert_eq!(left.wait().unwrap().signal(), Some(9));
    assert_ne!(*new.id(), old);
    new.release().unwrap();
}

#[test]
fn only_names_that_can_be_folders_are_taken() {
    let (_root, registry) = registry();
    for name in ["", "..", "a/b", "-a", "a-", "A", &"a".repeat(32)] {
        assert!(matches!(registry.claim(name), Err(RegistryError::Name { .. })), "{name}");
    }
}

#[test]
fn a_record_is_read_back_as_it_was_written() {
    let (_root, registry) = registry();
    let claim = registry.claim("one").unwrap();
    assert!(matches!(claim.dir().record(), Err(RegistryError::Starting { .. })));
    let record = Record {
        name: "one".into(),
        id: claim.id().clone(),
        supervisor_pid: 1,
        phase: record::Phase::Starting,
        control: record::ControlKind::Own,
        topology: crate::topology::Topology::built_in(),
        places: [].into(),
        environment: [].into(),
    };
    claim.write(&record).unwrap();
    assert_eq!(claim.dir().record().unwrap(), record);
    assert!(matches!(record.open("nobody"), Err(record::PlaceError::NoHost { .. })));
    claim.release().unwrap();
}
