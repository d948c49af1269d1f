//! Named nftables counters: a table of our own whose rules count and never decide.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::netns::Namespace;
use crate::nft::{self, NftError};

/// What a counter has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, headers included, as nftables counts them.
    pub bytes: u64,
}

/// A table of counters on one link's ingress: each packet is counted by the first rule that matches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressCounters {
    /// The table's name.
    pub table: String,
    /// Whose it is; stands in the table's comment.
    pub owner: String,
    /// The link whose incoming packets are counted.
    pub link: String,
    /// Counter name and nft match expression, in the order of trial. An empty expression matches all.
    pub rules: Vec<(String, String)>,
}

impl IngressCounters {
    /// The nft script that makes the table anew, with all counters at zero.
    #[must_use]
    pub fn script(&self) -> String {
        let Self { table, owner, link, rules } = self;
        let mut script =
            format!("table netdev {table}\ndelete table netdev {table}\ntable netdev {table} {{\n");
        let mut text = |line: std::fmt::Arguments<'_>| {
            script.write_fmt(line).expect("writing to a string does not fail");
        };
        text(format_args!("\tcomment \"{owner}\"\n"));
        let names: std::collections::BTreeSet<&String> = rules.iter().map(|(name, _)| name).collect();
        for name in names {
            text(format_args!("\tcounter {name} {{}}\n"));
        }
        text(format_args!(
            "\tchain count {{\n\t\ttype filter hook ingress device \"{link}\" priority -400; policy accept;\n"
        ));
        for (name, expression) in rules {
            text(format_args!("\t\t{expression} counter name {name} accept\n"));
        }
        text(format_args!("\t}}\n}}\n"));
        script
    }

    /// Puts the table in place in `namespace`; an older one of the same name is replaced in the same transaction.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn install(&self, namespace: &Namespace) -> Result<(), NftError> {
        nft::apply(namespace, &self.script())
    }

    /// Reads all counters, by name.
    ///
    /// # Errors
    /// [`NftError::Refused`] where the table is gone.
    pub fn read(&self, namespace: &Namespace) -> Result<BTreeMap<String, Count>, NftError> {
        let listing = nft::list(namespace, &["list", "counters", "table", "netdev", &self.table])?;
        let listing: Listing = serde_json::from_value(listing)
            .map_err(|source| NftError::Answer { label: namespace.label().to_string(), source })?;
        let counters = listing.nftables.into_iter().filter_map(|object| object.counter);
        Ok(counters.map(|counter| (counter.name, counter.count)).collect())
    }
}

/// The part of nft's JSON schema (libnftables-json(5)) that a listing of counters holds.
#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    counter: Option<NamedCount>,
}

#[derive(Deserialize)]
struct NamedCount {
    name: String,
    #[serde(flatten)]
    count: Count,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_replaces_the_table_in_one_transaction_and_counts_each_packet_once() {
        let counters = IngressCounters {
            table: "leak".into(),
            owner: "lab 1".into(),
            link: "h-worker".into(),
            rules: vec![("arp".into(), "ether type arp".into()), ("leak".into(), String::new())],
        };
        let script = counters.script();
        assert!(script.starts_with("table netdev leak\ndelete table netdev leak\n"));
        assert!(script.contains("ether type arp counter name arp accept\n\t\t counter name leak accept"));
        assert_eq!(script.matches("counter arp {}").count(), 1);
    }

    #[test]
    fn a_listing_of_nft_1_0_6_is_read() {
        let json = r#"{"nftables":[{"metainfo":{"version":"1.0.6","release_name":"x","json_schema_version":1}},
            {"counter":{"family":"netdev","name":"leak","table":"t","handle":2,"packets":3,"bytes":252}}]}"#;
        let listing: Listing = serde_json::from_str(json).expect("valid");
        let counter = listing.nftables.into_iter().find_map(|object| object.counter).expect("one counter");
        assert_eq!((counter.name.as_str(), counter.count), ("leak", Count { packets: 3, bytes: 252 }));
    }

    #[tokio::test]
    async fn packets_that_arrive_on_the_link_are_counted_by_the_first_rule_that_matches() {
        use std::sync::Arc;

        use crate::{Links, Resident};

        if crate::privilege::missing() {
            return;
        }
        let [far, near] =
            ["far", "near"].map(|label| Arc::new(Namespace::builder(label).create().expect("made before")));
        let sender = Resident::start(far).expect("a thread");
        let links = Links::of(&sender).await.expect("a socket");
        let receiver = Resident::start(Arc::clone(&near)).expect("a thread");
        let near_links = Links::of(&receiver).await.expect("a socket");
        links.add_veth("out", "in", &near).await.expect("a pair");
        near_links.up("in").await.expect("up");
        links.add_address("out", "192.0.2.1/24".parse().expect("valid")).await.expect("an address");
        links.up("out").await.expect("up");
        let counters = IngressCounters {
            table: "count".into(),
            owner: "test".into(),
            link: "in".into(),
            rules: vec![
                ("declared".into(), "udp dport 53".into()),
                ("leak".into(), "udp dport != 67".into()),
                ("rest".into(), String::new()),
            ],
        };
        counters.install(&near).expect("nft takes the script");
        sender
            .run(|| async {
                let socket = std::net::UdpSocket::bind("192.0.2.1:0").expect("bound");
                socket.set_broadcast(true).expect("broadcast needs no neighbour");
                for port in [53, 53, 9999] {
                    socket.send_to(b"x", ("192.0.2.255", port)).expect("sent");
                }
            })
            .await
            .expect("ran");
        let seen = counters.read(&near).expect("read");
        assert_eq!((seen["declared"].packets, seen["leak"].packets), (2, 1), "{seen:?}");
        counters.install(&near).expect("again");
        assert_eq!(counters.read(&near).expect("read")["leak"], Count::default(), "made anew, at zero");
    }
}
