//! A lab comes up whole, runs commands in its places, and leaves nothing, however it ends.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[path = "support/lab.rs"]
mod support;

use support::{Lab, SALLYPORT, UPLINK_ADDRESS, is_possible, raise, text, unique_name, wait_for};

/// Processes that carry a lab's mark, and those inside one of its namespaces.
fn remains(id: &str, namespaces: &[u64]) -> Vec<String> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let name = process.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        let marked = String::from_utf8_lossy(&environment).contains(id);
        let inside = std::fs::read_link(process.path().join("ns/net")).is_ok_and(|netns| {
            namespaces.iter().any(|inode| netns.to_string_lossy() == format!("net:[{inode}]"))
        });
        if marked || inside {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            found.push(format!("{name}: {}", String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}

/// What has to be gone: mark, namespaces, folder, supervisor.
struct Traces {
    id: String,
    namespaces: Vec<u64>,
    dir: String,
    supervisor: i32,
}

impl Traces {
    fn of(lab: &Lab) -> Self {
        let status = lab.status();
        let hosts = status["hosts"].as_array().expect("hosts");
        let number = |value: &serde_json::Value| value.as_u64().expect("a number");
        Self {
            id: status["id"].as_str().expect("an id").into(),
            namespaces: hosts.iter().map(|host| number(&host["netns"])).collect(),
            dir: status["dir"].as_str().expect("a folder").into(),
            supervisor: i32::try_from(number(&status["supervisor_pid"])).expect("a process id"),
        }
    }

    fn are_there(&self) {
        assert!(
            !remains(&self.id, &self.namespaces).is_empty(),
            "the search finds nothing while the lab is up"
        );
        assert!(Path::new(&self.dir).exists());
    }

    fn vanish(&self) {
        wait_for("nothing of the lab is left", Duration::from_secs(15), || {
            remains(&self.id, &self.namespaces).is_empty()
                && kill(Pid::from_raw(self.supervisor), None).is_err()
        });
        let mounts = std::fs::read_to_string("/proc/mounts").expect("/proc/mounts");
        assert!(!mounts.contains(&self.dir), "a mount is left:\n{mounts}");
    }
}

#[test]
fn a_lab_comes_up_with_the_right_nodes() {
    let Some(lab) = raise() else { return };
    let status = lab.status();
    assert!(status["raised_in_seconds"].as_f64().expect("a figure") < 15.0);
    let hosts = status["hosts"].as_array().expect("hosts");
    let names: Vec<&str> = hosts.iter().filter_map(|host| host["name"].as_str()).collect();
    assert_eq!(names, ["app", "control", "exit-us-central", "exit-us-east", "worker"]);
    for exit in ["exit-us-east", "exit-us-central"] {
        let host = lab.host(exit);
        assert_eq!(host["tailscaled"]["backend"], "Running", "{exit}");
        assert_eq!(host["node"]["online"], true, "{exit}");
    }
    assert_eq!(lab.host("worker")["tailscaled"]["backend"], "NeedsLogin");
    assert_eq!(lab.seen().as_deref(), Ok(UPLINK_ADDRESS));
    let mode = std::fs::metadata(status["dir"].as_str().expect("a folder"))
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700, "others may look into the lab's folder");
}

#[test]
fn two_labs_with_the_same_addresses_stand_side_by_side() {
    let (Some(one), Some(other)) = (raise(), raise()) else { return };
    assert_ne!(Traces::of(&one).namespaces, Traces::of(&other).namespaces);
    for lab in [&one, &other] {
        assert_eq!(lab.seen().as_deref(), Ok(UPLINK_ADDRESS));
        assert_eq!(
            lab.status()["internet"]["echo"]["total"],
            1,
            "one lab's question is counted in the other"
        );
    }
}

#[test]
fn run_passes_exit_code_standard_input_and_output_and_signals() {
    let Some(lab) = raise() else { return };
    assert_eq!(lab.worker(&["sh", "-c", "exit 37"]).status.code(), Some(37));
    assert_eq!(lab.worker(&["/etc/hostname"]).status.code(), Some(126), "not executable");
    assert_eq!(lab.worker(&["no-such-command"]).status.code(), Some(127), "not found");

    let mut cat = lab.command(&["run"]);
    let mut cat =
        cat.args(["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    cat.stdin.take().expect("a pipe").write_all(b"through and back\n").expect("written");
    assert_eq!(text(&cat.wait_with_output().expect("it ends").stdout), "through and back");

    let script = "trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut trap = lab.command(&["run"]);
    let mut trap = trap.args(["--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut out = trap.stdout.take().expect("a pipe");
    let mut said = [0; 6];
    std::io::Read::read_exact(&mut out, &mut said).expect("it says ready");
    kill(Pid::from_raw(i32::try_from(trap.id()).expect("a process id")), Signal::SIGTERM).expect("it lives");
    assert_eq!(trap.wait().expect("it ends").code(), Some(5));
}

#[test]
fn the_worker_has_a_resolver_of_its_own() {
    let Some(lab) = raise() else { return };
    let resolvers = text(&lab.worker(&["cat", "/etc/resolv.conf"]).stdout);
    assert!(resolvers.contains("203.0.113.53"), "{resolvers}");
    assert_eq!(lab.asks("http://echo.lab.example/").as_deref(), Ok("2001:db8:77::10"));
    assert!(lab.status()["internet"]["dns"]["total"].as_u64() > Some(0));
}

#[test]
fn down_leaves_nothing() {
    let Some(lab) = raise() else { return };
    let traces = Traces::of(&lab);
    traces.are_there();
    lab.verb(&["down"]);
    traces.vanish();
    assert!(!Path::new(&traces.dir).exists(), "its folder is left");
}

#[test]
fn ctrl_c_takes_the_lab_down() {
    if !is_possible() {
        return;
    }
    let lab = Lab { name: unique_name() };
    let mut up = lab.command(&["up"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("the lab is up", Duration::from_secs(20), || {
        lab.command(&["status"]).output().is_ok_and(|output| output.status.success())
    });
    let traces = Traces::of(&lab);
    traces.are_there();
    kill(Pid::from_raw(i32::try_from(up.id()).expect("a process id")), Signal::SIGINT).expect("it lives");
    up.wait().expect("it ends");
    traces.vanish();
    assert!(!Path::new(&traces.dir).exists(), "its folder is left");
}

#[test]
fn a_killed_lab_leaves_nothing_and_the_next_one_sweeps_its_folder() {
    let Some(lab) = raise() else { return };
    let traces = Traces::of(&lab);
    let mut inside = lab.command(&["run"]);
    let mut inside =
        inside.args(["--", "sh", "-c", "echo inside; exec sleep 1000"]).stdout(Stdio::piped()).spawn();
    let inside = inside.as_mut().expect("it starts");
    let mut said = [0; 7];
    std::io::Read::read_exact(inside.stdout.as_mut().expect("a pipe"), &mut said).expect("it says so");
    traces.are_there();
    kill(Pid::from_raw(traces.supervisor), Signal::SIGKILL).expect("it lives");
    traces.vanish();
    inside.wait().expect("what ran inside has ended");
    lab.verb(&["up", "--detach"]);
    assert_ne!(Traces::of(&lab).id, traces.id);
    assert_eq!(lab.seen().as_deref(), Ok(UPLINK_ADDRESS));
}

#[test]
fn a_name_in_use_is_refused_and_what_is_up_stays_up() {
    let Some(lab) = raise() else { return };
    let again = lab.command(&["up", "--detach"]).output().expect("it starts");
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("lab-in-use"), "{}", text(&again.stderr));
    assert_eq!(lab.seen().as_deref(), Ok(UPLINK_ADDRESS));
}

#[test]
fn all_mistakes_of_a_topology_file_are_told_together() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("topology.toml");
    std::fs::write(
        &file,
        "domain = \"tail1234.ts.net\"\n[underlay]\nnetworks = [\"10.77.0.0/24\", \"2001:db8:77::/64\"]\n\
         gateway = [\"10.77.0.254\", \"2001:db8:77::254\"]\n\
         [hosts.control]\nrole = \"control\"\naddresses = [\"10.77.0.1\", \"2001:db8:77::1\"]\n\
         [hosts.worker]\nrole = \"worker\"\naddresses = [\"10.99.0.10\", \"2001:db8:77::10\"]\n\
         [hosts.exit]\nrole = \"exit\"\naddresses = [\"10.77.0.1\", \"2001:db8:77::21\"]\n",
    )
    .expect("written");
    let name = unique_name();
    let output = Command::new(SALLYPORT)
        .args(["lab", "up", "--detach", "--name", &name, "--topology"])
        .arg(&file)
        .output()
        .expect("it starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for mistake in ["10.99.0.10", "10.77.0.1", "exit"] {
        assert!(said.contains(mistake), "{mistake} is not told:\n{said}");
    }
    assert!(!Path::new("/run/sallyport/lab").join(&name).exists(), "a refused lab left a folder");
}

#[test]
fn a_recording_shows_what_left_by_the_uplink() {
    let Some(lab) = raise() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("uplink.pcap");
    let path = file.to_str().expect("a path");
    let recording =
        lab.command(&["capture", "--seconds", "2", "--output", path]).stdout(Stdio::piped()).spawn();
    wait_for("the file is begun", Duration::from_secs(5), || file.exists());
    assert_eq!(lab.seen().as_deref(), Ok(UPLINK_ADDRESS));
    let output = recording.expect("it starts").wait_with_output().expect("it ends");
    assert!(output.status.success());
    let packets = std::fs::read(&file).expect("it is there");
    assert_eq!(packets[..4], [0xd4, 0xc3, 0xb2, 0xa1], "a pcap file");
    // The worker's TCP connection to the echo service: source and destination side by side.
    let flow = [198, 51, 100, 1, 203, 0, 113, 9];
    assert!(packets.windows(8).any(|window| window == flow), "the flow is not in the file");
    assert!(lab.leaks() > 0);
}
