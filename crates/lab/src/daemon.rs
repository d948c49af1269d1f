//! One real tailscaled in its host's place: started, watched, signalled, started again with what it kept.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use sallyport_gate::spawn::SpawnError;
use sallyport_gate::{Namespace, Process, Spawner};
use sallyport_tailnet::Client;
use serde::Serialize;

/// The UDP port of every tailscaled in the lab: the leak counter knows the worker's WireGuard by it.
pub const WIREGUARD_PORT: u16 = 41641;

/// How long a tailscaled may take until its socket answers.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// How long one may take to end after SIGTERM.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// A tailscaled that did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The program could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Its folder or log could not be used.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It ended before it answered.
    #[error("tailscaled of {host} ended at once ({status}); see {}", log.display())]
    Ended {
        /// The host.
        host: String,
        /// How.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
    },
    /// It did not answer in time.
    #[error("tailscaled of {host} did not answer within {} s; see {}", deadline.as_secs(), log.display())]
    Silent {
        /// The host.
        host: String,
        /// How long was waited.
        deadline: Duration,
        /// Its log.
        log: PathBuf,
    },
    /// It did not end in time.
    #[error("tailscaled of {host} did not end within {} s after {signal}", deadline.as_secs())]
    Lingers {
        /// The host.
        host: String,
        /// The signal.
        signal: Signal,
        /// How long was waited.
        deadline: Duration,
    },
    /// A signal could not be sent.
    #[error("cannot send {signal} to tailscaled of {host}")]
    Signal {
        /// The host.
        host: String,
        /// The signal.
        signal: Signal,
        /// Why.
        source: std::io::Error,
    },
}

/// What the process of a daemon is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum ProcessState {
    /// It runs.
    Running {
        /// Its process id.
        pid: u32,
    },
    /// It is stopped by a signal.
    Stopped {
        /// Its process id.
        pid: u32,
    },
    /// It has ended.
    Ended {
        /// How, such as `exit status: 1` or `signal: 9 (SIGKILL)`.
        how: String,
    },
    /// It was never started.
    Absent,
}

impl ProcessState {
    /// The state of a process that may not have been started.
    #[must_use]
    pub fn of(process: Option<&Process>) -> Self {
        let Some(process) = process else {
            return Self::Absent;
        };
        let pid = process.pid();
        match process.status() {
            Some(status) => Self::Ended { how: status.to_string() },
            None if is_stopped(pid) => Self::Stopped { pid },
            None => Self::Running { pid },
        }
    }
}

/// Whether a process is stopped: the third field of `/proc/PID/stat` (proc_pid_stat(5)), after the name in brackets.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
}

/// A tailscaled and its files.
#[derive(Debug)]
pub struct Tailscaled {
    host: String,
    program: PathBuf,
    dir: PathBuf,
    environment: Vec<(String, String)>,
    process: Option<Process>,
}

impl Tailscaled {
    /// One that does not run yet; its files go to `dir`.
    #[must_use]
    pub fn new(host: &str, program: &Path, dir: PathBuf, environment: Vec<(String, String)>) -> Self {
        Self { host: host.into(), program: program.into(), dir, environment, process: None }
    }

    /// Its host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("tailscaled.sock")
    }

    /// The folder of what it keeps.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The log of its output.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("tailscaled.log")
    }

    /// A client of its LocalAPI.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.socket())
    }

    /// What its process is doing.
    #[must_use]
    pub fn state(&self) -> ProcessState {
        ProcessState::of(self.process.as_ref())
    }

    /// Whether it runs, be it stopped.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.status().is_none())
    }

    /// Starts it with what it kept, and waits until its socket answers. Nothing happens where it runs already.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub async fn start(&mut self, spawner: &Spawner, namespace: &Arc<Namespace>) -> Result<(), DaemonError> {
        self.launch(spawner, namespace)?;
        self.answers().await
    }

    /// The first half of [`Tailscaled::start`]: the process is there, its socket may not be.
    ///
    /// # Errors
    /// [`DaemonError::Spawn`], [`DaemonError::File`].
    pub fn launch(&mut self, spawner: &Spawner, namespace: &Arc<Namespace>) -> Result<(), DaemonError> {
        if self.is_alive() {
            return Ok(());
        }
        let file = |path: PathBuf| move |source| DaemonError::File { path, source };
        std::fs::create_dir_all(self.state_dir()).map_err(file(self.state_dir()))?;
        let log = sallyport_gate::spawn::log_file(&self.log()).map_err(file(self.log()))?;
        let errors = log.try_clone().map_err(file(self.log()))?;
        let mut command = Command::new(&self.program);
        let with = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        command
            .args([with("statedir", self.state_dir()), with("socket", self.socket())])
            .args([format!("--port={WIREGUARD_PORT}").as_str(), "--tun=tailscale0", "--no-logs-no-support"])
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("HOME", &self.dir)
            .env("TS_LOGS_DIR", self.state_dir())
            // DERP over plain http; no router to ask for ports; never the hosted control server.
            .env("TS_DEBUG_USE_DERP_HTTP", "true")
            .env("TS_DISABLE_PORTMAPPER", "true")
            .env("TS_DISABLE_UPNP", "true")
            .env("TS_DEBUG_FIREWALL_MODE", "nftables")
            .env("TS_PANIC_IF_HIT_MAIN_CONTROL", "true")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors);
        self.process = Some(spawner.spawn(command, namespace)?);
        Ok(())
    }

    /// The second half of [`Tailscaled::start`]: waits until the socket answers.
    ///
    /// # Errors
    /// [`DaemonError::Ended`], [`DaemonError::Silent`].
    pub async fn answers(&self) -> Result<(), DaemonError> {
        let client = self.client();
        let answered = async {
            loop {
                if client.status(sallyport_tailnet::Peers::Omit).await.is_ok() {
                    return Ok(());
                }
                if let Some(status) = self.process.as_ref().and_then(Process::status) {
                    return Err(DaemonError::Ended { host: self.host.clone(), status, log: self.log() });
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let silent =
            || DaemonError::Silent { host: self.host.clone(), deadline: START_DEADLINE, log: self.log() };
        tokio::time::timeout(START_DEADLINE, answered).await.unwrap_or_else(|_| Err(silent()))
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// [`DaemonError::Signal`].
    pub fn signal(&self, signal: Signal) -> Result<(), DaemonError> {
        let sent = self.process.as_ref().map_or(Ok(()), |process| process.signal(signal));
        sent.map_err(|source| DaemonError::Signal { host: self.host.clone(), signal, source })
    }

    /// Ends it by a signal and waits until it is gone.
    ///
    /// # Errors
    /// [`DaemonError::Lingers`].
    pub async fn end(&self, signal: Signal) -> Result<(), DaemonError> {
        let Some(process) = &self.process else {
            return Ok(());
        };
        self.signal(signal)?;
        let lingers = |_| DaemonError::Lingers { host: self.host.clone(), signal, deadline: STOP_DEADLINE };
        tokio::time::timeout(STOP_DEADLINE, process.wait()).await.map(drop).map_err(lingers)
    }

    /// Forgets everything it kept. It must not run.
    ///
    /// # Errors
    /// [`DaemonError::File`].
    pub fn wipe(&self) -> Result<(), DaemonError> {
        match std::fs::remove_dir_all(self.state_dir()) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(DaemonError::File { path: self.state_dir(), source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
