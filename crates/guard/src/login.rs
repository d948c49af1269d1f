//! Whether the node has to log in, what it is told then, and what the control server's refusals mean. Pure.

use std::collections::BTreeSet;
use std::fmt;

use sallyport_tailnet::{BackendState, MaskedPrefs, Prefs, StableId, Status};

use crate::env::{Config, DEFAULT_LOGIN_SERVER};
use crate::reason::Reason;

/// A stable id that no node has: with it as exit node, Internet traffic has nowhere to go but the tailnet interface,
/// and is dropped there. tailscaled looks only at whether an id is set (`ipnlocal.routerConfigLocked`).
pub(crate) const NOWHERE: &str = "sallyport-nowhere";

/// Spellings of Tailscale's own control server (`ipn.IsLoginServerSynonym`).
const DEFAULT_SYNONYMS: [&str; 3] = ["", "https://login.tailscale.com", DEFAULT_LOGIN_SERVER];

/// What has to be done so that the node is in the right tailnet with the right tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: it is in, or on its way by itself.
    Nothing,
    /// A login.
    Login(Why),
}

/// Why a login is necessary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The node has never logged in.
    Fresh,
    /// Somebody logged it out.
    LoggedOut,
    /// Somebody stopped it; it has a key of its own.
    Stopped,
    /// Its own key is no longer good.
    KeyNoLongerGood,
    /// It belongs to another control server.
    OtherServer {
        /// Which.
        was: String,
    },
    /// It has other tags.
    OtherTags {
        /// Which.
        were: Vec<String>,
    },
}

impl Why {
    /// Whether an auth key is used up for it.
    pub(crate) fn needs_key(&self) -> bool {
        match self {
            Self::Fresh | Self::LoggedOut | Self::KeyNoLongerGood => true,
            Self::OtherServer { .. } | Self::OtherTags { .. } => true,
            Self::Stopped => false,
        }
    }

    /// Whether the node has to be told to ask for a new identity (`login-interactive`): without that a daemon that has
    /// none waits, and one that has comes back as what it was (`direct.go:doLogin`).
    pub(crate) fn forces(&self) -> bool {
        match self {
            Self::Fresh | Self::LoggedOut | Self::KeyNoLongerGood | Self::OtherTags { .. } => true,
            // With a key of another server it asks by itself, and this one does not know it.
            Self::OtherServer { .. } | Self::Stopped => false,
        }
    }

    /// Whether the node was of no use before, so that nothing is lost when it is told to stop trying.
    pub(crate) fn starts_from_nothing(&self) -> bool {
        match self {
            Self::Fresh | Self::LoggedOut => true,
            Self::KeyNoLongerGood | Self::Stopped => false,
            Self::OtherServer { .. } | Self::OtherTags { .. } => false,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh => f.write_str("the node is new"),
            Self::LoggedOut => f.write_str("the node was logged out"),
            Self::Stopped => f.write_str("the node was stopped"),
            Self::KeyNoLongerGood => f.write_str("the node's own key is no longer good"),
            Self::OtherServer { was } => write!(f, "the node belongs to {was}"),
            Self::OtherTags { were } if were.is_empty() => f.write_str("the node has no tags"),
            Self::OtherTags { were } => write!(f, "the node has the tags {}", were.join(", ")),
        }
    }
}

/// Decides from what tailscaled is and was told.
pub(crate) fn need(config: &Config, status: &Status, prefs: &Prefs) -> Need {
    use BackendState::{NeedsLogin, NoState, Stopped};
    let login = Need::Login;
    let was_ever_in = status.have_node_key || !status.this_node.id.is_empty();
    if !was_ever_in {
        // A new daemon says `LoggedOut` too.
        return login(Why::Fresh);
    }
    if !is_same_server(&prefs.control_url, &config.login_server) {
        return login(Why::OtherServer { was: shown_server(&prefs.control_url) });
    }
    if prefs.logged_out {
        return login(Why::LoggedOut);
    }
    if let Some(tags) = &config.tags {
        // Granted tags count. What was asked for last may be the remains of a login that was refused.
        let granted: BTreeSet<_> = status.this_node.tags.iter().cloned().collect();
        if !status.this_node.id.is_empty() && !tags.is_subset(&granted) {
            return login(Why::OtherTags { were: granted.into_iter().collect() });
        }
    }
    match &status.backend_state {
        NeedsLogin => login(Why::KeyNoLongerGood),
        Stopped => login(Why::Stopped),
        NoState if !prefs.want_running => login(Why::Stopped),
        _ => Need::Nothing,
    }
}

