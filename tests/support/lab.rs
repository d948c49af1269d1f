//! A lab of one's own for a test: raised under a name that nobody else has, taken down when the test ends.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The binary under test.
pub const SALLYPORT: &str = env!("CARGO_BIN_EXE_sallyport");
/// The exit node that tests name first.
pub const EAST: &str = "exit-us-east";
/// The other one.
pub const CENTRAL: &str = "exit-us-central";
/// What the world sees of the worker without an exit node.
pub const UPLINK_ADDRESS: &str = "198.51.100.1";
/// What it sees behind the first exit node.
pub const EAST_ADDRESS: &str = "203.0.113.10";
/// What it sees behind the other.
pub const CENTRAL_ADDRESS: &str = "203.0.113.11";

/// A raised lab.
pub struct Lab {
    /// Its name.
    pub name: String,
}

/// What a guard said and how it ended.
#[derive(Debug)]
pub struct Guarded {
    /// Exit code.
    pub code: i32,
    /// Its JSON events.
    pub events: Vec<Value>,
    /// Its talk.
    pub stderr: String,
}

impl Guarded {
    /// The reason word of a failure.
    pub fn reason(&self) -> &str {
        self.events.iter().rev().find_map(|event| event["reason"].as_str()).unwrap_or("")
    }

    /// The first event of this kind.
    pub fn event(&self, kind: &str) -> Option<&Value> {
        self.events.iter().find(|event| event["event"] == kind)
    }

    /// Everything it said, for messages and searches.
    pub fn said(&self) -> String {
        let events: Vec<String> = self.events.iter().map(Value::to_string).collect();
        format!("exit code {}\n{}\n{}", self.code, events.join("\n"), self.stderr)
    }
}

/// Whether this machine lets us make namespaces. Says loudly when it does not; in CI that is a failure.
#[expect(clippy::print_stderr, reason = "a skipped test has to say so")]
pub fn is_possible() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "CI has to run this as root: labs need network namespaces");
    eprintln!("SKIPPED: labs need root for network namespaces; run the tests as root");
    false
}

/// A lab, or none where the machine lets nobody make one.
pub fn raise() -> Option<Lab> {
    raise_with(&[])
}

/// A lab with more said to `lab up`.
pub fn raise_with(more: &[&str]) -> Option<Lab> {
    if !is_possible() {
        return None;
    }
    let lab = Lab { name: unique_name() };
    lab.verb(&[&["up", "--detach"], more].concat());
    Some(lab)
}

/// A name that no other test has.
pub fn unique_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Lab {
    /// `sallyport lab VERB ... --name NAME`.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(SALLYPORT);
        command.arg("lab").args(words).args(["--name", &self.name]).stdin(Stdio::null());
        command
    }

    /// A verb that has to succeed; its standard output.
    pub fn verb(&self, words: &[&str]) -> String {
        let output = self.command(words).output().expect("sallyport starts");
        assert!(output.status.success(), "sallyport lab {words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// A fault.
    pub fn fault(&self, words: &[&str]) {
        self.verb(&[&["fault"], words].concat());
    }

    /// Its end.
    pub fn undo(&self, words: &[&str]) {
        self.verb(&[&["fault", "--undo"], words].concat());
    }

    /// A command in the worker's place.
    pub fn worker(&self, words: &[&str]) -> Output {
        self.worker_with(&[], words)
    }

    /// The same with more environment.
    pub fn worker_with(&self, environment: &[(&str, &str)], words: &[&str]) -> Output {
        let mut command = self.command(&["run"]);
        command.arg("--").args(words).envs(environment.iter().copied());
        command.output().expect("sallyport starts")
    }

    /// A guard in the worker's place.
    pub fn guard(&self, environment: &[(&str, &str)]) -> Guarded {
        self.guard_with(environment, &[])
    }

    /// The same with options.
    pub fn guard_with(&self, environment: &[(&str, &str)], options: &[&str]) -> Guarded {
        let output = self.worker_with(environment, &[&[SALLYPORT, "guard", "--json"], options].concat());
        Guarded {
            code: output.status.code().expect("not killed"),
            events: text(&output.stdout)
                .lines()
                .map(|line| serde_json::from_str(line).expect("a JSON line"))
                .collect(),
            stderr: text(&output.stderr),
        }
    }

    /// What the world sees when the worker asks it, or why it could not.
    pub fn seen(&self) -> Result<String, String> {
        self.asks("http://203.0.113.9/")
    }

    /// The same with another address to ask at.
    pub fn asks(&self, url: &str) -> Result<String, String> {
        let output = self.worker(&["curl", "-gsS", "--max-time", "3", url]);
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// `lab status --json`.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.verb(&["status", "--json"])).expect("JSON")
    }

    /// One host of the status.
    pub fn host(&self, name: &str) -> Value {
        let status = self.status();
        let hosts = status["hosts"].as_array().expect("hosts");
        hosts.iter().find(|host| host["name"] == name).expect("that host").clone()
    }

    /// The leak counters, the kernel's and the capture's, once they agree.
    pub fn leaks(&self) -> u64 {
        let mut counted = (0, 1);
        wait_for("the two leak counters agree", Duration::from_secs(5), || {
            let status = self.status();
            let kernel = status["uplink"]["counters"]["leak"]["packets"].as_u64().unwrap_or_default();
            let capture = status["uplink"]["capture"]["packets"]["leak"].as_u64().unwrap_or_default();
            counted = (kernel, capture);
            kernel == capture
        });
        counted.0
    }

    /// The state file of the worker's guard, if it is there.
    pub fn state_file(&self) -> Option<String> {
        let output = self.worker(&["sh", "-c", "cat \"$TS_GUARD_STATE_FILE\""]);
        output.status.success().then(|| text(&output.stdout))
    }

    /// What the worker's tailscaled says, through the real command line client.
    pub fn tailscale(&self, words: &[&str]) -> Output {
        let script = format!("exec {} --socket=\"$TS_SOCKET\" \"$@\"", tailscale().display());
        self.worker(&[&["sh", "-c", &script, "tailscale"], words].concat())
    }

    /// The worker's preferences.
    pub fn prefs(&self) -> Value {
        let output = self.tailscale(&["debug", "prefs"]);
        serde_json::from_slice(&output.stdout).expect("prefs are JSON")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.command(&["down"]).output();
    }
}

/// The real command line client.
pub fn tailscale() -> PathBuf {
    let daemon =
        sallyport_lab::binaries::find(sallyport_lab::binaries::Program::Tailscaled).expect("make setup");
    daemon.with_file_name("tailscale")
}

/// Output for people.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Waits for a condition.
pub fn wait_for(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < deadline, "not within {deadline:?}: {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}
