//! The guard's configuration, read once from the environment. Every variable is a constant here with its default and
//! unit; every mistake and contradiction is reported together, before anything is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sallyport_tailnet::ExitNodeArg;
use secrecy::{ExposeSecret, SecretString};

use crate::address::Expected;
use crate::posture::Posture;

mod mistakes;
mod values;

pub use mistakes::{Mistake, Mistakes};
pub use values::{AllowRule, CheckUrl, Failback, Host, KillSwitch, Protocol, Scheme, Target};

/// tailscaled's socket. A path; default `/alloc/tailscale/tailscaled.sock`.
pub const SOCKET: &str = "TS_SOCKET";
/// The auth key, or `file:PATH`. No default.
pub const AUTHKEY: &str = "TS_AUTHKEY";
/// The file that holds the auth key. A path; no default.
pub const AUTHKEY_FILE: &str = "TS_AUTHKEY_FILE";
/// The control server. A URL; default Tailscale's, [`DEFAULT_LOGIN_SERVER`].
pub const LOGIN_SERVER: &str = "TS_LOGIN_SERVER";
/// What the node is called. One DNS label; without it the node keeps the name it has.
pub const HOSTNAME: &str = "TS_HOSTNAME";
/// The node's tags, a comma list. Without it the node keeps the tags that its key gave it.
pub const ADVERTISE_TAGS: &str = "TS_ADVERTISE_TAGS";
/// Whether subnet routes are accepted. A boolean; default `true`.
pub const ACCEPT_ROUTES: &str = "TS_ACCEPT_ROUTES";
/// Whether the tailnet's DNS settings are accepted. A boolean; default `false`.
pub const ACCEPT_DNS: &str = "TS_ACCEPT_DNS";
/// The exit node. A MagicDNS name, FQDN, tailnet address, `auto:any` or `id:<stable id>`; default none.
pub const EXIT_NODE_PRIMARY: &str = "TS_EXIT_NODE_PRIMARY";
/// The exit nodes after it, a comma list in order, spelled alike; default none.
pub const EXIT_NODE_FALLBACKS: &str = "TS_EXIT_NODE_FALLBACKS";
/// Whether naming no exit node is an error. A boolean; default `false`.
pub const REQUIRE_EXIT_NODE: &str = "TS_REQUIRE_EXIT_NODE";
/// Whether to start by the normal route when every exit node fails. A boolean; default `false`.
pub const EXIT_NODE_FAIL_OPEN: &str = "TS_EXIT_NODE_FAIL_OPEN";
/// When to return to an earlier exit node while holding. `never` or `after:<duration>`; default `after:10m`.
pub const EXIT_NODE_FAILBACK: &str = "TS_EXIT_NODE_FAILBACK";
/// The public addresses that are expected, a comma list of addresses and CIDR ranges; default none.
pub const EGRESS_EXPECTED_IPS: &str = "TS_EGRESS_EXPECTED_IPS";
/// The services that tell the public address, a comma list of URLs, asked in order; default [`DEFAULT_CHECK_URLS`].
pub const EGRESS_CHECK_URLS: &str = "TS_EGRESS_CHECK_URLS";
/// How often the address is verified again while holding. Seconds, 1 to 86400; default 300.
pub const EGRESS_RECHECK_SECONDS: &str = "TS_EGRESS_RECHECK_SECONDS";
/// Where the end-to-end probe connects, a comma list of `host:port`; default [`DEFAULT_PROBE_TARGETS`].
pub const EGRESS_PROBE_TARGETS: &str = "TS_EGRESS_PROBE_TARGETS";
/// The resolvers behind the exit node, a comma list of addresses with or without port; default
/// [`DEFAULT_RESOLVERS`].
pub const EGRESS_RESOLVERS: &str = "TS_EGRESS_RESOLVERS";
/// What else may be reached beside the Internet: `tailnet`, or a comma list of rules; default `tailnet`.
pub const EGRESS_ALLOW: &str = "TS_EGRESS_ALLOW";
/// The ports on which the worker may be reached over the uplink, a comma list; default none.
pub const INGRESS_PORTS: &str = "TS_INGRESS_PORTS";
/// tailscaled's SOCKS5 listener, used when it has no TUN device. `host:port`; default none.
pub const SOCKS5_SERVER: &str = "TS_SOCKS5_SERVER";
/// tailscaled's HTTP proxy, used when it has no TUN device and no SOCKS5 listener. `host:port`; default none.
pub const OUTBOUND_HTTP_PROXY_LISTEN: &str = "TS_OUTBOUND_HTTP_PROXY_LISTEN";
/// Whether the way out is shut where the exit node does not hold it. `auto`, `on` or `off`; default `auto`.
pub const GUARD_KILL_SWITCH: &str = "TS_GUARD_KILL_SWITCH";
/// Where a guard that stays answers. An address and port; default `127.0.0.1:9480`.
pub const GUARD_LISTEN: &str = "TS_GUARD_LISTEN";
/// The deadline of the whole start. Seconds, 1 to 86400; default 60.
pub const WAIT_SECONDS: &str = "TS_WAIT_SECONDS";
/// The state file. A path; default `/alloc/tailscale/egress-selected`.
pub const GUARD_STATE_FILE: &str = "TS_GUARD_STATE_FILE";

