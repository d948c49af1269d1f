//! The body of `start`, the one request that holds a secret: written once, into memory that is wiped.

use std::io;

use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use zeroize::Zeroizing;

use super::StartOptions;
use crate::error::Error;
use crate::wire::prefs::Prefs;

/// `ipn/backend.go:Options`.
#[derive(Serialize)]
struct Options<'a> {
    #[serde(rename = "UpdatePrefs", skip_serializing_if = "Option::is_none")]
    prefs: Option<Prefs>,
    #[serde(rename = "AuthKey", skip_serializing_if = "Option::is_none")]
    auth_key: Option<&'a str>,
}

/// Counts what would be written.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the body into one allocation that never grows, so that no stray copy of the key is left behind.
pub(super) fn body(options: &StartOptions) -> Result<Bytes, Error> {
    written(options).map(Bytes::from_owner)
}

fn written(options: &StartOptions) -> Result<Zeroizing<Vec<u8>>, Error> {
    let options = Options {
        prefs: options.update_prefs.clone().map(without_identity),
        auth_key: options.auth_key.as_ref().map(|key| key.expose_secret()),
    };
    // What serde says of a value may quote it.
    let unwritable = |_| Error::malformed("POST start", "the request itself cannot be written");
    let mut length = Length(0);
    serde_json::to_writer(&mut length, &options).map_err(unwritable)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(length.0));
    serde_json::to_writer(&mut *bytes, &options).map_err(unwritable)?;
    Ok(bytes)
}

/// Leaves the persisted identity out: the daemon has it, and would take ours for a new one.
fn without_identity(mut prefs: Prefs) -> Prefs {
    prefs.rest.remove("Config");
    prefs
}

/// Cuts the key out of an error, should the daemon have quoted it.
pub(super) fn without_key(error: Error, key: Option<&SecretString>) -> Error {
    let Some(key) = key.map(|key| key.expose_secret()).filter(|key| !key.is_empty()) else { return error };
    let clean = |message: String| message.replace(key, "[auth key]");
    match error {
        Error::Http { request, status, message } => Error::Http { request, status, message: clean(message) },
        Error::AccessDenied { request, message } => Error::AccessDenied { request, message: clean(message) },
        Error::Precondition { request, message } => Error::Precondition { request, message: clean(message) },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn keyed() -> StartOptions {
        let mut prefs = Prefs { hostname: "worker".into(), ..Prefs::fresh() };
        prefs.rest.insert("Config".into(), json!({ "PrivateNodeKey": "privkey:00" }));
        prefs.rest.insert("FromTheFuture".into(), json!({ "kept": [1, 2] }));
        StartOptions { update_prefs: Some(prefs), auth_key: Some("tskey-auth-canary".into()) }
    }

    #[test]
    fn the_body_carries_key_and_preferences_but_no_identity() {
        let body: Value = serde_json::from_slice(&body(&keyed()).expect("a body")).expect("json");
        assert_eq!(body["AuthKey"], "tskey-auth-canary");
        assert_eq!(body["UpdatePrefs"]["Hostname"], "worker");
        assert_eq!(body["UpdatePrefs"]["FromTheFuture"], json!({ "kept": [1, 2] }));
        assert_eq!(body["UpdatePrefs"].get("Config"), None);
    }

    #[test]
    fn the_memory_that_holds_the_key_never_grew() {
        for length in 0..64 {
            let mut options = keyed();
            options.update_prefs.as_mut().expect("preferences").hostname = "x".repeat(length);
            let bytes = written(&options).expect("a body");
            assert_eq!(bytes.capacity(), bytes.len());
        }
    }

    #[test]
    fn nothing_given_is_nothing_sent() {
        assert_eq!(body(&StartOptions::default()).expect("a body"), "{}");
    }

    #[test]
    fn a_key_that_the_daemon_quotes_is_cut_out() {
        let key = SecretString::from("tskey-auth-canary");
        let quoted = || Error::Http {
            request: "POST start".into(),
            status: 500,
            message: "bad key tskey-auth-canary, tskey-auth-canary".into(),
        };
        let said = without_key(quoted(), Some(&key));
        assert!(said.to_string().ends_with("bad key [auth key], [auth key]"), "{said}");
        assert!(!format!("{said:?} {:?}", keyed()).contains("canary"));
        let empty = SecretString::from("");
        assert!(without_key(quoted(), Some(&empty)).to_string().contains("bad key tskey"));
    }
}
