#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Read;
use std::process::Stdio;

use super::*;
use crate::netns::NetnsId;
use crate::privilege;

fn namespace() -> Arc<Namespace> {
    Arc::new(Namespace::builder("test").create().unwrap())
}

fn sleep() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000");
    command
}

#[test]
fn a_child_starts_inside_in_a_session_of_its_own_and_its_exit_code_is_kept() {
    if privilege::missing() {
        return;
    }
    let (spawner, namespace) = (Spawner::start().unwrap(), namespace());
    let (mut output, input) = std::io::pipe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "readlink /proc/self/ns/net; ps -o sid= -p $$; echo $$; exit 7"]);
    command.stdin(Stdio::null()).stdout(input);
    let child = spawner.spawn(command, &namespace).unwrap();
    assert_eq!(child.wait_blocking().code(), Some(7));
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(lines[0], namespace.id().to_string());
    assert_eq!(lines[1], lines[2], "it leads its session");
}

#[tokio::test]
async fn a_signal_reaches_a_running_child_and_an_ended_one_is_left_alone() {
    if privilege::missing() {
        return;
    }
    let (spawner, namespace) = (Spawner::start().unwrap(), namespace());
    let child = spawner.spawn(sleep(), &namespace).unwrap();
    assert_eq!(child.status(), None);
    assert_eq!(NetnsId::of_process(child.pid()), Some(namespace.id()));
    child.signal(Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().await.signal(), Some(Signal::SIGTERM as i32));
    child.signal(Signal::SIGKILL).expect("no error, and nobody hit");
}

#[test]
fn children_die_with_their_spawner() {
    if privilege::missing() {
        return;
    }
    let (spawner, namespace) = (Spawner::start().unwrap(), namespace());
    let child = spawner.spawn(sleep(), &namespace).unwrap();
    drop(spawner);
    let status = child.status().expect("gone when the spawner is");
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    if privilege::missing() {
        return;
    }
    let (spawner, namespace) = (Spawner::start().unwrap(), namespace());
    let error = spawner.spawn(Command::new("/no/such/program"), &namespace).unwrap_err();
    assert_eq!(error.to_string(), "cannot start /no/such/program in namespace test");
}
