//! The control server of a lab: the lab's own `labctl`, or a real `headscale`. What one of them cannot do is refused,
//! not imitated.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use sallyport_gate::{Namespace, Process, Spawner};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::registry::record::ControlKind;

mod headscale;
mod own;
pub mod policy;

pub use own::Settings;

/// The port of the control server and of DERP, over plain http.
pub const PORT: u16 = 8080;
/// The port of STUN.
pub const STUN_PORT: u16 = 3478;

/// What a new auth key is to be good for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOrder {
    /// Tags that a node gets by it.
    pub tags: Vec<String>,
    /// How often.
    pub uses: Uses,
    /// For how long, in seconds from now.
    pub lifetime_seconds: u64,
}

/// How often an auth key may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uses {
    /// For one login.
    Single,
    /// Until it expires.
    Many,
}

/// An auth key and the control server's name for it.
#[derive(Debug, Clone)]
pub struct AuthKey {
    /// For revoking it.
    pub id: String,
    /// The key itself.
    pub secret: SecretString,
}

/// A node as the control server sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its stable id.
    pub id: String,
    /// Its name in the tailnet, without the domain.
    pub name: String,
    /// Its addresses in the tailnet.
    pub addresses: Vec<IpAddr>,
    /// The tags in force.
    pub tags: Vec<String>,
    /// What the server tells others.
    pub online: bool,
    /// Whether its key is expired.
    pub expired: bool,
    /// What it offers.
    pub advertised_routes: Vec<IpNet>,
    /// What of it is approved.
    pub approved_routes: Vec<IpNet>,
}

impl Node {
    /// Whether it is an approved exit node, for both families.
    #[must_use]
    pub fn is_exit(&self) -> bool {
        let all = |v6: bool| {
            let mut routes = self.approved_routes.iter();
            routes.any(|route| route.prefix_len() == 0 && matches!(route, IpNet::V6(_)) == v6)
        };
        all(false) && all(true)
    }
}

