//! The rule that a refused question lacks, as one would write it into this file.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::model::{Policy, Section};
use super::place::Place;
use super::ranges;
use super::world::{Destination, Family, Host, Identity, Source};

/// A rule that would allow a flow.
pub(super) fn for_flow(
    policy: &Policy,
    source: &Source,
    place: &Place<'_>,
    destination: &Destination,
    family: Family,
) -> String {
    let host = match (place, &destination.host) {
        (Place::Outside(address), Host::Address(_)) if ranges::is_internet(*address) => {
            "autogroup:internet".to_owned()
        }
        // A policy does not know devices by name.
        (Place::Device { identity: Identity::Tags(tags), .. }, Host::Name(name))
            if !policy.hosts.contains_key(name) =>
        {
            tags.first().map_or_else(|| name.clone(), ToString::to_string)
        }
        (Place::Device { addresses: Some(addresses), .. }, Host::Name(name))
            if !policy.hosts.contains_key(name) =>
        {
            let own = addresses.iter().find(|address| family.is_of(**address));
            own.map_or_else(|| name.clone(), ToString::to_string)
        }
        (_, host) => host.to_string(),
    };
    let port = destination.port.map_or_else(|| "*".to_owned(), |port| port.to_string());
    let protocol = destination.protocol.to_string();
    rule(policy, source, &host, &port, Some(&protocol))
}

/// A rule that would let a source use exit nodes.
pub(super) fn for_exit(policy: &Policy, source: &Source) -> String {
    rule(policy, source, "autogroup:internet", "*", None)
}

fn rule(policy: &Policy, source: &Source, host: &str, port: &str, protocol: Option<&str>) -> String {
    let source = match &source.identity {
        Identity::Tags(tags) => tags.first().map(ToString::to_string),
        Identity::User(login) => Some(login.clone()),
        Identity::Somebody | Identity::Unknown => None,
    }
    .or_else(|| source.addresses.as_ref()?.first().map(ToString::to_string))
    .unwrap_or_else(|| "<source>".to_owned());
    let rules = policy.rules.as_deref().unwrap_or_default();
    let rule: Value = if rules.iter().any(|rule| rule.at.section == Section::Grants) || rules.is_empty() {
        let service = protocol.map_or_else(|| port.to_owned(), |protocol| format!("{protocol}:{port}"));
        json!({ "src": [source], "dst": [host], "ip": [service] })
    } else {
        let host = if host.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()) {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        let dst = format!("{host}:{port}");
        match protocol {
            Some(protocol) => json!({ "action": "accept", "src": [source], "proto": protocol, "dst": [dst] }),
            None => json!({ "action": "accept", "src": [source], "dst": [dst] }),
        }
    };
    rule.to_string()
}
