//! A real `headscale`: its configuration (as tried by hand, see docs/lab.md) and its command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ipnet::IpNet;
use nix::sys::signal::Signal;
use sallyport_gate::Process;
use secrecy::SecretString;
use serde::Deserialize;

use super::{AuthKey, ControlError, KeyOrder, Node, PORT, STUN_PORT, Setup, Uses};

#[derive(Debug)]
pub(super) struct Headscale {
    program: PathBuf,
    config: PathBuf,
    policy: PathBuf,
    socket: PathBuf,
}

impl Headscale {
    pub(super) fn prepare(setup: &Setup) -> Result<Self, ControlError> {
        let at = |name: &str| setup.dir.join(name);
        let this = Self {
            program: setup.program.clone(),
            config: at("headscale.yaml"),
            policy: at("policy.hujson"),
            socket: at("headscale.sock"),
        };
        for (path, text) in [(&this.policy, setup.policy.clone()), (&this.config, configuration(setup))] {
            std::fs::write(path, text).map_err(|source| ControlError::File { path: path.clone(), source })?;
        }
        Ok(this)
    }

    pub(super) fn command(&self, setup: &Setup) -> Command {
        // Left behind by a killed server; a new one cannot bind over it.
        let _ = std::fs::remove_file(&self.socket);
        let mut command = Command::new(&setup.program);
        command.arg("--config").arg(&self.config).arg("serve");
        command
    }

    pub(super) async fn is_healthy(&self) -> bool {
        self.socket.exists() && self.run("list its nodes", &["nodes", "list"]).await.is_ok()
    }

    pub(super) async fn mint(&self, order: &KeyOrder) -> Result<AuthKey, ControlError> {
        let (tags, expiry) = (order.tags.join(","), format!("{}s", order.lifetime_seconds));
        let mut arguments = vec!["preauthkeys", "create", "--expiration", &expiry];
        if !tags.is_empty() {
            arguments.extend(["--tags", &tags]);
        }
        if order.uses == Uses::Many {
            arguments.push("--reusable");
        }
        let minted: MintedKey = self.query("make an auth key", &arguments).await?;
        Ok(AuthKey { id: minted.id.to_string(), secret: SecretString::from(minted.key) })
    }

    pub(super) async fn revoke(&self, id: &str) -> Result<(), ControlError> {
        self.run("withdraw an auth key", &["preauthkeys", "expire", "--id", id]).await.map(drop)
    }

    pub(super) async fn nodes(&self) -> Result<Vec<Node>, ControlError> {
        let nodes: Option<Vec<ListedNode>> = self.query("list its nodes", &["nodes", "list"]).await?;
        Ok(nodes.unwrap_or_default().into_iter().map(Into::into).collect())
    }

    pub(super) async fn approve(&self, node: &str, routes: &str) -> Result<(), ControlError> {
        let id = self.id_of(node).await?;
        let arguments = ["nodes", "approve-routes", "--identifier", &id, "--routes", routes];
        self.run(&format!("change the approved routes of node {node}"), &arguments).await.map(drop)
    }

    pub(super) async fn expire(&self, node: &str) -> Result<(), ControlError> {
        let id = self.id_of(node).await?;
        self.run(&format!("expire node {node}"), &["nodes", "expire", "--identifier", &id]).await.map(drop)
    }

    pub(super) async fn delete(&self, node: &str) -> Result<(), ControlError> {
        let id = self.id_of(node).await?;
        let arguments = ["nodes", "delete", "--identifier", &id, "--force"];
        self.run(&format!("delete node {node}"), &arguments).await.map(drop)
    }

    pub(super) fn policy(&self) -> Result<String, ControlError> {
        std::fs::read_to_string(&self.policy)
            .map_err(|source| ControlError::File { path: self.policy.clone(), source })
    }

    /// Writes the policy file and has the server read it (SIGHUP). A wrong one is reported in its log only.
    pub(super) fn set_policy(&self, policy: &str, process: Option<&Process>) -> Result<(), ControlError> {
        std::fs::write(&self.policy, policy)
            .map_err(|source| ControlError::File { path: self.policy.clone(), source })?;
        let request = |source: std::io::Error| ControlError::Request {
            action: "read its policy again".into(),
            source: source.into(),
        };
        process.map_or(Ok(()), |process| process.signal(Signal::SIGHUP)).map_err(request)
    }

    /// The numeric id of a node, which all of headscale's commands want; names and ids are taken.
    async fn id_of(&self, node: &str) -> Result<String, ControlError> {
        let nodes = self.nodes().await?;
        let found = nodes.into_iter().find(|known| known.name == node || known.id == node);
        found.map(|node| node.id).ok_or_else(|| ControlError::Refused {
            action: format!("find node {node}"),
            message: "no such node".into(),
        })
    }