/// What went wrong with the control server.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It could not be started.
    #[error("cannot start the control server")]
    Start(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It ended before it answered.
    #[error("the control server ended at once ({status}); its log ends: {log}")]
    Ended {
        /// How.
        status: std::process::ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// It did not answer in time.
    #[error("the control server did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// A file of its could not be written.
    #[error("cannot write {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It could not be asked.
    #[error("cannot ask the control server to {action}")]
    Request {
        /// For what.
        action: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It said no.
    #[error("the control server would not {action}: {message}")]
    Refused {
        /// What was asked.
        action: String,
        /// Its words.
        message: String,
    },
    /// This server has no such ability.
    #[error("headscale cannot {0}")]
    Cannot(&'static str),
}

/// What a control server is started with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The program.
    pub program: PathBuf,
    /// Its folder, made by the caller.
    pub dir: PathBuf,
    /// The address that it serves on.
    pub address: std::net::Ipv4Addr,
    /// Where it answers STUN and DERP over IPv6, if anywhere.
    pub address6: Option<std::net::Ipv6Addr>,
    /// The tailnet's MagicDNS domain.
    pub domain: String,
    /// The first policy, HuJSON.
    pub policy: String,
    /// Variables for its environment.
    pub environment: Vec<(String, String)>,
}

/// A control server, running or not.
#[derive(Debug)]
pub struct Control {
    server: Server,
    setup: Setup,
    process: Option<Process>,
}

#[derive(Debug)]
enum Server {
    Own(own::Own),
    Headscale(headscale::Headscale),
}

/// How long a control server may take to answer for the first time.
const START_DEADLINE: Duration = Duration::from_secs(20);

impl Control {
    /// Writes the files of a control server; it does not run yet.
    ///
    /// # Errors
    /// [`ControlError::File`].
    pub fn prepare(kind: ControlKind, setup: Setup) -> Result<Self, ControlError> {
        let server = match kind {
            ControlKind::Own => Server::Own(own::Own::prepare(&setup)?),
            ControlKind::Headscale => Server::Headscale(headscale::Headscale::prepare(&setup)?),
        };
        Ok(Self { server, setup, process: None })
    }

    /// Which program it is.
    #[must_use]
    pub fn kind(&self) -> ControlKind {
        match self.server {
            Server::Own(_) => ControlKind::Own,
            Server::Headscale(_) => ControlKind::Headscale,
        }
    }

    /// What a node is to log in to.
    #[must_use]
    pub fn login_server(&self) -> String {
        format!("http://{}:{PORT}", self.setup.address)
    }

    /// Its process; `None` before it was started first.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// The log of its output.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.setup.dir.join("log")
    }

    /// Starts it in `namespace` and waits until it answers. What it knew before is kept.
    ///
    /// # Errors
    /// [`ControlError::Start`], [`ControlError::Ended`], [`ControlError::Silent`].
    pub async fn start(&mut self, spawner: &Spawner, namespace: &Arc<Namespace>) -> Result<(), ControlError> {
        let mut command = match &self.server {
            Server::Own(own) => own.command(&self.setup),
            Server::Headscale(headscale) => headscale.command(&self.setup),
        };
        let log = sallyport_gate::spawn::log_file(&self.log())
            .map_err(|source| ControlError::File { path: self.log(), source })?;
        let errors = log.try_clone().map_err(|source| ControlError::File { path: self.log(), source })?;
        command.stdin(std::process::Stdio::null()).stdout(log).stderr(errors);
        command.envs(self.setup.environment.iter().map(|(name, value)| (name, value)));
        let process = spawner.spawn(command, namespace).map_err(|error| ControlError::Start(error.into()))?;
        self.process = Some(process.clone());
        let answers = async {
            loop {
                if self.is_healthy().await {
                    return Ok(());
                }
                if let Some(status) = process.status() {
                    return Err(ControlError::Ended { status, log: tail(&self.log()) });
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(START_DEADLINE, answers)
            .await
            .unwrap_or(Err(ControlError::Silent(START_DEADLINE)))
    }

    /// Kills it and waits for its end.
    pub async fn kill(&mut self) {
        if let Some(process) = &self.process {
            // It is ours, so the only failure is that it has ended.
            let _ = process.signal(nix::sys::signal::Signal::SIGKILL);
            process.wait().await;
        }
    }

    /// Whether it answers.
    pub async fn is_healthy(&self) -> bool {
        match &self.server {
            Server::Own(own) => own.is_healthy().await,
            Server::Headscale(headscale) => headscale.is_healthy().await,
        }
    }

    /// Makes an auth key.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn mint(&self, order: &KeyOrder) -> Result<AuthKey, ControlError> {
        match &self.server {
            Server::Own(own) => own.mint(order).await,
            Server::Headscale(headscale) => headscale.mint(order).await,
        }
    }

    /// Withdraws an auth key.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn revoke(&self, id: &str) -> Result<(), ControlError> {
        match &self.server {
            Server::Own(own) => own.revoke(id).await,
            Server::Headscale(headscale) => headscale.revoke(id).await,
        }
    }

    /// All nodes.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn nodes(&self) -> Result<Vec<Node>, ControlError> {
        match &self.server {
            Server::Own(own) => own.nodes().await,
            Server::Headscale(headscale) => headscale.nodes().await,
        }
    }

    /// Approves the exit routes that a node offers.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn approve(&self, node: &str) -> Result<(), ControlError> {
        match &self.server {
            Server::Own(own) => own.act(node, "approve").await,
            Server::Headscale(headscale) => headscale.approve(node, "0.0.0.0/0,::/0").await,
        }
    }

    /// Withdraws the approval of a node's routes.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn unapprove(&self, node: &str) -> Result<(), ControlError> {
        match &self.server {
            Server::Own(own) => own.act(node, "unapprove").await,
            Server::Headscale(headscale) => headscale.approve(node, "").await,
        }
    }

    /// Expires a node's key.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn expire(&self, node: &str) -> Result<(), ControlError> {
        match &self.server {
            Server::Own(own) => own.act(node, "expire").await,
            Server::Headscale(headscale) => headscale.expire(node).await,
        }
    }

    /// Makes a node's expired key good again.
    ///
    /// # Errors
    /// [`ControlError::Cannot`] with headscale.
    pub async fn renew(&self, node: &str) -> Result<(), ControlError> {
        match &self.server {
            Server::Own(own) => own.act(node, "renew").await,
            Server::Headscale(_) => Err(ControlError::Cannot("renew an expired node key")),
        }
    }

    /// Removes a node from the tailnet.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn delete(&self, node: &str) -> Result<(), ControlError> {
        match &self.server {
            Server::Own(own) => own.delete(node).await,
            Server::Headscale(headscale) => headscale.delete(node).await,
        }
    }

    /// The policy in force, HuJSON.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn policy(&self) -> Result<String, ControlError> {
        match &self.server {
            Server::Own(own) => own.policy().await,
            Server::Headscale(headscale) => headscale.policy(),
        }
    }

    /// Puts another policy in force.
    ///
    /// # Errors
    /// [`ControlError::Refused`] where the policy is wrong; the old one stays.
    pub async fn set_policy(&self, policy: &str) -> Result<(), ControlError> {
        match (&self.server, &self.process) {
            (Server::Own(own), _) => own.set_policy(policy).await,
            (Server::Headscale(headscale), process) => headscale.set_policy(policy, process.as_ref()),
        }
    }

    /// How the server is set to misbehave.
    ///
    /// # Errors
    /// [`ControlError::Cannot`] with headscale.
    pub async fn settings(&self) -> Result<Settings, ControlError> {
        match &self.server {
            Server::Own(own) => own.settings().await,
            Server::Headscale(_) => Err(ControlError::Cannot("be told to misbehave")),
        }
    }

    /// Sets how the server misbehaves.
    ///
    /// # Errors
    /// [`ControlError::Cannot`] with headscale.
    pub async fn set_settings(&self, settings: &Settings) -> Result<(), ControlError> {
        match &self.server {
            Server::Own(own) => own.set_settings(settings).await,
            Server::Headscale(_) => Err(ControlError::Cannot("be told to misbehave")),
        }
    }
}

/// The last lines of a log, for an error message.
fn tail(log: &std::path::Path) -> String {
    let text =
        std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
