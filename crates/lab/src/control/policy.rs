//! The tailnet policy of a lab, as HuJSON: the worker reaches the app devices, sees the exits and, by them, reaches the Internet.

use serde_json::{Map, Value, json};

use crate::topology::{Role, Topology};

/// Whether the worker may use exit nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Internet {
    /// `autogroup:internet` is granted: exit nodes are visible to the worker.
    Granted,
    /// It is not: approved exit nodes stay hidden from it.
    Withheld,
}

/// The policy for a topology. Every tag is its own owner's (nobody's): keys carry them.
#[must_use]
pub fn of(topology: &Topology, internet: Internet) -> String {
    let owners: Map<String, Value> = topology.tags().into_iter().map(|tag| (tag, json!([]))).collect();
    let workers = &topology.worker().tags;
    let mut targets: Vec<String> =
        topology.of_role(Role::App).flat_map(|app| app.tags.iter().map(|tag| format!("{tag}:*"))).collect();
    // As devices, so that one that is no exit for the worker is still seen, and the reason can be told.
    targets.extend(
        topology.of_role(Role::Exit).flat_map(|exit| exit.tags.iter().map(|tag| format!("{tag}:22"))),
    );
    targets.sort();
    targets.dedup();
    if internet == Internet::Granted {
        targets.push("autogroup:internet:*".into());
    }
    let rules = if workers.is_empty() || targets.is_empty() {
        json!([])
    } else {
        json!([{ "action": "accept", "src": workers, "dst": targets }])
    };
    let policy = json!({ "tagOwners": owners, "acls": rules });
    format!("{policy:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_internet_is_one_target_among_others_and_can_be_withheld() {
        let topology = Topology::built_in();
        let granted: Value = serde_json::from_str(&of(&topology, Internet::Granted)).expect("JSON");
        assert_eq!(granted["acls"][0]["src"], json!(["tag:worker"]));
        assert_eq!(granted["acls"][0]["dst"], json!(["tag:app:*", "tag:exit:22", "autogroup:internet:*"]));
        assert_eq!(granted["tagOwners"]["tag:exit"], json!([]));
        let withheld: Value = serde_json::from_str(&of(&topology, Internet::Withheld)).expect("JSON");
        assert_eq!(withheld["acls"][0]["dst"], json!(["tag:app:*", "tag:exit:22"]));
    }
}