/// Every variable that the guard reads.
pub const ALL: &[&str] = &[
    SOCKET,
    AUTHKEY,
    AUTHKEY_FILE,
    LOGIN_SERVER,
    HOSTNAME,
    ADVERTISE_TAGS,
    ACCEPT_ROUTES,
    ACCEPT_DNS,
    EXIT_NODE_PRIMARY,
    EXIT_NODE_FALLBACKS,
    REQUIRE_EXIT_NODE,
    EXIT_NODE_FAIL_OPEN,
    EXIT_NODE_FAILBACK,
    EGRESS_EXPECTED_IPS,
    EGRESS_CHECK_URLS,
    EGRESS_RECHECK_SECONDS,
    EGRESS_PROBE_TARGETS,
    EGRESS_RESOLVERS,
    EGRESS_ALLOW,
    INGRESS_PORTS,
    SOCKS5_SERVER,
    OUTBOUND_HTTP_PROXY_LISTEN,
    GUARD_KILL_SWITCH,
    GUARD_LISTEN,
    WAIT_SECONDS,
    GUARD_STATE_FILE,
];

/// Prefixes that are the guard's alone: an unknown name under them is a typing error that would silently weaken a
/// posture, so it is refused.
const OWN_PREFIXES: &[&str] = &["TS_EXIT_NODE_", "TS_EGRESS_", "TS_GUARD_"];

/// Tailscale's own control server (`ipn.DefaultControlURL`).
pub const DEFAULT_LOGIN_SERVER: &str = "https://controlplane.tailscale.com";
/// Cloudflare's and ipify's address services: two operators, each with IPv4 and IPv6, each answering one bare address.
pub const DEFAULT_CHECK_URLS: &str = "https://icanhazip.com,https://api64.ipify.org";
/// Cloudflare's resolver and Google's, by address, so that the probe needs no name: IPv4 and IPv6.
pub const DEFAULT_PROBE_TARGETS: &str = "1.1.1.1:443,[2001:4860:4860::8888]:443";
/// Cloudflare's and Quad9's resolvers.
pub const DEFAULT_RESOLVERS: &str = "1.1.1.1,9.9.9.9";

/// What the process was given: its variables but for the key, and the key.
#[derive(Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
    key: Option<SecretString>,
}

impl Environment {
    /// The environment of these variables and this key (the value of [`AUTHKEY`], already taken out).
    pub fn new(variables: impl IntoIterator<Item = (String, OsString)>, key: Option<SecretString>) -> Self {
        Self { variables: variables.into_iter().collect(), key }
    }

    /// Takes the environment of this process: the key first, wiped from the environment block, then the rest.
    ///
    /// Call it before the process has a second thread.
    pub fn take() -> Self {
        let key = crate::secret::take_from_environment(AUTHKEY);
        let ours = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            (name.starts_with("TS_") && name != AUTHKEY).then_some((name, value))
        });
        Self::new(ours, key)
    }
}

