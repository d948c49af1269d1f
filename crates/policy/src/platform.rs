//! The platform-internal addresses: one table, each line with its source, and what a machine adds to it.
//!
//! **Public** is every IPv4 address and every address of `2000::/3` that the table does not list. Documentation
//! ranges are not listed: laboratories use them as the Internet.

use std::net::IpAddr;
use std::sync::LazyLock;

use crate::cidr::{Cidr, FamilySet};
use crate::ranges::Ranges;

/// Whether an explicit cidr rule may open a range of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Opens {
    /// A cidr rule that names it opens it; `any` and names do not.
    ByCidr,
    /// No rule ever opens it.
    Never,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The range, as a prefix.
    pub cidr: &'static str,
    /// What may open it.
    pub opens: Opens,
    /// What it is.
    pub what: &'static str,
    /// Who says so.
    pub source: &'static str,
}

const fn line(cidr: &'static str, opens: Opens, what: &'static str, source: &'static str) -> Line {
    Line { cidr, opens, what, source }
}

use Opens::{ByCidr, Never};

/// The table. Where a narrower line lies in a wider one, `Never` wins.
pub const TABLE: &[Line] = &[
    line("0.0.0.0/8", Never, "this network", "RFC 791 3.2, RFC 6890"),
    line("10.0.0.0/8", ByCidr, "private", "RFC 1918"),
    line(
        "100.64.0.0/10",
        Never,
        "shared address space; tailnet addresses",
        "RFC 6598; tailscale.com/kb/1015",
    ),
    line("127.0.0.0/8", Never, "loopback", "RFC 1122 3.2.1.3"),
    line(
        "168.63.129.16/32",
        Never,
        "metadata (Azure platform channel)",
        "Azure: what is IP address 168.63.129.16",
    ),
    line(
        "169.254.0.0/16",
        Never,
        "link-local; metadata 169.254.169.254",
        "RFC 3927; cloud vendors' documentation",
    ),
    line("172.16.0.0/12", ByCidr, "private", "RFC 1918"),
    line(
        "192.0.0.0/24",
        Never,
        "IETF protocol assignments; metadata 192.0.0.192",
        "RFC 6890; Oracle Cloud documentation",
    ),
    line("192.88.99.0/24", Never, "6to4 relay anycast, deprecated", "RFC 7526"),
    line("192.168.0.0/16", ByCidr, "private", "RFC 1918"),
    line("198.18.0.0/15", Never, "benchmarking", "RFC 2544"),
    line("224.0.0.0/4", Never, "multicast", "RFC 5771"),
    line("240.0.0.0/4", Never, "reserved; limited broadcast", "RFC 1112 4; RFC 919"),
    line(
        "::/3",
        Never,
        "loopback, unspecified, IPv4-mapped, NAT64 64:ff9b::/96, discard: not global unicast",
        "RFC 4291 2.4; RFC 6052",
    ),
    line(
        "2001::/23",
        Never,
        "IETF protocol assignments: Teredo, benchmarking, ORCHID",
        "RFC 2928; RFC 4380; RFC 5180; RFC 7343",
    ),
    line("2002::/16", Never, "6to4: an IPv4 address inside", "RFC 3056"),
    line("4000::/2", Never, "not assigned", "IANA ipv6-address-space"),
    line("8000::/2", Never, "not assigned", "IANA ipv6-address-space"),
    line("c000::/3", Never, "not assigned", "IANA ipv6-address-space"),
    line("e000::/4", Never, "not assigned", "IANA ipv6-address-space"),
    line("f000::/5", Never, "not assigned", "IANA ipv6-address-space"),
    line("f800::/6", Never, "not assigned", "IANA ipv6-address-space"),
    line("fc00::/7", ByCidr, "unique local", "RFC 4193"),
    line("fd00:ec2::/32", Never, "metadata fd00:ec2::254 (EC2)", "AWS: instance metadata over IPv6"),
    line("fd20:ce::/32", Never, "metadata fd20:ce::254 (GCE)", "Google Cloud: metadata server over IPv6"),
    line("fd7a:115c:a1e0::/48", Never, "tailnet addresses", "tailscale.com/kb/1033"),
    line(
        "fe00::/7",
        Never,
        "link-local fe80::/10, site-local, multicast ff00::/8",
        "RFC 4291 2.5.6, 2.7; RFC 3879",
    ),
];

struct Sets {
    public: [FamilySet; 2],
    never: [FamilySet; 2],
}

