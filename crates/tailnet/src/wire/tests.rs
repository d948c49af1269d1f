//! Answers of a real tailscaled 1.102.5, Go's ways of saying nothing, and garbage.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::misc::WhoIs;
use super::notify::Notify;
use super::prefs::{MaskedPrefs, Prefs};
use super::status::{BackendState, StableId, Status};

/// `GET prefs` of a daemon that never logged in, as it came.
const FRESH_PREFS: &str = include_str!("tests/prefs_fresh.json");
/// `GET status` of the same.
const FRESH_STATUS: &str = include_str!("tests/status_fresh.json");

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("this shape is tolerated")
}

#[test]
fn a_fresh_daemons_preferences_survive_being_read_and_written() {
    let original: Value = serde_json::from_str(FRESH_PREFS).expect("json");
    let prefs: Prefs = serde_json::from_str(FRESH_PREFS).expect("preferences");
    assert!(prefs.logged_out && prefs.accept_dns && !prefs.names_exit_node());
    let written = serde_json::to_value(&prefs).expect("json");
    let Value::Object(original) = original else { panic!("an object") };
    for (name, value) in &original {
        let now = written.get(name).cloned().unwrap_or(Value::Null);
        // Go reads null, an empty list and a field that is not there as one.
        let empty = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(items) => items.is_empty(),
            Value::String(_) | Value::Number(_) | Value::Object(_) | Value::Bool(true) => false,
        };
        assert!(*value == now || (empty(value) && empty(&now)), "{name}: {value} became {now}");
    }
}

#[test]
fn a_fresh_daemons_status_is_read() {
    let status: Status = serde_json::from_str(FRESH_STATUS).expect("a status");
    assert_eq!(status.backend_state, BackendState::NeedsLogin);
    assert!(!status.have_node_key && !status.tun && status.peers.is_empty());
    assert!(status.this_node.id.is_empty() && status.peer(&StableId::default()).is_none());
}

#[test]
fn absent_null_and_unknown_fields_are_tolerated_everywhere() {
    let nulls = |names: &[&str]| {
        let mut object = json!({ "FromTheFuture": { "deep": [1] } });
        for name in names {
            object[*name] = Value::Null;
        }
        object
    };
    assert_eq!(read::<Status>(json!({})), Status::default());
    let null_status = nulls(&[
        "Version",
        "TUN",
        "BackendState",
        "HaveNodeKey",
        "AuthURL",
        "TailscaleIPs",
        "Self",
        "ExitNodeStatus",
        "Health",
        "MagicDNSSuffix",
        "CurrentTailnet",
        "Peer",
    ]);
    assert_eq!(read::<Status>(null_status), Status::default());
    let null_peer = nulls(&[
        "ID",
        "DNSName",
        "TailscaleIPs",
        "AllowedIPs",
        "Tags",
        "PrimaryRoutes",
        "Online",
        "ExitNodeOption",
        "Expired",
        "KeyExpiry",
        "LastSeen",
    ]);
    let status: Status = read(json!({ "Peer": { "nodekey:00": null_peer } }));
    assert_eq!(status.peers["nodekey:00"], super::status::PeerStatus::default());
    assert_eq!(
        read::<Notify>(nulls(&["State", "Prefs", "NetMap", "PeersChanged", "Health"])),
        Notify::default()
    );
    let whois: WhoIs = read(nulls(&["Node", "UserProfile", "CapMap"]));
    assert_eq!(whois, WhoIs::default());
    let prefs: Prefs = read(json!({ "ExitNodeIP": null, "AdvertiseTags": null }));
    assert_eq!(prefs, Prefs::default());
}

#[test]
fn an_exit_node_address_is_read_and_its_absence_written_as_go_does() {
    let prefs: Prefs = read(json!({ "ExitNodeIP": "100.64.0.7" }));
    assert_eq!(prefs.exit_node_ip, Some([100, 64, 0, 7].into()));
    assert!(prefs.names_exit_node());
    let cleared = serde_json::to_value(Prefs::default()).expect("json");
    assert_eq!(cleared["ExitNodeIP"], "");
    assert!(serde_json::from_value::<Prefs>(json!({ "ExitNodeIP": "not an address" })).is_err());
}

#[test]
fn every_field_of_a_change_carries_its_mask_and_no_other_does() {
    let change = MaskedPrefs::new()
        .pin_exit_node(&StableId::new("nA"))
        .want_running(true)
        .accept_dns(false)
        .advertise_tags(&["tag:worker".into()])
        .advertise_routes(&["10.0.0.0/8".parse().expect("a prefix")]);
    assert_eq!(
        serde_json::to_value(&change).expect("json"),
        json!({
            "ExitNodeID": "nA", "ExitNodeIDSet": true,
            "ExitNodeIP": "", "ExitNodeIPSet": true,
            "WantRunning": true, "WantRunningSet": true,
            "CorpDNS": false, "CorpDNSSet": true,
            "AdvertiseTags": ["tag:worker"], "AdvertiseTagsSet": true,
            "AdvertiseRoutes": ["10.0.0.0/8"], "AdvertiseRoutesSet": true,
        })
    );
    assert_eq!(serde_json::to_value(MaskedPrefs::new()).expect("json"), json!({}));
}

