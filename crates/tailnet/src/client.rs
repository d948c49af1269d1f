//! The LocalAPI, endpoint by endpoint (tailscale `ipn/localapi/localapi.go`).
//!
//! Every request has a deadline of its own; dropping a future closes its connection. The client holds no state and
//! reads no environment.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;
use crate::http::{self, Answer, Call};
use crate::watch::{Bus, Mask, Watch};
use crate::wire::misc::{DerpMap, IpForwarding, SoMark, Suggestion, WhoIs};
use crate::wire::ping::{PingKind, PingResult};
use crate::wire::prefs::{MaskedPrefs, Prefs};
use crate::wire::status::Status;

mod start;

/// Deadline of a request where none was chosen.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(5);

/// Whether `status` lists the other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peers {
    /// Every node that policy lets this one see.
    Include,
    /// This node only: cheap in a large tailnet.
    Omit,
}

/// Whether `server-status` waits for the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Answer at once.
    No,
    /// Answer once the backend is ready, within this client's deadline.
    UntilReady,
}

/// What `start` is told.
#[derive(Debug, Default)]
pub struct StartOptions {
    /// All preferences from now on; `None` keeps those in force. A full replacement: carry the exit node over.
    pub update_prefs: Option<Prefs>,
    /// Key for a first login. Nothing is returned of a bad one: it shows up on the bus.
    pub auth_key: Option<SecretString>,
}

/// A client of one tailscaled.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    deadline: Duration,
}