/// Where the auth key is.
#[derive(Debug, Default)]
pub enum KeySource {
    /// Nowhere: the node has to be logged in already.
    #[default]
    None,
    /// In the environment.
    Value(SecretString),
    /// In a file, read when it is needed.
    File(PathBuf),
}

impl KeySource {
    /// Whether there is one.
    #[must_use]
    pub fn is_given(&self) -> bool {
        match self {
            Self::None => false,
            Self::Value(_) | Self::File(_) => true,
        }
    }
}

/// The configuration of one guard.
#[derive(Debug)]
pub struct Config {
    /// [`SOCKET`].
    pub socket: PathBuf,
    /// [`AUTHKEY`] or [`AUTHKEY_FILE`].
    pub key: KeySource,
    /// [`LOGIN_SERVER`], without a final slash.
    pub login_server: String,
    /// [`HOSTNAME`].
    pub hostname: Option<String>,
    /// [`ADVERTISE_TAGS`], each with its `tag:`.
    pub tags: Option<BTreeSet<String>>,
    /// [`ACCEPT_ROUTES`].
    pub accept_routes: bool,
    /// [`ACCEPT_DNS`].
    pub accept_dns: bool,
    /// [`EXIT_NODE_PRIMARY`] and [`EXIT_NODE_FALLBACKS`], in order, duplicates dropped.
    pub exit_nodes: Vec<ExitNodeArg>,
    /// What these together ask for.
    pub posture: Posture,
    /// [`EXIT_NODE_FAIL_OPEN`].
    pub fail_open: bool,
    /// [`EXIT_NODE_FAILBACK`].
    pub failback: Failback,
    /// [`EGRESS_EXPECTED_IPS`].
    pub expected: Expected,
    /// [`EGRESS_CHECK_URLS`].
    pub check_urls: Vec<CheckUrl>,
    /// [`EGRESS_RECHECK_SECONDS`].
    pub recheck: Duration,
    /// [`EGRESS_PROBE_TARGETS`].
    pub probe_targets: Vec<Target>,
    /// [`EGRESS_RESOLVERS`].
    pub resolvers: Vec<SocketAddr>,
    /// Whether [`EGRESS_RESOLVERS`] was set, so that it counts without an exit node too.
    pub resolvers_are_set: bool,
    /// [`EGRESS_ALLOW`]; empty is `tailnet`.
    pub allow: Vec<AllowRule>,
    /// [`INGRESS_PORTS`].
    pub ingress_ports: BTreeSet<u16>,
    /// [`SOCKS5_SERVER`].
    pub socks5: Option<SocketAddr>,
    /// [`OUTBOUND_HTTP_PROXY_LISTEN`].
    pub http_proxy: Option<SocketAddr>,
    /// [`GUARD_KILL_SWITCH`].
    pub kill_switch: KillSwitch,
    /// [`GUARD_LISTEN`].
    pub listen: SocketAddr,
    /// [`WAIT_SECONDS`].
    pub wait: Duration,
    /// [`GUARD_STATE_FILE`].
    pub state_file: PathBuf,
}

