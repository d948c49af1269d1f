//! How the text of one variable becomes a value.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use hyper::Uri;
use ipnet::IpNet;
use serde::Serialize;

/// When to return to an earlier exit node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Failback {
    /// Never.
    Never,
    /// After so long of clean probes.
    After(Duration),
}

/// What to do about traffic that the exit node does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KillSwitch {
    /// Shut it if permitted, else warn.
    Auto,
    /// Shut it, or refuse.
    On,
    /// Leave it.
    Off,
}

/// A host: an address, or a name to look up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name, in lower case.
    Name(String),
}

impl Host {
    fn parse(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = IpAddr::from_str(bare) {
            return Ok(Self::Address(address.to_canonical()));
        }
        let is_name = !text.is_empty()
            && text.len() <= 253
            && text.trim_end_matches('.').split('.').all(|label| {
                (1..=63).contains(&label.len())
                    && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            });
        if is_name { Ok(Self::Name(text.to_ascii_lowercase())) } else { Err(format!("{text:?} is no host")) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Where the end-to-end probe connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The TCP port.
    pub port: u16,
}

impl Target {
    /// Reads `host:port`, an IPv6 address in brackets.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no host:port");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(format!("{text:?}: put an IPv6 address in brackets, [address]:port"));
        }
        Ok(Self { host: Host::parse(host)?, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How a check service is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// In clear.
    Http,
    /// Over TLS.
    Https,
}

/// A service that tells the public address of who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckUrl {
    text: String,
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Its host and port.
    pub target: Target,
    /// What is asked for.
    pub path_and_query: String,
}

impl CheckUrl {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{text:?} {what}");
        if text.contains('@') {
            // Not repeated: there may be a password in it.
            return Err("a check URL may not hold a user name or password".to_owned());
        }
        if text.contains('#') {
            return Err(wrong("has a fragment, which no server sees"));
        }
        let uri = Uri::from_str(text).map_err(|_| wrong("is no URL"))?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(_) | None => return Err(wrong("is no http:// or https:// URL")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("names no host"))?;
        let default = match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        };
        let port = match uri.authority().map(|authority| &authority.as_str()[host.len()..]) {
            None | Some("") => default,
            Some(_) => uri.port_u16().filter(|port| *port != 0).ok_or_else(|| wrong("has no usable port"))?,
        };
        let path_and_query = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self {
            text: text.to_owned(),
            scheme,
            target: Target { host: Host::parse(host)?, port },
            path_and_query,
        })
    }

    /// The `Host` header: the port only where it is not the scheme's.
    #[must_use]
    pub fn host_header(&self) -> String {
        match (self.scheme, self.target.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) => self.target.host.to_string(),
            (Scheme::Http | Scheme::Https, _) => self.target.to_string(),
        }
    }
}

impl fmt::Display for CheckUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for CheckUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// A transport protocol of an [`AllowRule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// What may be reached beside the Internet: a range, and perhaps one protocol with a range of ports of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AllowRule {
    /// The addresses.
    pub range: IpNet,
    /// The protocol with its first and last port; all protocols without it.
    pub ports: Option<(Protocol, u16, u16)>,
}

impl AllowRule {
    /// Reads `RANGE`, `RANGE:tcp/PORT` or `RANGE:udp/FIRST-LAST`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{text:?}: {what}");
        if text == "tailnet" {
            return Err(wrong("stands alone, not among rules"));
        }
        let split =
            [(":tcp/", Protocol::Tcp), (":udp/", Protocol::Udp)].iter().find_map(|(mark, protocol)| {
                text.split_once(mark).map(|(range, ports)| (range, *protocol, ports))
            });
        let (range, ports) = match split {
            None => (text, None),
            Some((range, protocol, ports)) => {
                let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                let (first, last) = (port(first)?, port(last)?);
                if first > last {
                    return Err(wrong("the first port is above the last"));
                }
                (range, Some((protocol, first, last)))
            }
        };
        let range = crate::address::Expected::parse_entry(range).map_err(|error| error.to_string())?;
        Ok(Self { range, ports })
    }
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        Ok(_) | Err(_) => Err(format!("{text:?} is no number of seconds from 1 to 86400")),
    }
}

pub(super) fn failback(text: &str) -> Result<Failback, String> {
    let wrong = || format!("{text:?} is neither never nor after:<duration>, as in after:10m");
    if text == "never" {
        return Ok(Failback::Never);
    }
    let duration = text.strip_prefix("after:").ok_or_else(wrong)?;
    let unit_at = duration.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = duration.split_at(unit_at);
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(wrong)?;
    if seconds == 0 || seconds > 30 * 86_400 {
        return Err(format!("{text:?}: from 1 second to 30 days"));
    }
    Ok(Failback::After(Duration::from_secs(seconds)))
}

pub(super) fn kill_switch(text: &str) -> Result<KillSwitch, String> {
    match text {
        "auto" => Ok(KillSwitch::Auto),
        "on" => Ok(KillSwitch::On),
        "off" => Ok(KillSwitch::Off),
        _ => Err(format!("{text:?} is none of auto, on, off")),
    }
}

pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    SocketAddr::from_str(text).map_err(|_| format!("{text:?} is no address:port"))
}

/// A listener of tailscaled on this host, as its own flags spell it: an empty or wildcard host is the loopback.
pub(super) fn local_listener(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("{text:?} is no address:port");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
    let address = match host.trim_start_matches('[').trim_end_matches(']') {
        "" | "localhost" => IpAddr::from(Ipv4Addr::LOCALHOST),
        address => IpAddr::from_str(address).map_err(|_| wrong())?,
    };
    let address = match address {
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        address => address,
    };
    Ok(SocketAddr::new(address, port))
}

pub(super) fn port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|port| *port != 0).ok_or_else(|| format!("{text:?} is no port"))
}

pub(super) fn resolver(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = IpAddr::from_str(bare) {
        return Ok(SocketAddr::new(address.to_canonical(), 53));
    }
    SocketAddr::from_str(text)
        .ok()
        .filter(|address| address.port() != 0)
        .ok_or_else(|| format!("{text:?} is no address of a resolver"))
}

pub(super) fn login_server(text: &str) -> Result<String, String> {
    let url = CheckUrl::parse(text).map_err(|error| error.replace("check URL", "login server"))?;
    if url.path_and_query != "/" {
        return Err(format!("{text:?} has a path; a control server is named by scheme, host and port"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// A host name as tailscaled takes it; what a DNS label may not hold it replaces itself.
pub(super) fn hostname(text: &str) -> Result<String, String> {
    let fits = (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if fits {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no host name: letters, digits, hyphens, dots and underscores, 63 at most"))
    }
}

/// A tag, with the `tag:` that `tailscale up` adds as well. The grammar is `tailcfg.CheckTag`'s.
pub(super) fn tag(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("tag:").unwrap_or(text);
    let fits = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if fits {
        Ok(format!("tag:{name}"))
    } else {
        Err(format!("{text:?} is no tag: a letter, then letters, digits and hyphens"))
    }
}