impl Client {
    /// Returns a client of the daemon that listens on `socket`. Connects nowhere yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), deadline: DEFAULT_DEADLINE }
    }

    /// Sets the deadline of each request, from connecting to the last byte of the answer.
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the deadline of each request.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Asks whether the daemon's backend is ready. Until it is, every other request hangs.
    ///
    /// A build of the daemon without this endpoint (404) counts as ready; the next request will tell.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] if it is not, or any error of the transport.
    pub async fn server_status(&self, wait: Wait) -> Result<(), Error> {
        let path = match wait {
            Wait::No => "/server-status",
            Wait::UntilReady => "/server-status?wait=true",
        };
        let call = Call::new(Method::GET, path);
        let name = call.name();
        let answer = self.answer(call).await?;
        match answer.status {
            // A waiting daemon sends its 503 first and the truth in the body once it is ready.
            StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE => match http::error_field(&answer.body) {
                Some(message) if !message.is_empty() => Err(Error::NotReady),
                Some(_) | None => json::<Value>(&name, &answer.body).map(|_| ()),
            },
            StatusCode::NOT_FOUND => Ok(()),
            status => Err(http::refusal(&name, status, &answer.body)),
        }
    }

    /// Reads the daemon's status.
    ///
    /// # Errors
    ///
    /// Any [`Error`] of a read.
    pub async fn status(&self, peers: Peers) -> Result<Status, Error> {
        self.read(
            Method::GET,
            match peers {
                Peers::Include => "status",
                Peers::Omit => "status?peers=false",
            },
        )
        .await
    }

    /// Reads the preferences.
    ///
    /// # Errors
    ///
    /// Any [`Error`] of a read.
    pub async fn prefs(&self) -> Result<Prefs, Error> {
        self.read(Method::GET, "prefs").await
    }

    /// Changes the fields set in `change` and returns all preferences as they then are. Needs write permission.
    ///
    /// # Errors
    ///
    /// [`Error::PrefsRefused`] with the daemon's words, [`Error::AccessDenied`], or any error of the transport.
    pub async fn patch_prefs(&self, change: &MaskedPrefs) -> Result<Prefs, Error> {
        let call = local(Method::PATCH, "prefs");
        let call = body(call, change)?;
        let name = call.name();
        let answer = self.answer(call).await?;
        if answer.status == StatusCode::BAD_REQUEST
            && let Some(message) = http::error_field(&answer.body)
        {
            return Err(Error::PrefsRefused { message: http::message(message.as_bytes()) });
        }
        json(&name, &success(&name, answer)?)
    }

    /// Asks whether the daemon would take these preferences, changing nothing. Needs write permission.
    ///
    /// # Errors
    ///
    /// [`Error::PrefsRefused`] with the daemon's words, [`Error::AccessDenied`], or any error of the transport.
    pub async fn check_prefs(&self, prefs: &Prefs) -> Result<(), Error> {
        let call = body(local(Method::POST, "check-prefs"), prefs)?;
        let name = call.name();
        let answer = success(&name, self.answer(call).await?)?;
        json::<Value>(&name, &answer)?;
        // The status is 200 either way.
        match http::error_field(&answer) {
            Some(message) if !message.is_empty() => {
                Err(Error::PrefsRefused { message: http::message(message.as_bytes()) })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Starts the backend anew, with these preferences and this key. Needs write permission.
    ///
    /// The daemon forgets its map and comes back through `NoState`; routes to an exit node stay in place meanwhile. A
    /// node without a key of its own needs [`Client::login_interactive`] next. The request's bytes, which hold the
    /// key, are wiped once they are sent, and the key is cut out of any error.
    ///
    /// # Errors
    ///
    /// [`Error::AccessDenied`], [`Error::Http`] with the daemon's words, or any error of the transport. A key that
    /// control refuses is no error here: it shows up on the bus.
    pub async fn start(&self, options: &StartOptions) -> Result<(), Error> {
        let call = local(Method::POST, "start").body(start::body(options)?);
        let name = call.name();
        self.answer(call)
            .await
            .and_then(|answer| success(&name, answer))
            .map(|_| ())
            .map_err(|error| start::without_key(error, options.auth_key.as_ref()))
    }

    /// Begins a login; with a key given to [`Client::start`], no browser is involved. Needs write permission.
    ///
    /// # Errors
    ///
    /// Any [`Error`] of a write.
    pub async fn login_interactive(&self) -> Result<(), Error> {
        self.write("login-interactive").await
    }

    /// Logs out and forgets the node key. Empties the daemon's routes: what an exit node carried now leaks, unless
    /// something else shuts. A node without a key is left as it is. Needs write permission.
    ///
    /// # Errors
    ///
    /// Any [`Error`] of a write.
    pub async fn logout(&self) -> Result<(), Error> {
        self.write("logout").await
    }

    /// Ends the connection to the control server until the daemon has reason to make a new one. Needs write
    /// permission.
    ///
    /// # Errors
    ///
    /// Any [`Error`] of a write.
    pub async fn disconnect_control(&self) -> Result<(), Error> {
        self.write("disconnect-control").await
    }

    /// Pings a tailnet address, or by [`PingKind::Tsmp`] a public one: whoever holds the default route answers.
    ///
    /// The daemon never gives up on a disco or TSMP ping by itself; `deadline` is what ends it.
    ///
    /// # Errors
    ///
    /// [`Error::NoAnswer`] at the deadline; a refusal such as `no matching peer` is within the result.
    pub async fn ping(&self, to: IpAddr, kind: PingKind, deadline: Duration) -> Result<PingResult, Error> {
        let call = local(Method::POST, &format!("ping?ip={to}&type={kind}"));
        let name = call.name();
        let answer = http::ask(&self.socket, call, deadline).await?;
        json(&name, &success(&name, answer)?)
    }

    /// Asks which exit node the daemon would choose: `None` if it has nothing to suggest.
    ///
    /// # Errors
    ///
    /// [`Error::Http`] while there is no preferred relay yet, or any error of a read.
    pub async fn suggest_exit_node(&self) -> Result<Option<Suggestion>, Error> {
        let suggestion: Suggestion = self.read(Method::GET, "suggest-exit-node").await?;
        Ok(Some(suggestion).filter(|suggestion| !suggestion.id.is_empty()))
    }

    /// Asks who is behind an address, an `address:port` or a `nodekey:<hex>`: `None` if nobody is.
    ///
    /// # Errors
    ///
    /// Any [`Error`] of a read.
    pub async fn whois(&self, who: &str) -> Result<Option<WhoIs>, Error> {
        match self.read(Method::GET, &format!("whois?addr={}", escaped(who))).await {
            Ok(whois) => Ok(Some(whois)),
            Err(Error::Http { status: 404, message, .. }) if message.starts_with("no match") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads which relays control named.
    ///
    /// # Errors
    ///
    /// Any [`Error`] of a read.
    pub async fn derp_map(&self) -> Result<DerpMap, Error> {
        Ok(self.read::<Option<DerpMap>>(Method::GET, "derpmap").await?.unwrap_or_default())
    }

    /// Asks whether the daemon marks its own packets. True in userspace mode as well.
    ///
    /// # Errors
    ///
    /// Any [`Error`] of a read.
    pub async fn check_so_mark_in_use(&self) -> Result<SoMark, Error> {
        self.read(Method::GET, "check-so-mark-in-use").await
    }

    /// Asks whether the machine forwards packets, as an exit node must.
    ///
    /// # Errors
    ///
    /// Any [`Error`] of a read.
    pub async fn check_ip_forwarding(&self) -> Result<IpForwarding, Error> {
        self.read(Method::GET, "check-ip-forwarding").await
    }

    /// Opens one stream of notifications. It ends with the daemon; [`Client::bus`] is the one that comes back.
    ///
    /// # Errors
    ///
    /// Any [`Error`] of a read; [`Error::Http`] for a mask that the daemon rejects.
    pub async fn watch(&self, mask: Mask) -> Result<Watch, Error> {
        let call = local(Method::GET, &format!("watch-ipn-bus?mask={}", mask.bits()));
        Watch::open(&self.socket, call, self.deadline).await
    }

    /// Returns a stream of notifications that reconnects, and says each time that it did.
    pub fn bus(&self, mask: Mask) -> Bus {
        Bus::new(self.clone(), mask)
    }

    async fn read<T: DeserializeOwned>(&self, method: Method, endpoint: &str) -> Result<T, Error> {
        let call = local(method, endpoint);
        let name = call.name();
        json(&name, &success(&name, self.answer(call).await?)?)
    }

    async fn write(&self, endpoint: &str) -> Result<(), Error> {
        let call = local(Method::POST, endpoint);
        let name = call.name();
        success(&name, self.answer(call).await?).map(|_| ())
    }

    async fn answer(&self, call: Call) -> Result<Answer, Error> {
        http::ask(&self.socket, call, self.deadline).await
    }
}

fn local(method: Method, endpoint: &str) -> Call {
    Call::new(method, format!("/localapi/v0/{endpoint}"))
}

/// Escapes a query's value.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b':' | b'-' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

fn body(call: Call, value: &impl serde::Serialize) -> Result<Call, Error> {
    let name = call.name();
    let bytes = serde_json::to_vec(value)
        .map_err(|error| Error::malformed(&name, format!("the request itself: {error}")))?;
    Ok(call.body(Bytes::from(bytes)))
}

fn success(name: &str, answer: Answer) -> Result<Bytes, Error> {
    if answer.status.is_success() {
        Ok(answer.body)
    } else {
        Err(http::refusal(name, answer.status, &answer.body))
    }
}

fn json<T: DeserializeOwned>(name: &str, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error::malformed(name, error.to_string()))
}
