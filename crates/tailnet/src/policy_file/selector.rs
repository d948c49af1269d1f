//! Words that stand for devices, people or addresses, read in headscale's order and looked up in the file's names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::model::{Group, Selector, Tag};

/// Roles of users that `autogroup:` names and the file does not fill.
const ROLES: [&str; 7] =
    ["admin", "auditor", "billing-admin", "it-admin", "network-admin", "owner", "shared"];

/// Where a word stands: not every word may stand everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Source,
    Target,
    GrantTarget,
    Owner,
    Via,
    TestSource,
    TestTarget,
}

/// What the file names.
pub(super) struct Names<'a> {
    pub(super) groups: &'a BTreeMap<String, Group>,
    pub(super) hosts: &'a BTreeMap<String, IpNet>,
    pub(super) tags: &'a BTreeSet<Tag>,
}

/// Reads an address or a prefix; host bits are cut off, as control servers do.
pub(super) fn prefix(text: &str) -> Option<IpNet> {
    match text.parse::<IpAddr>() {
        Ok(address) => Some(address.into()),
        Err(_) => text.parse::<IpNet>().ok().map(|prefix| prefix.trunc()),
    }
}

/// Reads a word for a place.
pub(super) fn read(word: &str, role: Use, names: &Names<'_>) -> Result<Selector, String> {
    let selector = look_up(word, names)?;
    let misplaced = || Err(format!("{word:?} cannot stand here"));
    match (role, &selector) {
        (Use::Source, Selector::Internet | Selector::Own) => misplaced(),
        (Use::Target | Use::GrantTarget, Selector::Everything) => misplaced(),
        (Use::GrantTarget, Selector::Prefix(prefix)) if prefix.prefix_len() == 0 => {
            Err(format!("{word:?} cannot stand here: use autogroup:internet"))
        }
        (
            Use::Owner,
            Selector::Tag(_) | Selector::User(_) | Selector::Group(_) | Selector::Member | Selector::Role(_),
        )
        | (Use::Via, Selector::Tag(_)) => Ok(selector),
        (Use::Owner, Selector::Opaque(word)) if word.starts_with("autogroup:") => Ok(selector),
        (Use::Owner, _) => Err(format!("{word:?} cannot stand here: want a user, a group or a tag")),
        (Use::Via, _) => Err(format!("{word:?} cannot stand here: want a tag")),
        (Use::TestSource, Selector::Any | Selector::Internet | Selector::Own | Selector::Everything)
        | (Use::TestTarget, Selector::Any | Selector::Internet | Selector::Own | Selector::Everything) => {
            misplaced()
        }
        (Use::TestSource | Use::TestTarget, Selector::Prefix(prefix)) if !is_single(prefix) => {
            Err(format!("{word:?} stands for more than one address"))
        }
        (Use::Source | Use::Target | Use::GrantTarget | Use::TestSource | Use::TestTarget, _) => Ok(selector),
    }
}

/// Tells whether a prefix is one address.
pub(super) fn is_single(prefix: &IpNet) -> bool {
    prefix.prefix_len() == prefix.max_prefix_len()
}

fn look_up(word: &str, names: &Names<'_>) -> Result<Selector, String> {
    if let Some(prefix) = prefix(word) {
        return Ok(Selector::Prefix(prefix));
    }
    if word == "*" {
        return Ok(Selector::Any);
    }
    if word.contains('@') {
        return Ok(Selector::User(word.to_owned()));
    }
    if word.starts_with("group:") {
        return match names.groups.contains_key(word) {
            true => Ok(Selector::Group(word.to_owned())),
            false => Err(format!("{word:?} is not defined in groups")),
        };
    }
    if word.starts_with("tag:") {
        let tag: Tag = word.parse().map_err(|error: super::model::TagError| error.to_string())?;
        return match names.tags.contains(&tag) {
            true => Ok(Selector::Tag(tag)),
            false => Err(format!("{word:?} is not defined in tagOwners")),
        };
    }
    if let Some(group) = word.strip_prefix("autogroup:") {
        return Ok(match group {
            "internet" => Selector::Internet,
            "member" | "members" => Selector::Member,
            "tagged" => Selector::Tagged,
            "self" => Selector::Own,
            "danger-all" => Selector::Everything,
            "" => return Err("\"autogroup:\" needs a name".to_owned()),
            role if ROLES.contains(&role) => Selector::Role(word.to_owned()),
            _ => Selector::Opaque(word.to_owned()),
        });
    }
    if word.starts_with("ipset:") || word.starts_with("svc:") {
        return Ok(Selector::Opaque(word.to_owned()));
    }
    match names.hosts.get(word) {
        Some(prefix) => Ok(Selector::Prefix(*prefix)),
        None if word.is_empty() => Err("an empty name".to_owned()),
        None => Err(format!("{word:?} is neither an address nor defined in hosts")),
    }
}
