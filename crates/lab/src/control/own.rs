//! `labctl`, the lab's own control server (`lab/control/`): its start line and its admin interface.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use hyper::{Method, StatusCode};
use ipnet::IpNet;
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{AuthKey, ControlError, KeyOrder, Node, PORT, STUN_PORT, Setup, Uses};
use crate::unix_http;

/// How long an admin request may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// How the server behaves beside its duty. The words are labctl's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// How long news is held back from peers, in milliseconds.
    pub batch_ms: u64,
    /// How long a node that is gone is still called online, in milliseconds.
    pub offline_grace_ms: u64,
    /// Refuse every auth key with this text.
    pub refuse_keys: Option<String>,
    /// How long every answer to a node is delayed, in milliseconds.
    pub slow_ms: u64,
    /// Whether exit routes are approved as soon as they are offered.
    pub auto_approve_exit: bool,
    /// What is told of a node's being online, whatever is true.
    pub online_override: BTreeMap<String, Option<bool>>,
}

#[derive(Debug)]
pub(super) struct Own {
    admin: PathBuf,
    policy: PathBuf,
}

#[derive(Serialize)]
struct NewKey<'a> {
    tags: &'a [String],
    reusable: bool,
    ephemeral: bool,
    expiry_seconds: u64,
}

#[derive(Deserialize)]
struct MintedKey {
    id: String,
    key: String,
}

#[derive(Deserialize)]
struct AdminNode {
    id: String,
    name: String,
    #[serde(default)]
    addresses: Option<Vec<IpAddr>>,
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    online: Option<bool>,
    #[serde(default)]
    expired: bool,
    #[serde(default)]
    advertised_routes: Option<Vec<IpNet>>,
    #[serde(default)]
    approved_routes: Option<Vec<IpNet>>,
}

#[derive(Deserialize)]
struct Message {
    message: String,
}

impl Own {
    pub(super) fn prepare(setup: &Setup) -> Result<Self, ControlError> {
        let policy = setup.dir.join("policy.hujson");
        std::fs::write(&policy, &setup.policy)
            .map_err(|source| ControlError::File { path: policy.clone(), source })?;
        Ok(Self { admin: setup.dir.join("admin.sock"), policy })
    }

    pub(super) fn command(&self, setup: &Setup) -> Command {
        // Left behind by a killed server; a new one cannot bind over it.
        let _ = std::fs::remove_file(&self.admin);
        let mut command = Command::new(&setup.program);
        command.arg("serve");
        command.args(["--listen", &format!("{}:{PORT}", setup.address)]);
        command.args(["--derp-ip", &setup.address.to_string(), "--stun-port", &STUN_PORT.to_string()]);
        if let Some(address6) = setup.address6 {
            command.args(["--derp-ip6", &address6.to_string()]);
        }
        command.args(["--domain", &setup.domain]);
        command.arg("--state").arg(setup.dir.join("state.json"));
        command.arg("--policy").arg(&self.policy);
        command.arg("--admin").arg(&self.admin);
        command
    }

    pub(super) async fn is_healthy(&self) -> bool {
        let asked = unix_http::request(&self.admin, Method::GET, "/health", Vec::new(), DEADLINE).await;
        asked.is_ok_and(|(status, _)| status.is_success())
    }

    pub(super) async fn mint(&self, order: &KeyOrder) -> Result<AuthKey, ControlError> {
        let body = NewKey {
            tags: &order.tags,
            reusable: order.uses == Uses::Many,
            ephemeral: false,
            expiry_seconds: order.lifetime_seconds,
        };
        let minted: MintedKey = self.exchange("make an auth key", Method::POST, "/keys", json(&body)).await?;
        Ok(AuthKey { id: minted.id, secret: SecretString::from(minted.key) })
    }

    pub(super) async fn revoke(&self, id: &str) -> Result<(), ControlError> {
        self.ask("withdraw an auth key", Method::DELETE, &format!("/keys/{id}"), Vec::new()).await.map(drop)
    }

    pub(super) async fn nodes(&self) -> Result<Vec<Node>, ControlError> {
        let nodes: Vec<AdminNode> =
            self.exchange("list its nodes", Method::GET, "/nodes", Vec::new()).await?;
        let nodes = nodes.into_iter().map(|node| Node {
            id: node.id,
            name: node.name,
            addresses: node.addresses.unwrap_or_default(),
            tags: node.tags.unwrap_or_default(),
            online: node.online.unwrap_or_default(),
            expired: node.expired,
            advertised_routes: node.advertised_routes.unwrap_or_default(),
            approved_routes: node.approved_routes.unwrap_or_default(),
        });
        Ok(nodes.collect())
    }

    pub(super) async fn act(&self, node: &str, action: &str) -> Result<(), ControlError> {
        let path = format!("/nodes/{node}/{action}");
        self.ask(&format!("{action} node {node}"), Method::POST, &path, Vec::new()).await.map(drop)
    }

    pub(super) async fn delete(&self, node: &str) -> Result<(), ControlError> {
        let path = format!("/nodes/{node}");
        self.ask(&format!("delete node {node}"), Method::DELETE, &path, Vec::new()).await.map(drop)
    }

    pub(super) async fn policy(&self) -> Result<String, ControlError> {
        let text = self.ask("show its policy", Method::GET, "/policy", Vec::new()).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    pub(super) async fn set_policy(&self, policy: &str) -> Result<(), ControlError> {
        self.ask("take another policy", Method::PUT, "/policy", policy.into()).await.map(drop)
    }

    pub(super) async fn settings(&self) -> Result<Settings, ControlError> {
        self.exchange("show its settings", Method::GET, "/settings", Vec::new()).await
    }

    pub(super) async fn set_settings(&self, settings: &Settings) -> Result<(), ControlError> {
        self.ask("take other settings", Method::PUT, "/settings", json(settings)).await.map(drop)
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        action: &str,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, ControlError> {
        let answer = self.ask(action, method, path, body).await?;
        serde_json::from_slice(&answer)
            .map_err(|error| ControlError::Request { action: action.into(), source: error.into() })
    }

    async fn ask(
        &self,
        action: &str,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<bytes::Bytes, ControlError> {
        let (status, answer) = unix_http::request(&self.admin, method, path, body, DEADLINE)
            .await
            .map_err(|error| ControlError::Request { action: action.into(), source: error.into() })?;
        if status.is_success() {
            return Ok(answer);
        }
        let message = match serde_json::from_slice::<Message>(&answer) {
            Ok(Message { message }) => message,
            Err(_) if status == StatusCode::NOT_FOUND => "no such thing".into(),
            Err(_) => status.to_string(),
        };
        Err(ControlError::Refused { action: action.into(), message })
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("a plain struct with string keys")
}