    async fn query<T: serde::de::DeserializeOwned>(
        &self,
        action: &str,
        arguments: &[&str],
    ) -> Result<T, ControlError> {
        let answer = self.run(action, arguments).await?;
        serde_json::from_slice(&answer)
            .map_err(|error| ControlError::Request { action: action.into(), source: error.into() })
    }

    async fn run(&self, action: &str, arguments: &[&str]) -> Result<Vec<u8>, ControlError> {
        let mut command = Command::new(&self.program);
        command
            .arg("--config")
            .arg(&self.config)
            .args(arguments)
            .args(["--output", "json"])
            .stdin(Stdio::null());
        let ran = tokio::task::spawn_blocking(move || command.output()).await;
        let request = |source: Box<dyn std::error::Error + Send + Sync>| ControlError::Request {
            action: action.into(),
            source,
        };
        let output = ran.map_err(|error| request(error.into()))?.map_err(|error| request(error.into()))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let message =
            String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
        Err(ControlError::Refused { action: action.into(), message: message.trim().into() })
    }
}

/// A number that newer releases write as a string (proto3's JSON), older ones as a number.
fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Number(u64),
        Text(String),
    }
    match Number::deserialize(deserializer)? {
        Number::Number(number) => Ok(number),
        Number::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[derive(Deserialize)]
struct MintedKey {
    #[serde(deserialize_with = "number")]
    id: u64,
    key: String,
}

/// The part of `nodes list -o json` that is used (headscale's `v1.Node`); proto names in older releases, JSON names in
/// newer ones.
#[derive(Deserialize)]
struct ListedNode {
    #[serde(deserialize_with = "number")]
    id: u64,
    #[serde(default, alias = "givenName")]
    given_name: String,
    #[serde(default, alias = "ipAddresses")]
    ip_addresses: Vec<IpAddr>,
    #[serde(default)]
    online: bool,
    #[serde(default)]
    expiry: Option<Expiry>,
    #[serde(default, alias = "forced_tags", alias = "valid_tags")]
    tags: Vec<String>,
    #[serde(default, alias = "availableRoutes")]
    available_routes: Vec<IpNet>,
    #[serde(default, alias = "approvedRoutes")]
    approved_routes: Vec<IpNet>,
}

/// When a key expires: seconds since 1970 in older releases, RFC 3339 in newer ones.
#[derive(Deserialize)]
#[serde(untagged)]
enum Expiry {
    Text(jiff::Timestamp),
    Seconds {
        #[serde(default)]
        seconds: i64,
    },
}

impl Expiry {
    /// Whether it is over. The zero time, of 1970 or of the year 1, means never.
    fn is_over(&self) -> bool {
        let seconds = match self {
            Self::Text(at) => at.as_second(),
            Self::Seconds { seconds } => *seconds,
        };
        seconds > 0 && seconds <= jiff::Timestamp::now().as_second()
    }
}

impl From<ListedNode> for Node {
    fn from(node: ListedNode) -> Self {
        Self {
            id: node.id.to_string(),
            name: node.given_name,
            addresses: node.ip_addresses,
            tags: node.tags,
            online: node.online,
            expired: node.expiry.as_ref().is_some_and(Expiry::is_over),
            advertised_routes: node.available_routes,
            approved_routes: node.approved_routes,
        }
    }
}

fn configuration(setup: &Setup) -> String {
    let Setup { address, domain, dir, .. } = setup;
    let dir = dir.display();
    format!(
        "server_url: http://{address}:{PORT}
listen_addr: {address}:{PORT}
grpc_listen_addr: 127.0.0.1:50443
grpc_allow_insecure: true
metrics_listen_addr: 127.0.0.1:9090
unix_socket: {dir}/headscale.sock
unix_socket_permission: \"0700\"
noise:
  private_key_path: {dir}/noise.key
prefixes:
  v4: 100.64.0.0/10
  v6: fd7a:115c:a1e0::/48
  allocation: sequential
derp:
  server:
    enabled: true
    region_id: 999
    region_code: lab
    region_name: lab
    stun_listen_addr: {address}:{STUN_PORT}
    private_key_path: {dir}/derp.key
    automatically_add_embedded_derp_region: true
    verify_clients: false
    ipv4: {address}
  urls: []
  paths: []
  auto_update_enabled: false
disable_check_updates: true
database:
  type: sqlite
  sqlite:
    path: {dir}/headscale.sqlite
policy:
  mode: file
  path: {dir}/policy.hujson
dns:
  magic_dns: true
  base_domain: {domain}
  override_local_dns: false
  nameservers:
    global: []
logtail:
  enabled: false
"
    )
}