impl Config {
    /// Reads the configuration. An empty value is an absent one, as HCL variables need it.
    ///
    /// # Errors
    /// All mistakes and contradictions together.
    pub fn from_environment(environment: Environment) -> Result<Self, Mistakes> {
        let mut reader = Reader::new(environment.variables);
        let required = reader.boolean(REQUIRE_EXIT_NODE, false);
        let fail_open = reader.boolean(EXIT_NODE_FAIL_OPEN, false);
        let exit_nodes = reader.exit_nodes();
        let expected = Expected::new(reader.list(EGRESS_EXPECTED_IPS, "", Expected::parse_entry));
        reader.contradictions(&exit_nodes, required, fail_open, &expected);
        let key = reader.key(environment.key);
        let config = Self {
            socket: reader.path(SOCKET, "/alloc/tailscale/tailscaled.sock"),
            key,
            login_server: reader.value(LOGIN_SERVER, DEFAULT_LOGIN_SERVER, values::login_server),
            hostname: reader.optional(HOSTNAME, values::hostname),
            tags: reader.tags(),
            accept_routes: reader.boolean(ACCEPT_ROUTES, true),
            accept_dns: reader.boolean(ACCEPT_DNS, false),
            posture: Posture::of(exit_nodes.len(), required, !expected.is_empty()),
            exit_nodes,
            fail_open,
            failback: reader.value(EXIT_NODE_FAILBACK, "after:10m", values::failback),
            expected,
            check_urls: reader.list(EGRESS_CHECK_URLS, DEFAULT_CHECK_URLS, CheckUrl::parse),
            recheck: reader.value(EGRESS_RECHECK_SECONDS, "300", values::seconds),
            probe_targets: reader.list(EGRESS_PROBE_TARGETS, DEFAULT_PROBE_TARGETS, Target::parse),
            resolvers_are_set: reader.is_set(EGRESS_RESOLVERS),
            resolvers: reader.list(EGRESS_RESOLVERS, DEFAULT_RESOLVERS, values::resolver),
            allow: reader.allow(),
            ingress_ports: reader.list(INGRESS_PORTS, "", values::port).into_iter().collect(),
            socks5: reader.optional(SOCKS5_SERVER, values::local_listener),
            http_proxy: reader.optional(OUTBOUND_HTTP_PROXY_LISTEN, values::local_listener),
            kill_switch: reader.value(GUARD_KILL_SWITCH, "auto", values::kill_switch),
            listen: reader.value(GUARD_LISTEN, "127.0.0.1:9480", values::listen),
            wait: reader.value(WAIT_SECONDS, "60", values::seconds),
            state_file: reader.path(GUARD_STATE_FILE, "/alloc/tailscale/egress-selected"),
        };
        reader.finish()?;
        Ok(config)
    }
}

/// Reads variables one by one and remembers every mistake.
struct Reader {
    variables: BTreeMap<String, String>,
    mistakes: Vec<Mistake>,
}

impl Reader {
    fn new(given: BTreeMap<String, OsString>) -> Self {
        let mut reader = Self { variables: BTreeMap::new(), mistakes: Vec::new() };
        for (name, value) in given {
            if !ALL.contains(&name.as_str()) {
                reader.refuse_unknown(&name);
                continue;
            }
            match value.into_string() {
                Ok(value) if value.trim().is_empty() => {}
                Ok(value) => {
                    reader.variables.insert(name, value.trim().to_owned());
                }
                Err(_) => reader.mistake(&name, "the value is not UTF-8"),
            }
        }
        reader
    }

