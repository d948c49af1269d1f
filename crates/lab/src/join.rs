//! A node's way into the tailnet, by tailscaled's LocalAPI alone.

use std::time::Duration;

use ipnet::IpNet;
use sallyport_tailnet::{BackendState, Client, MaskedPrefs, Peers, Prefs, StableId, StartOptions, Status};
use secrecy::SecretString;

/// How long a login may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a node is to be in the tailnet.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The control server.
    pub login_server: String,
    /// Its name.
    pub hostname: String,
    /// The routes that it offers: both defaults for an exit.
    pub routes: Vec<IpNet>,
    /// The exit node that it uses.
    pub exit_node: Option<StableId>,
}

/// A node that did not get in.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// tailscaled could not be asked, or refused.
    #[error("tailscaled of {host} refused to {action}")]
    LocalApi {
        /// The host.
        host: String,
        /// What was asked.
        action: &'static str,
        /// Its answer.
        source: sallyport_tailnet::Error,
    },
    /// It did not get where it should in time.
    #[error(
        "{host} did not join within {} s: it is {state}{}",
        deadline.as_secs(),
        if health.is_empty() { String::new() } else { format!(" ({})", health.join("; ")) }
    )]
    Slow {
        /// The host.
        host: String,
        /// How long was waited.
        deadline: Duration,
        /// Where it got to.
        state: BackendState,
        /// What it finds wrong.
        health: Vec<String>,
    },
}

fn local_api(host: &str, action: &'static str) -> impl FnOnce(sallyport_tailnet::Error) -> JoinError {
    let host = host.to_string();
    move |source| JoinError::LocalApi { host, action, source }
}

/// Logs a node in with an auth key and waits until it runs.
///
/// # Errors
/// [`JoinError`].
pub async fn join(client: &Client, identity: &Identity, key: &SecretString) -> Result<(), JoinError> {
    let host = &identity.hostname;
    let prefs = Prefs {
        control_url: identity.login_server.clone(),
        hostname: identity.hostname.clone(),
        advertise_routes: identity.routes.clone(),
        exit_node_id: identity.exit_node.clone().unwrap_or_default(),
        want_running: true,
        // The lab's own resolver stays.
        accept_dns: false,
        ..Prefs::fresh()
    };
    let options = StartOptions { update_prefs: Some(prefs), auth_key: Some(key.clone()) };
    client.start(&options).await.map_err(local_api(host, "start"))?;
    let status = client.status(Peers::Omit).await.map_err(local_api(host, "tell its status"))?;
    if !status.have_node_key || status.backend_state == BackendState::NeedsLogin {
        client.login_interactive().await.map_err(local_api(host, "log in"))?;
    }
    until(client, host, |status| status.backend_state == BackendState::Running).await.map(drop)
}

/// Waits until a node runs that has a key already.
///
/// # Errors
/// [`JoinError`].
pub async fn running(client: &Client, host: &str) -> Result<(), JoinError> {
    until(client, host, |status| status.backend_state == BackendState::Running).await.map(drop)
}

/// Waits for a condition of a node's own status.
async fn until(client: &Client, host: &str, reached: impl Fn(&Status) -> bool) -> Result<Status, JoinError> {
    let mut last = Status::default();
    let polling = async {
        loop {
            // One that is just starting again does not answer; the deadline bounds that.
            if let Ok(status) = client.status(Peers::Omit).await {
                if reached(&status) {
                    return status;
                }
                last = status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    match tokio::time::timeout(DEADLINE, polling).await {
        Ok(status) => Ok(status),
        Err(_) => Err(JoinError::Slow {
            host: host.into(),
            deadline: DEADLINE,
            state: last.backend_state,
            health: last.health,
        }),
    }
}

/// Logs a node out.
///
/// # Errors
/// [`JoinError::LocalApi`].
pub async fn log_out(client: &Client, host: &str) -> Result<(), JoinError> {
    client.logout().await.map_err(local_api(host, "log out"))
}

/// Changes preferences.
///
/// # Errors
/// [`JoinError::LocalApi`].
pub async fn set(client: &Client, host: &str, prefs: &MaskedPrefs) -> Result<(), JoinError> {
    client.patch_prefs(prefs).await.map(drop).map_err(local_api(host, "change its preferences"))
}

/// Reads preferences.
///
/// # Errors
/// [`JoinError::LocalApi`].
pub async fn prefs(client: &Client, host: &str) -> Result<Prefs, JoinError> {
    client.prefs().await.map_err(local_api(host, "tell its preferences"))
}
