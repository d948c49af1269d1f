//! Why a start failed: one stable word for each cause, its exit code, and what to do next.

use std::fmt;

use serde::Serialize;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $word:literal, $code:literal, $advice:literal;)+) => {
        /// Why the guard failed. The word is stable; `docs/guard.md` lists all of them with their exit codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Reason {
            /// Every reason there is, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable word of the JSON output.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The exit code of the process (`docs/exit-codes.md`).
            #[must_use]
            pub fn exit_code(self) -> u8 {
                match self {
                    $(Self::$variant => $code,)+
                }
            }

            /// What to do next, in one sentence.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self {
                    $(Self::$variant => $advice,)+
                }
            }
        }
    };
}

reasons! {
    /// The state file could not be written or removed.
    StateFile = "state-file", 1, "make the folder of TS_GUARD_STATE_FILE writable for the guard";
    /// A signal ended the guard before it was done.
    Interrupted = "interrupted", 1, "run the guard again; nothing was released";
    /// No exit node is configured, and the node has one set all the same.
    ExitNodeLeftOver = "exit-node-left-over", 1,
        "name an exit node, or clear the preference yourself: tailscale set --exit-node=";
    /// The environment holds mistakes or contradictions.
    ConfigInvalid = "config-invalid", 2, "mend the variables named above; nothing was changed";
    /// An exit node is required and none is named.
    ExitNodeRequired = "exit-node-required", 2,
        "name one in TS_EXIT_NODE_PRIMARY, or set TS_REQUIRE_EXIT_NODE=false";
    /// The guard runs in the machine's own network namespace.
    HostNamespace = "host-namespace", 2,
        "run the guard in the workload's network namespace (Nomad: network mode \"bridge\"), or say --host if this is meant";
    /// There is no socket at `TS_SOCKET`.
    SocketMissing = "socket-missing", 3,
        "start tailscaled before the guard, with --socket at the path of TS_SOCKET";
    /// tailscaled's socket is there, and nobody answers on it.
    DaemonSilent = "daemon-silent", 3, "look at tailscaled's log: it is stopped, hung, or still starting";
    /// tailscaled does not permit the guard what it needs.
    DaemonNotPermitted = "daemon-not-permitted", 3,
        "run the guard as root, as tailscaled's own uid, or as the node's operator";
    /// tailscaled went away while the guard was working.
    DaemonLost = "daemon-lost", 3, "look at tailscaled's log: it ended, or was restarted, while the guard was working";
    /// tailscaled refused a change of its preferences.
    DaemonRefused = "daemon-refused", 3,
        "mend what tailscaled says above; a locked --config file or a device policy has to allow the change";
    /// tailscaled has neither a TUN device nor a proxy that the workload could use.
    TunMissing = "tun-missing", 3,
        "give tailscaled a TUN device (not --tun=userspace-networking), or let it listen with --socks5-server and set TS_SOCKS5_SERVER";
    /// The control server did not answer.
    ControlUnreachable = "control-unreachable", 4,
        "check TS_LOGIN_SERVER, and that tailscaled's way to it is open";
    /// The node has to log in and no key was given.
    KeyMissing = "key-missing", 4, "set TS_AUTHKEY or TS_AUTHKEY_FILE";
    /// The file that should hold the key could not be read.
    KeyUnreadable = "key-unreadable", 4, "check the file that TS_AUTHKEY_FILE names";
    /// The control server does not know the key: it never existed or was revoked. The hosted server says the same of
    /// one that has expired.
    KeyRejected = "key-rejected", 4, "make a new auth key for this tailnet";
    /// The key was for one node, and has been used.
    KeyUsed = "key-used", 4, "make a new auth key, a reusable one if the job may start again";
    /// The key has expired.
    KeyExpired = "key-expired", 4, "make a new auth key";
    /// The control server refused the tags.
    TagsRefused = "tags-refused", 4,
        "give the auth key the tags of TS_ADVERTISE_TAGS, and name their owners in the tailnet policy";
    /// The control server refused the login for another reason.
    LoginRefused = "login-refused", 4, "mend what the control server says above";
    /// The control server wants a person to log in by a browser.
    LoginNeeded = "login-needed", 4, "log the node in by an auth key: set TS_AUTHKEY or TS_AUTHKEY_FILE";
    /// The control server waits for an administrator to approve the node.
    ApprovalPending = "approval-pending", 4,
        "approve the device in the tailnet's console, or use a pre-approved auth key";
    /// The node's own key has expired.
    NodeKeyExpired = "node-key-expired", 4, "renew the node's key, or give an auth key with which it can log in again";
    /// The node logged in, and did not get to the state Running.
    NotRunning = "not-running", 4,
        "look at tailscaled's log: it needs a network map and one reachable DERP relay or peer";
    /// No node of the tailnet has this name.
    ExitUnknown = "exit-unknown", 5, "name one of the exit nodes listed above";
    /// More than one node has this name.
    ExitAmbiguous = "exit-ambiguous", 5, "name the one that is meant by its id: id:<stable id>";
    /// The node is reported offline, and answers no ping.
    ExitOffline = "exit-offline", 5, "start the exit node, or name a fallback in TS_EXIT_NODE_FALLBACKS";
    /// The node is reported online, and answers no ping.
    ExitNoAnswer = "exit-no-answer", 5,
        "the control server calls it online but it does not answer: look at the exit node itself, and at UDP and DERP between the two";
    /// The node does not offer itself as an exit node.
    ExitNotOffering = "exit-not-offering", 5,
        "advertise it: tailscale set --advertise-exit-node on that node, then approve it";
    /// The node offers itself as an exit node, and nobody approved that.
    ExitNotApproved = "exit-not-approved", 5,
        "approve its exit routes in the tailnet's console, or list it in autoApprovers.exitNode";
    /// The node is an exit node, and the tailnet policy does not let this node use it.
    ExitHiddenByPolicy = "exit-hidden-by-policy", 5,
        "grant this node's tag autogroup:internet in the tailnet policy";
    /// The named exit node is this node.
    ExitIsSelf = "exit-is-self", 5, "name another node: this one cannot be its own exit node";
    /// The exit node's key has expired.
    ExitExpired = "exit-expired", 5, "renew the exit node's key";
    /// No node offers itself, for `auto:any`.
    ExitNoneOffered = "exit-none-offered", 5,
        "advertise and approve an exit node, and grant this node's tag autogroup:internet";
    /// tailscaled did not take the exit node, or lost it again.
    ExitNotTaken = "exit-not-taken", 5, "another client may have changed the preference; run the guard again";
    /// The exit node was selected, and no packet comes through it.
    NoPacketsThrough = "no-packets-through", 5,
        "look at the exit node's own Internet side and its IP forwarding, or set reachable TS_EGRESS_PROBE_TARGETS";
    /// The workload's packets would not go by the tailnet interface.
    PathBypassesTailnet = "path-bypasses-tailnet", 5,
        "remove the routing rule or accepted route that goes before Tailscale's (ip rule; TS_ACCEPT_ROUTES=false)";
    /// No service told the public address.
    AddressNotLearned = "address-not-learned", 6, "set TS_EGRESS_CHECK_URLS to services that this path reaches";
    /// The public address is not in the list.
    AddressNotExpected = "address-not-expected", 6,
        "correct TS_EGRESS_EXPECTED_IPS, or the exit node's Internet side";
    /// The kill switch was demanded, and this build has none for a guard that runs once.
    KillSwitchUnavailable = "kill-switch-unavailable", 7,
        "set TS_GUARD_KILL_SWITCH=auto to start with the check alone; nothing was changed";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cause_has_a_word_of_its_own() {
        let words: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.word()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
    }

    #[test]
    fn the_documentation_lists_every_word_with_its_exit_code() {
        let page = include_str!("../../../docs/guard.md");
        for reason in Reason::ALL {
            let row = format!("| `{}` | {} |", reason.word(), reason.exit_code());
            assert!(page.contains(&row), "docs/guard.md has no row {row}");
        }
    }

    #[test]
    fn words_are_kebab_case_and_codes_are_those_of_the_table() {
        for reason in Reason::ALL {
            assert!(reason.word().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{reason}");
            assert!((1..=7).contains(&reason.exit_code()), "{reason}");
            assert!(!reason.advice().is_empty() && !reason.advice().ends_with('.'), "{reason}");
        }
    }
}
