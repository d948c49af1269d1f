//! The lab's control server on loopback, and its admin socket.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use secrecy::SecretString;
use serde_json::Value;
use tempfile::TempDir;

use crate::programs;
use crate::tailscaled::PATIENCE;

/// Exit nodes approve themselves; everyone may use them; each tag may reach the other.
const POLICY: &str = r#"{
    "tagOwners": { "tag:worker": [], "tag:exit": [] },
    "acls": [{ "action": "accept", "src": ["*"], "dst": ["*:*", "autogroup:internet:*"] }],
    "autoApprovers": { "exitNode": ["tag:exit"] },
}"#;

pub(crate) struct Control {
    dir: TempDir,
    child: Child,
    pub(crate) url: String,
}

impl Control {
    /// `None`: there is no such program, and that has been said.
    pub(crate) fn start() -> Option<Self> {
        let program = programs::labctl()?;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("policy.hujson"), POLICY).unwrap();
        let log = File::create(path("log")).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--derp-ip", "127.0.0.1", "--stun-port", "0"])
            .arg("--state")
            .arg(path("state.json"))
            .arg("--policy")
            .arg(path("policy.hujson"))
            .arg("--admin")
            .arg(path("admin.sock"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut control = Self { dir, child, url: String::new() };
        let start = Instant::now();
        while control.url.is_empty() {
            let said = std::fs::read_to_string(control.dir.path().join("log")).unwrap();
            assert!(start.elapsed() < PATIENCE, "the control server never listened: {said}");
            let url = said.split_whitespace().find(|word| word.starts_with("http://"));
            control.url = url.unwrap_or_default().trim_end_matches(',').to_owned();
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(control)
    }

    /// A new single-use key for a tag.
    pub(crate) fn key(&self, tag: &str) -> SecretString {
        let answer = self.post("/keys", &format!("{{\"tags\":[\"{tag}\"]}}"));
        answer["key"].as_str().unwrap().into()
    }

    /// Every node, as the control server has it.
    pub(crate) fn nodes(&self) -> Vec<Value> {
        self.ask("GET", "/nodes", "").as_array().unwrap().clone()
    }

    /// Puts another policy in force.
    pub(crate) fn set_policy(&self, policy: &str) {
        self.ask("PUT", "/policy", policy);
    }

    fn post(&self, path: &str, body: &str) -> Value {
        self.ask("POST", path, body)
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = UnixStream::connect(self.dir.path().join("admin.sock")).unwrap();
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: lab\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.split(' ').nth(1).is_some_and(|status| status.starts_with('2')),
            "{method} {path}: {answer}"
        );
        serde_json::from_str(body).unwrap_or(Value::Null)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