#[test]
fn what_already_holds_is_no_change() {
    let current: Prefs = read(json!({ "ExitNodeID": "nA", "CorpDNS": true, "AdvertiseTags": null }));
    let wanted = MaskedPrefs::new()
        .pin_exit_node(&StableId::new("nA"))
        .accept_dns(true)
        .advertise_tags(&[])
        .hostname("");
    assert!(wanted.against(&current).is_empty(), "{:?}", wanted.against(&current));
    let other = wanted.pin_exit_node(&StableId::new("nB")).accept_dns(false).against(&current);
    assert_eq!(other.fields().collect::<Vec<_>>(), ["CorpDNS", "ExitNodeID"]);
}

#[test]
fn an_exit_node_that_was_chosen_automatically_is_not_pinned_yet() {
    let chosen: Prefs = read(json!({ "ExitNodeID": "nA", "AutoExitNode": "any" }));
    let pin = MaskedPrefs::new().pin_exit_node(&StableId::new("nA")).against(&chosen);
    assert_eq!(
        serde_json::to_value(&pin).expect("json"),
        json!({ "ExitNodeID": "nA", "ExitNodeIDSet": true })
    );
}

#[test]
fn states_are_read_as_words_and_as_numbers() {
    for (number, word) in [
        (0, "NoState"),
        (1, "InUseOtherUser"),
        (2, "NeedsLogin"),
        (3, "NeedsMachineAuth"),
        (4, "Stopped"),
        (5, "Starting"),
        (6, "Running"),
    ] {
        let state = BackendState::from(word.to_owned());
        assert_eq!(state, BackendState::from_number(number));
        assert_eq!(state.to_string(), word);
        assert_eq!(read::<Notify>(json!({ "State": number })).state, Some(state));
    }
    assert_eq!(BackendState::from_number(7), BackendState::Other("7".into()));
    assert_eq!(BackendState::from_number(-1), BackendState::Other("-1".into()));
    assert_eq!(BackendState::from("Dreaming".to_owned()), BackendState::Other("Dreaming".into()));
}

#[test]
fn any_event_of_peers_calls_for_a_new_status() {
    for event in [
        json!({ "PeersChanged": [{ "ID": 7, "StableID": "n7", "Online": null, "AllowedIPs": ["0.0.0.0/0", "::/0"] }] }),
        json!({ "PeersRemoved": [7] }),
        json!({ "PeerChangedPatch": [{ "NodeID": 7, "Online": false, "LastSeen": "2026-12-01T07:00:00Z" }] }),
        json!({ "NetMap": { "SelfNode": {} } }),
    ] {
        assert!(read::<Notify>(event.clone()).touches_peers(), "{event}");
    }
    assert!(!read::<Notify>(json!({ "State": 6 })).touches_peers());
}

#[test]
fn a_warning_of_the_login_is_read() {
    let notify: Notify = read(json!({ "Health": { "Warnings": { "login-state": {
        "WarnableCode": "login-state", "Severity": "medium", "Title": "Logged out",
        "Text": "You are logged out. The last login error was: invalid key", "ImpactsConnectivity": true } } } }));
    let health = notify.health.expect("health");
    assert!(health.warnings["login-state"].text.ends_with("invalid key"));
}

proptest! {
    #[test]
    fn garbage_never_panics(text in ".{0,400}", bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for input in [text.as_bytes(), &bytes] {
            let _ = serde_json::from_slice::<Status>(input);
            let _ = serde_json::from_slice::<Prefs>(input);
            let _ = serde_json::from_slice::<Notify>(input);
        }
    }

    #[test]
    fn a_real_status_with_one_byte_changed_never_panics(at in 0..FRESH_STATUS.len(), byte in any::<u8>()) {
        let mut input = FRESH_STATUS.as_bytes().to_vec();
        input[at] = byte;
        let _ = serde_json::from_slice::<Status>(&input);
    }

    #[test]
    fn unknown_preferences_come_back_as_they_went(name in "[A-Z][a-z]{3,9}X", number in any::<i64>(), text in ".{0,20}") {
        let original = json!({ name.clone(): { "n": number, "t": text } });
        let prefs: Prefs = read(original.clone());
        prop_assert_eq!(&serde_json::to_value(&prefs).expect("json")[&name], &original[&name]);
    }
}