/// Whether two spellings name one control server.
pub(crate) fn is_same_server(one: &str, other: &str) -> bool {
    let normal = |url: &str| {
        let url = url.trim_end_matches('/').to_ascii_lowercase();
        if DEFAULT_SYNONYMS.contains(&url.as_str()) { String::new() } else { url }
    };
    normal(one) == normal(other)
}

fn shown_server(url: &str) -> String {
    if url.is_empty() { DEFAULT_LOGIN_SERVER.to_owned() } else { url.to_owned() }
}

/// Everything that `start` is told: what the node has, with what the configuration says laid over it. With exit nodes
/// configured the exit node of before is carried over, or [`NOWHERE`] takes its place, so that the node is shut from
/// its first network map on.
pub(crate) fn start_prefs(config: &Config, current: &Prefs) -> Prefs {
    let mut prefs = current.clone();
    prefs.control_url.clone_from(&config.login_server);
    prefs.want_running = true;
    prefs.logged_out = false;
    prefs.accept_routes = config.accept_routes;
    prefs.accept_dns = config.accept_dns;
    prefs.exit_node_allow_lan_access = false;
    prefs.remote_config = false;
    if let Some(hostname) = &config.hostname {
        prefs.hostname.clone_from(hostname);
    }
    if let Some(tags) = &config.tags {
        prefs.advertise_tags = tags.iter().cloned().collect();
    }
    if !config.exit_nodes.is_empty() && !pins_exit_node(&prefs) {
        prefs.exit_node_id = StableId::new(NOWHERE);
        prefs.auto_exit_node.clear();
    }
    // `Config` is the node's identity; it never goes back (`ipn.Prefs.Persist`).
    prefs.rest.remove("Config");
    prefs
}

/// Whether the exit node is one concrete node, which tailscaled does not change by itself.
fn pins_exit_node(prefs: &Prefs) -> bool {
    prefs.auto_exit_node.is_empty() && (!prefs.exit_node_id.is_empty() || prefs.exit_node_ip.is_some())
}

/// The change that makes a node that is in already as the configuration says, but for the exit node, which stays, or
/// is shut until there is one.
pub(crate) fn settings(config: &Config, current: &Prefs) -> MaskedPrefs {
    let mut wanted = MaskedPrefs::new()
        .accept_routes(config.accept_routes)
        .accept_dns(config.accept_dns)
        .exit_node_allow_lan_access(false)
        .remote_config(false);
    if let Some(hostname) = &config.hostname {
        wanted = wanted.hostname(hostname);
    }
    if let Some(tags) = &config.tags {
        let tags: Vec<_> = tags.iter().cloned().collect();
        wanted = wanted.advertise_tags(&tags);
    }
    if !config.exit_nodes.is_empty() && !pins_exit_node(current) {
        wanted = wanted.pin_exit_node(&StableId::new(NOWHERE));
    }
    wanted.against(current)
}

/// A health warning about the login, without what every one of them begins with; none if the attempt was only
/// replaced by a newer one.
pub(crate) fn complaint(text: &str) -> Option<&str> {
    let text = text.strip_prefix("You are logged out.").unwrap_or(text).trim();
    let text = text.strip_prefix("The last login error was: ").unwrap_or(text);
    (!text.is_empty() && !text.ends_with("context canceled")).then_some(text)
}

/// What a refusal of the control server means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It will not change by waiting.
    Final(Reason),
    /// The server asks for patience.
    Later,
}

/// Reads the control server's words. The texts are those of the hosted server and of headscale (`spec` of the lab,
/// `docs/lab.md`); an unknown text is final all the same, under its own word.
pub(crate) fn refusal(text: &str) -> Refusal {
    let text = text.to_ascii_lowercase();
    let says = |part: &str| text.contains(part);
    if says("rate limited") {
        return Refusal::Later;
    }
    Refusal::Final(if says("tags") && (says("not permitted") || says("invalid") || says("not allowed")) {
        Reason::TagsRefused
    } else if says("already been used") || says("already used") {
        Reason::KeyUsed
    } else if says("key") && says("expired") {
        Reason::KeyExpired
    } else if says("key") && ["invalid", "unable to validate", "not exist", "not found"].into_iter().any(says)
    {
        Reason::KeyRejected
    } else {
        Reason::LoginRefused
    })
}

#[cfg(test)]
mod tests;
