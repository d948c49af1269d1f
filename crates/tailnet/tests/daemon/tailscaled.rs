//! A tailscaled of our own: userspace networking, its own folder, gone with the test.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sallyport_tailnet::{Client, Error, Peers, Status, Wait};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use crate::programs;

/// Generous, for a busy machine; only a failing test waits it out.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Tailscaled {
    program: PathBuf,
    dir: TempDir,
    /// Its SOCKS5 proxy, which leads into the tailnet.
    pub(crate) proxy: SocketAddr,
    child: Child,
}

impl Tailscaled {
    /// Starts one and waits for its backend. `None`: there is no such program, and that has been said.
    pub(crate) async fn start() -> Option<Self> {
        let program = programs::tailscaled()?;
        let dir = tempfile::tempdir().unwrap();
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = spawn(&program, &dir, proxy);
        let daemon = Self { program, dir, proxy, child };
        daemon.ready().await;
        Some(daemon)
    }

    /// Starts it again in the same folder, after [`Self::kill`].
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(&self.program, &self.dir, self.proxy);
        self.ready().await;
    }

    async fn ready(&self) {
        let client = self.client();
        let start = Instant::now();
        while let Err(error) = client.server_status(Wait::UntilReady).await {
            assert!(error.is_unreachable() && start.elapsed() < PATIENCE, "{error:?}\n{}", self.log());
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.socket()).with_deadline(PATIENCE)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("s.sock")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Reads the status until it is as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let client = self.client();
        let look = async {
            loop {
                match client.status(Peers::Include).await {
                    Ok(status) if wanted(&status) => return status,
                    Ok(_) | Err(Error::NoAnswer { .. }) => sleep(Duration::from_millis(20)).await,
                    Err(error) => panic!("{error:?}"),
                }
            }
        };
        match timeout(PATIENCE, look).await {
            Ok(status) => status,
            Err(_) => panic!("never {what}: {:?}\n{}", client.status(Peers::Include).await, self.log()),
        }
    }
}

impl Drop for Tailscaled {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &PathBuf, dir: &TempDir, proxy: SocketAddr) -> Child {
    let log = File::options().create(true).append(true).open(dir.path().join("log")).unwrap();
    // It dies with the test, should that be killed.
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(["--tun=userspace-networking", "--no-logs-no-support", "--port=0"])
        .arg(format!("--socks5-server={proxy}"))
        .arg(format!("--statedir={}", dir.path().display()))
        .arg(format!("--socket={}", dir.path().join("s.sock").display()))
        .env("HOME", dir.path())
        .env("TS_LOGS_DIR", dir.path())
        .env("TS_DEBUG_USE_DERP_HTTP", "true")
        .env("TS_DISABLE_PORTMAPPER", "true")
        // The Internet's control server is nobody that a test talks to.
        .env("TS_PANIC_IF_HIT_MAIN_CONTROL", "true")
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}
