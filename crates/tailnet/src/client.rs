//! The LocalAPI, call by call (tailscale `ipn/localapi/localapi.go`). Every call has a deadline.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::wire::misc::{DerpMap, IpForwarding, SoMark, Suggestion, WhoIs};
use crate::{Error, Mask, MaskedPrefs, PingKind, PingResult, Prefs, Status, Watch, http};

/// How long a call may take where nothing else is said.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Whether a status lists the peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peers {
    /// All of them.
    Include,
    /// None: cheaper on a large tailnet.
    Omit,
}

/// Whether `server-status` holds its answer until the backend is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Answer at once.
    No,
    /// Answer when ready.
    UntilReady,
}

/// What `start` is given (tailscale `ipn/backend.go:Options`).
#[derive(Debug, Default)]
pub struct StartOptions {
    /// All preferences, replaced as a whole: an exit node that is left out is cleared, and its routes with it.
    pub update_prefs: Option<Prefs>,
    /// Key for a node that has to log in. A bad one is told by the bus, not by this call.
    pub auth_key: Option<SecretString>,
}

/// A tailscaled, by its socket.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    deadline: Duration,
}

impl Client {
    /// The daemon behind `socket`. Nothing is opened yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), deadline: DEADLINE }
    }

    /// The same daemon with another deadline for every call but [`Client::ping`], which has its own.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks whether the backend is there (`/server-status`); builds without debug features answer 404.
    ///
    /// # Errors
    /// [`Error::Refused`] with 503 while it is not; else as every call.
    pub async fn server_status(&self, wait: Wait) -> Result<(), Error> {
        let path = match wait {
            Wait::No => "/server-status",
            Wait::UntilReady => "/server-status?wait=true",
        };
        http::call(&self.socket, Method::GET, path, Bytes::new(), self.deadline).await.map(drop)
    }

    /// Reads the daemon's, this node's and the peers' state.
    ///
    /// # Errors
    /// As every call.
    pub async fn status(&self, peers: Peers) -> Result<Status, Error> {
        self.read(match peers {
            Peers::Include => "status",
            Peers::Omit => "status?peers=false",
        })
        .await
    }

    /// Reads the preferences.
    ///
    /// # Errors
    /// As every call.
    pub async fn prefs(&self) -> Result<Prefs, Error> {
        self.read("prefs").await
    }

    /// Changes the preferences that `change` names, and returns them all as they are then.
    ///
    /// # Errors
    /// [`Error::Refused`] with the daemon's reason; nothing is changed then.
    pub async fn patch_prefs(&self, change: &MaskedPrefs) -> Result<Prefs, Error> {
        self.write(Method::PATCH, "prefs", change).await
    }

    /// Asks whether a whole set of preferences would be taken.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 200 if it would not: this call refuses in its body alone.
    pub async fn check_prefs(&self, prefs: &Prefs) -> Result<(), Error> {
        #[derive(Deserialize)]
        struct Checked {
            #[serde(rename = "Error", default)]
            error: String,
        }
        let checked: Checked = self.write(Method::POST, "check-prefs", prefs).await?;
        if checked.error.is_empty() {
            Ok(())
        } else {
            Err(Error::Refused { status: 200, message: checked.error })
        }
    }

    /// Starts the backend anew, with other preferences or a key. Exit routes stay in place meanwhile, as long as
    /// `update_prefs` carries the exit node over.
    ///
    /// # Errors
    /// As every call. A key that control rejects is told by the bus ([`crate::Notify::error_message`]).
    pub async fn start(&self, options: &StartOptions) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Options<'a> {
            #[serde(rename = "FrontendLogID")]
            frontend_log_id: &'a str,
            #[serde(rename = "UpdatePrefs", skip_serializing_if = "Option::is_none")]
            update_prefs: Option<&'a Prefs>,
            #[serde(rename = "AuthKey", skip_serializing_if = "Option::is_none")]
            auth_key: Option<&'a str>,
        }
        let options = Options {
            frontend_log_id: "",
            update_prefs: options.update_prefs.as_ref(),
            auth_key: options.auth_key.as_ref().map(SecretString::expose_secret),
        };
        let body = Wiped(serde_json::to_vec(&options)?);
        self.call(Method::POST, "start", Bytes::from_owner(body)).await.map(drop)
    }

    /// Logs in: with the key of the last [`Client::start`], or by a browser.
    ///
    /// # Errors
    /// As every call.
    pub async fn login_interactive(&self) -> Result<(), Error> {
        self.call(Method::POST, "login-interactive", Bytes::new()).await.map(drop)
    }

    /// Logs out. The routes to the exit node go with it: traffic leaves by the normal route.
    ///
    /// # Errors
    /// As every call.
    pub async fn logout(&self) -> Result<(), Error> {
        self.call(Method::POST, "logout", Bytes::new()).await.map(drop)
    }

    /// Pings `address`. A node that does not answer is [`Error::Timeout`] or a result that says why; the daemon itself
    /// never gives up on a disco or TSMP ping.
    ///
    /// # Errors
    /// As every call.
    pub async fn ping(
        &self,
        address: IpAddr,
        kind: PingKind,
        deadline: Duration,
    ) -> Result<PingResult, Error> {
        let path = format!("/localapi/v0/ping?ip={address}&type={kind}");
        let body = http::call(&self.socket, Method::POST, &path, Bytes::new(), deadline).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Asks which exit node the daemon would suggest; an empty id is none.
    ///
    /// # Errors
    /// [`Error::Refused`] before there is a preferred relay.
    pub async fn suggest_exit_node(&self) -> Result<Suggestion, Error> {
        self.read("suggest-exit-node").await
    }

    /// Asks who is behind an address, an `address:port` or a `nodekey:…`.
    ///
    /// # Errors
    /// [`Error::Refused`] with 404 for nobody.
    pub async fn whois(&self, who: &str) -> Result<WhoIs, Error> {
        let escaped: String = who
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b':' | b'-' => char::from(byte).to_string(),
                other => format!("%{other:02X}"),
            })
            .collect();
        self.read(&format!("whois?addr={escaped}")).await
    }

    /// Reads the relays that control named.
    ///
    /// # Errors
    /// As every call.
    pub async fn derp_map(&self) -> Result<DerpMap, Error> {
        self.read("derpmap").await
    }

    /// Asks whether the daemon marks its own packets. True in userspace mode too.
    ///
    /// # Errors
    /// As every call.
    pub async fn check_so_mark_in_use(&self) -> Result<SoMark, Error> {
        self.read("check-so-mark-in-use").await
    }

    /// Asks whether the machine forwards packets.
    ///
    /// # Errors
    /// As every call.
    pub async fn check_ip_forwarding(&self) -> Result<IpForwarding, Error> {
        self.read("check-ip-forwarding").await
    }

    /// Drops the connection to the control server; the daemon makes a new one.
    ///
    /// # Errors
    /// As every call.
    pub async fn disconnect_control(&self) -> Result<(), Error> {
        self.call(Method::POST, "disconnect-control", Bytes::new()).await.map(drop)
    }

    /// Opens the bus. See [`crate::Bus`] for one that comes back by itself.
    ///
    /// # Errors
    /// As every call.
    pub async fn watch(&self, mask: Mask) -> Result<Watch, Error> {
        let path = format!("/localapi/v0/watch-ipn-bus?mask={}", mask.0);
        let opened = http::send(&self.socket, Method::GET, &path, Bytes::new());
        let response = tokio::time::timeout(self.deadline, opened).await.unwrap_or(Err(Error::Timeout))?;
        let status = response.status();
        if status.is_success() {
            return Ok(Watch::new(http::Lines::of(response)));
        }
        let mut lines = http::Lines::of(response);
        let said = tokio::time::timeout(self.deadline, lines.next()).await;
        let said = said.ok().and_then(Result::ok).flatten().unwrap_or_default();
        Err(Error::refused(status.as_u16(), &said))
    }

    async fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let body = self.call(Method::GET, name, Bytes::new()).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        name: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let body = self.call(method, name, serde_json::to_vec(body)?.into()).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    async fn call(&self, method: Method, name: &str, body: Bytes) -> Result<Bytes, Error> {
        http::call(&self.socket, method, &format!("/localapi/v0/{name}"), body, self.deadline).await
    }
}

/// A request's body that holds a key: wiped when the request is done with it.
struct Wiped(Vec<u8>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