    fn refuse_unknown(&mut self, name: &str) {
        if !OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            return;
        }
        let nearest = ALL.iter().min_by_key(|known| mistakes::distance(known, name));
        let nearest = nearest.expect("the guard reads variables");
        self.mistake(name, format!("the guard reads no such variable; did you mean {nearest}?"));
    }

    fn mistake(&mut self, variable: &str, message: impl ToString) {
        self.mistakes.push(Mistake { variable: variable.to_owned(), message: message.to_string() });
    }

    fn is_set(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn optional<T, E: ToString>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(name)?;
        parse(&text).map_err(|error| self.mistake(name, error)).ok()
    }

    /// The value, or its default, which stands in for a mistaken one as well: the mistake is on the list.
    fn value<T, E: ToString>(
        &mut self,
        name: &str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> T {
        let given = self.optional(name, &parse);
        given.unwrap_or_else(|| match parse(default) {
            Ok(value) => value,
            Err(error) => unreachable!("the default of {name}: {}", error.to_string()),
        })
    }

    fn list<T, E: ToString>(
        &mut self,
        name: &str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let text = self.text(name).unwrap_or_else(|| default.to_owned());
        let mut values = Vec::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match parse(entry) {
                Ok(value) => values.push(value),
                Err(error) => self.mistake(name, error),
            }
        }
        if values.is_empty() && self.is_set(name) && !self.mistakes.iter().any(|m| m.variable == name) {
            self.mistake(name, "the list has no entry");
        }
        values
    }

    fn boolean(&mut self, name: &str, default: bool) -> bool {
        self.optional(name, values::boolean).unwrap_or(default)
    }

    fn path(&mut self, name: &str, default: &str) -> PathBuf {
        let path = PathBuf::from(self.text(name).unwrap_or_else(|| default.to_owned()));
        if path.is_relative() {
            self.mistake(name, format!("{} is not an absolute path", path.display()));
        }
        path
    }

    fn exit_nodes(&mut self) -> Vec<ExitNodeArg> {
        let primary = self.list(EXIT_NODE_PRIMARY, "", parse_exit_node);
        if primary.len() > 1 {
            self.mistake(
                EXIT_NODE_PRIMARY,
                format!("one exit node, not a list; name the others in {EXIT_NODE_FALLBACKS}"),
            );
        }
        let fallbacks = self.list(EXIT_NODE_FALLBACKS, "", parse_exit_node);
        if !self.is_set(EXIT_NODE_PRIMARY) && self.is_set(EXIT_NODE_FALLBACKS) {
            self.mistake(
                EXIT_NODE_FALLBACKS,
                format!("there are fallbacks and no {EXIT_NODE_PRIMARY}: name one, or neither"),
            );
        }
        let mut nodes: Vec<ExitNodeArg> = Vec::new();
        for node in primary.into_iter().chain(fallbacks) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }

    fn contradictions(
        &mut self,
        nodes: &[ExitNodeArg],
        required: bool,
        fail_open: bool,
        expected: &Expected,
    ) {
        if required && nodes.is_empty() && !self.is_set(EXIT_NODE_PRIMARY) {
            self.mistake(
                REQUIRE_EXIT_NODE,
                format!("an exit node is required and {EXIT_NODE_PRIMARY} names none"),
            );
        }
        if fail_open && required {
            self.mistake(
                EXIT_NODE_FAIL_OPEN,
                format!("{REQUIRE_EXIT_NODE}=true forbids the normal route that fail-open would take"),
            );
        }
        if fail_open && !expected.is_empty() {
            self.mistake(
                EXIT_NODE_FAIL_OPEN,
                format!("{EGRESS_EXPECTED_IPS} forbids the unverified address that fail-open would have"),
            );
        }
    }

    fn key(&mut self, value: Option<SecretString>) -> KeySource {
        let file = self.text(AUTHKEY_FILE);
        let value = value.filter(|key| !key.expose_secret().trim().is_empty());
        match (value, file) {
            (Some(_), Some(_)) => {
                self.mistake(AUTHKEY_FILE, format!("set together with {AUTHKEY}: give one of the two"));
                KeySource::None
            }
            (None, None) => KeySource::None,
            (None, Some(path)) => self.key_file(AUTHKEY_FILE, &path),
            (Some(key), None) => match key.expose_secret().trim().strip_prefix("file:") {
                Some(path) => self.key_file(AUTHKEY, path),
                None => match crate::secret::clean_key(key.expose_secret()) {
                    Ok(key) => KeySource::Value(key),
                    Err(error) => {
                        self.mistake(AUTHKEY, error);
                        KeySource::None
                    }
                },
            },
        }
    }

    fn key_file(&mut self, name: &str, path: &str) -> KeySource {
        let path = PathBuf::from(path);
        if path.is_relative() {
            self.mistake(name, format!("{} is not an absolute path", path.display()));
        }
        KeySource::File(path)
    }

    fn tags(&mut self) -> Option<BTreeSet<String>> {
        let given = self.is_set(ADVERTISE_TAGS);
        let tags = self.list(ADVERTISE_TAGS, "", values::tag);
        given.then(|| tags.into_iter().collect())
    }

    fn allow(&mut self) -> Vec<AllowRule> {
        let text = self.text(EGRESS_ALLOW);
        if text.is_none_or(|text| text == "tailnet") {
            return Vec::new();
        }
        self.list(EGRESS_ALLOW, "", AllowRule::parse)
    }

    fn finish(mut self) -> Result<(), Mistakes> {
        if self.mistakes.is_empty() {
            return Ok(());
        }
        self.mistakes.sort_by_key(|mistake| {
            ALL.iter().position(|name| *name == mistake.variable).unwrap_or(ALL.len())
        });
        Err(Mistakes::new(self.mistakes))
    }
}

fn parse_exit_node(text: &str) -> Result<ExitNodeArg, <ExitNodeArg as FromStr>::Err> {
    text.parse()
}

#[cfg(test)]
mod tests;