static SETS: LazyLock<Sets> = LazyLock::new(|| {
    let lines = |wanted: &[Opens]| {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for line in TABLE.iter().filter(|line| wanted.contains(&line.opens)) {
            match line.cidr.parse::<Cidr>().expect("the table holds canonical prefixes").ends() {
                (IpAddr::V4(a), IpAddr::V4(b)) => v4.push((a.to_bits(), b.to_bits())),
                (IpAddr::V6(a), IpAddr::V6(b)) => v6.push((a.to_bits(), b.to_bits())),
                (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
            }
        }
        (Ranges::union_of(v4), Ranges::union_of(v6))
    };
    let (v4, v6) = lines(&[Never, ByCidr]);
    let public = [
        FamilySet::V4(Ranges::one(0, u32::MAX).minus(&v4)),
        FamilySet::V6(Ranges::one(0, u128::MAX).minus(&v6)),
    ];
    let (v4, v6) = lines(&[Never]);
    Sets { public, never: [FamilySet::V4(v4), FamilySet::V6(v6)] }
});

fn of_family<'a>(sets: &'a [FamilySet; 2], set: &FamilySet) -> &'a FamilySet {
    match set {
        FamilySet::V4(_) => &sets[0],
        FamilySet::V6(_) => &sets[1],
    }
}

/// Whether `address` is public: global unicast without the table.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    SETS.public.iter().any(|set| set.contains(address))
}

/// Whether no rule ever opens `address`.
#[must_use]
pub fn is_never(address: IpAddr) -> bool {
    SETS.never.iter().any(|set| set.contains(address))
}

/// The public addresses of the family of `set`.
pub(crate) fn public_like(set: &FamilySet) -> &'static FamilySet {
    of_family(&SETS.public, set)
}

/// The addresses of the family of `set` that no rule ever opens.
pub(crate) fn never_like(set: &FamilySet) -> &'static FamilySet {
    of_family(&SETS.never, set)
}

/// The public addresses, IPv4 then IPv6.
pub(crate) fn public() -> &'static [FamilySet; 2] {
    &SETS.public
}

/// The line of the table that says most about `address`.
#[must_use]
pub fn line_of(address: IpAddr) -> Option<&'static Line> {
    let covers = |line: &&Line| {
        line.cidr.parse::<Cidr>().is_ok_and(|cidr| {
            Cidr::of(address, if address.is_ipv4() { 32 } else { 128 }).is_some_and(|one| cidr.covers(&one))
        })
    };
    TABLE
        .iter()
        .filter(covers)
        .max_by_key(|line| line.cidr.parse::<Cidr>().map_or(0, |cidr| cidr.prefix_len()))
}

/// What a machine adds to the table: its own addresses and its runner's, which no rule opens either.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    reserved: Vec<(Cidr, String)>,
    table: Table,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Table {
    #[default]
    Applies,
    Ignored,
}

impl Platform {
    /// The table and nothing more.
    #[must_use]
    pub fn standard() -> Self {
        Self::default()
    }

    /// No table at all: rules as they are declared. For comparing declarations, never for a gate.
    #[must_use]
    pub fn declared_only() -> Self {
        Self { reserved: Vec::new(), table: Table::Ignored }
    }

    /// The same, with one more range that no rule opens; `what` says whose it is (`gate`, `host`, `sandboxes`).
    #[must_use]
    pub fn reserve(mut self, cidr: Cidr, what: impl Into<String>) -> Self {
        self.reserved.push((cidr, what.into()));
        self
    }

    /// Whose the address is, if no rule may open it here.
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<&str> {
        let one = Cidr::of(address, if address.is_ipv4() { 32 } else { 128 });
        let reserved = self.reserved.iter().find(|(cidr, _)| one.is_some_and(|one| cidr.covers(&one)));
        reserved.map(|(_, what)| what.as_str()).or_else(|| {
            let table = self.table == Table::Applies && is_never(address);
            table.then(|| line_of(address).map_or("not global unicast", |line| line.what))
        })
    }

    /// Every range that no rule may open here.
    #[must_use]
    pub fn shut(&self) -> Vec<(IpAddr, IpAddr)> {
        let table = SETS.never.iter().filter(|_| self.table == Table::Applies).flat_map(FamilySet::ranges);
        table.chain(self.reserved.iter().map(|(cidr, _)| cidr.ends())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_canonical_prefix_with_a_source() {
        for line in TABLE {
            assert!(line.cidr.parse::<Cidr>().is_ok(), "{}", line.cidr);
            assert!(!line.source.is_empty() && !line.what.is_empty());
        }
    }

    #[test]
    fn ipv6_that_is_public_is_exactly_global_unicast_less_two_lines() {
        let FamilySet::V6(public) = &SETS.public[1] else { panic!("the second set is IPv6") };
        let word = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").to_bits();
        let expected = Ranges::one(word("2000::"), word("3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")).minus(
            &Ranges::union_of(vec![
                (word("2001::"), word("2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff")),
                (word("2002::"), word("2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
            ]),
        );
        assert_eq!(*public, expected);
    }
}
