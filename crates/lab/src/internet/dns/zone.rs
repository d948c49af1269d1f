//! The names that the lab's DNS server knows.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::internet::table::{DOMAIN, NAMES};

/// How long an answer may be kept, in seconds, unless a name says otherwise: short, since labs change.
pub const DEFAULT_TTL: u32 = 5;

/// How many aliases in a row are followed.
const ALIASES: usize = 8;

/// What stands under one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// IPv4 addresses.
    #[serde(default)]
    pub v4: Vec<Ipv4Addr>,
    /// IPv6 addresses.
    #[serde(default)]
    pub v6: Vec<Ipv6Addr>,
    /// Another name, whose addresses count instead.
    #[serde(default)]
    pub alias: Option<String>,
    /// How long an answer may be kept, in seconds; [`DEFAULT_TTL`] where absent.
    #[serde(default)]
    pub ttl: Option<u32>,
}

impl FromIterator<IpAddr> for Records {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let mut records = Self::default();
        for address in addresses {
            match address {
                IpAddr::V4(v4) => records.v4.push(v4),
                IpAddr::V6(v6) => records.v6.push(v6),
            }
        }
        records
    }
}

/// Names and what stands under them. Names are kept in lower case without their last dot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Zone {
    names: BTreeMap<String, Records>,
}

/// What following a name led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// The aliases on the way, each with the name it stands for.
    pub(super) aliases: Vec<(String, &'a str, u32)>,
    /// The last name.
    pub(super) name: String,
    /// What stands under it; nothing where an alias leads nowhere.
    pub(super) records: Option<&'a Records>,
}

impl Zone {
    /// The names that every lab has.
    #[must_use]
    pub fn lab() -> Self {
        let mut zone = Self::default();
        for (name, v4, v6) in NAMES {
            let addresses = v4.map(IpAddr::V4).into_iter().chain(v6.map(IpAddr::V6));
            zone.define(&format!("{name}.{DOMAIN}"), addresses.collect());
        }
        zone
    }

    /// Sets what stands under a name, whatever stood there before.
    pub fn define(&mut self, name: &str, records: Records) {
        self.names.insert(normal(name), records);
    }

    /// Removes a name; whether it was there.
    pub fn forget(&mut self, name: &str) -> bool {
        self.names.remove(&normal(name)).is_some()
    }

    /// Follows a name; `None` where it does not exist.
    pub(super) fn find(&self, name: &str) -> Option<Found<'_>> {
        let mut name = normal(name);
        let mut records = self.names.get(&name)?;
        let mut aliases = Vec::new();
        while let Some(alias) = &records.alias {
            if aliases.len() == ALIASES {
                return Some(Found { aliases, name, records: None });
            }
            let next = normal(alias);
            aliases.push((name, alias.as_str(), records.ttl.unwrap_or(DEFAULT_TTL)));
            name = next;
            match self.names.get(&name) {
                Some(found) => records = found,
                None => return Some(Found { aliases, name, records: None }),
            }
        }
        Some(Found { aliases, name, records: Some(records) })
    }
}

fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_any_spelling() {
        let zone = Zone::lab();
        for spelling in ["echo.lab.example", "ECHO.Lab.Example.", "echo.lab.example."] {
            assert!(zone.find(spelling).is_some(), "{spelling}");
        }
        assert_eq!(zone.find("lab.example"), None);
    }

    #[test]
    fn an_alias_is_followed_and_a_ring_of_them_ends() {
        let mut zone = Zone::lab();
        let alias = |to: &str| Records { alias: Some(to.to_string()), ..Records::default() };
        zone.define("www.lab.example", alias("echo4.lab.example."));
        let found = zone.find("www.lab.example").expect("defined");
        assert_eq!((found.aliases.len(), found.name.as_str()), (1, "echo4.lab.example"));
        assert!(found.records.is_some());
        zone.define("a.lab.example", alias("b.lab.example"));
        zone.define("b.lab.example", alias("a.lab.example"));
        assert_eq!(zone.find("a.lab.example").expect("defined").records, None);
        zone.define("lost.lab.example", alias("nowhere.example"));
        assert_eq!(zone.find("lost.lab.example").expect("defined").records, None);
    }
}
