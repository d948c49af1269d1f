//! The public address: what a service may answer, and whether the answer is one that was expected. Pure.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::Serialize;
use thiserror::Error;

/// An address family. IPv4 and IPv6 are asked, judged and reported apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Both, IPv4 first.
    pub const BOTH: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }

    /// `ipv4` or `ipv6`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// One value for each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PerFamily<T> {
    /// Of IPv4.
    pub ipv4: T,
    /// Of IPv6.
    pub ipv6: T,
}

impl<T> PerFamily<T> {
    /// Builds both values.
    pub fn build(mut value: impl FnMut(Family) -> T) -> Self {
        Self { ipv4: value(Family::Ipv4), ipv6: value(Family::Ipv6) }
    }

    /// The value of one family.
    pub fn of(&self, family: Family) -> &T {
        match family {
            Family::Ipv4 => &self.ipv4,
            Family::Ipv6 => &self.ipv6,
        }
    }

    /// The value of one family, to change.
    pub fn of_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::Ipv4 => &mut self.ipv4,
            Family::Ipv6 => &mut self.ipv6,
        }
    }

    /// Both values, IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = (Family, &T)> {
        [(Family::Ipv4, &self.ipv4), (Family::Ipv6, &self.ipv6)].into_iter()
    }
}

/// Why a service's answer is not one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// Nothing but white space.
    #[error("the answer is empty")]
    Empty,
    /// Not text.
    #[error("the answer is not text")]
    NotText,
    /// More than one word, each of them an address.
    #[error("the answer holds more than one address")]
    Several,
    /// Something else: a page, JSON, a sentence.
    #[error("the answer is not an address")]
    NotAnAddress,
    /// An address that no host on the Internet has.
    #[error("the answer is {0}, which is no address of the Internet")]
    Impossible(IpAddr),
    /// An IPv6 address to a question asked over IPv4, or the other way round.
    #[error("the answer is {0}, of the other address family")]
    OtherFamily(IpAddr),
}

/// Reads a service's answer to a question asked over `family`: exactly one address, with white space around it at
/// most. An IPv4-mapped IPv6 address is the IPv4 address it holds.
///
/// # Errors
/// Anything else, see [`AnswerError`].
pub fn parse_answer(body: &[u8], family: Family) -> Result<IpAddr, AnswerError> {
    let text = std::str::from_utf8(body).map_err(|_| AnswerError::NotText)?;
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    if text.is_empty() {
        return Err(AnswerError::Empty);
    }
    let Ok(address) = IpAddr::from_str(text) else {
        let separator = |c: char| c.is_ascii_whitespace() || c == ',';
        let words: Vec<_> = text.split(separator).filter(|word| !word.is_empty()).collect();
        let several = words.len() > 1 && words.iter().all(|word| IpAddr::from_str(word).is_ok());
        return Err(if several { AnswerError::Several } else { AnswerError::NotAnAddress });
    };
    let address = address.to_canonical();
    if is_impossible(address) {
        return Err(AnswerError::Impossible(address));
    }
    if Family::of(address) != family {
        return Err(AnswerError::OtherFamily(address));
    }
    Ok(address)
}

fn is_impossible(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    address.is_unspecified() || address.is_loopback() || address.is_multicast() || broadcast
}

/// The public addresses that are expected: single addresses and ranges of either family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Expected(Vec<IpNet>);

/// Why an entry of the list of expected addresses is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExpectedError {
    /// Neither an address nor a range.
    #[error("{0:?} is neither an address nor a CIDR range")]
    NotARange(String),
    /// A range with bits set behind its prefix: one of two things could be meant.
    #[error(
        "{given} has bits set behind its prefix: write {network} for the range or {address} for the address"
    )]
    HostBits {
        /// As it was written.
        given: String,
        /// The range it lies in.
        network: IpNet,
        /// The address it names.
        address: IpAddr,
    },
    /// A range that holds every address, so that nothing would be pinned.
    #[error("{0} holds every address: nothing would be pinned")]
    Everything(IpNet),
}

impl Expected {
    /// Reads entries, IPv4-mapped addresses as the IPv4 addresses they hold.
    pub(crate) fn parse_entry(entry: &str) -> Result<IpNet, ExpectedError> {
        let not_a_range = || ExpectedError::NotARange(entry.to_owned());
        let Some((_, _)) = entry.split_once('/') else {
            let address = IpAddr::from_str(entry).map_err(|_| not_a_range())?;
            return Ok(IpNet::from(address.to_canonical()));
        };
        let range = IpNet::from_str(entry).map_err(|_| not_a_range())?;
        if range.addr() != range.network() {
            return Err(ExpectedError::HostBits {
                given: entry.to_owned(),
                network: range.trunc(),
                address: range.addr(),
            });
        }
        if range.prefix_len() == 0 {
            return Err(ExpectedError::Everything(range));
        }
        Ok(range)
    }

    /// The list of these entries.
    #[must_use]
    pub fn new(entries: Vec<IpNet>) -> Self {
        Self(entries)
    }

    /// Whether nothing is expected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there are entries of this family, which then has to match.
    #[must_use]
    pub fn names(&self, family: Family) -> bool {
        self.0.iter().any(|entry| Family::of(entry.addr()) == family)
    }

    /// Judges what was seen of one family. Nothing seen where something is expected is no match.
    #[must_use]
    pub fn judge(&self, family: Family, seen: Option<IpAddr>) -> Verdict {
        match seen {
            _ if !self.names(family) => Verdict::NotAsked,
            None => Verdict::NotLearned,
            Some(address) if self.0.iter().any(|entry| entry.contains(&address)) => Verdict::Expected,
            Some(_) => Verdict::Foreign,
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            if entry.prefix_len() == entry.max_prefix_len() {
                write!(f, "{}", entry.addr())?;
            } else {
                write!(f, "{entry}")?;
            }
        }
        Ok(())
    }
}

/// What one family's public address means for the posture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing is expected of this family.
    NotAsked,
    /// In the list.
    Expected,
    /// Not in the list.
    Foreign,
    /// Expected, and no service told it.
    NotLearned,
}

impl Verdict {
    /// Whether the workload may start as far as this family goes.
    #[must_use]
    pub fn holds(self) -> bool {
        match self {
            Self::NotAsked | Self::Expected => true,
            Self::Foreign | Self::NotLearned => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v4(body: &str) -> Result<IpAddr, AnswerError> {
        parse_answer(body.as_bytes(), Family::Ipv4)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("a test's address")
    }

    fn expected(entries: &[&str]) -> Expected {
        Expected::new(
            entries.iter().map(|entry| Expected::parse_entry(entry).expect("a good entry")).collect(),
        )
    }

    #[test]
    fn one_address_with_white_space_around_it_is_read() {
        for body in ["203.0.113.10", "203.0.113.10\n", "203.0.113.10\r\n", " \t203.0.113.10 \r\n\r\n"] {
            assert_eq!(v4(body), Ok(ip("203.0.113.10")), "{body:?}");
        }
        let seen = parse_answer(b"2001:DB8:10::10\n", Family::Ipv6);
        assert_eq!(seen, Ok(ip("2001:db8:10::10")));
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address_it_holds() {
        assert_eq!(v4("::ffff:203.0.113.10"), Ok(ip("203.0.113.10")));
        let seen = parse_answer(b"::ffff:203.0.113.10", Family::Ipv6);
        assert_eq!(seen, Err(AnswerError::OtherFamily(ip("203.0.113.10"))));
    }

    #[test]
    fn two_addresses_are_refused_even_when_they_are_the_same() {
        for body in ["203.0.113.10\n203.0.113.11", "203.0.113.10, 2001:db8::1", "203.0.113.10 203.0.113.10"] {
            assert_eq!(v4(body), Err(AnswerError::Several), "{body:?}");
        }
    }

    #[test]
    fn pages_json_and_odd_spellings_are_no_address() {
        let bodies = [
            "<html><body>203.0.113.10</body></html>",
            r#"{"ip":"203.0.113.10"}"#,
            "\"203.0.113.10\"",
            "ip=203.0.113.10",
            "203.0.113.010",
            "203.0.113.10.",
            "203.0.113",
            "3405803786",
            "0xcb.0.113.10",
            "203.0.113.10:443",
            "[2001:db8::1]",
            "fe80::1%eth0",
            "203.0.113.10/32",
            "429 Too Many Requests",
            "\u{feff}203.0.113.10",
            "\u{a0}203.0.113.10",
            "203.0.113.10\0",
        ];
        for body in bodies {
            assert_eq!(v4(body), Err(AnswerError::NotAnAddress), "{body:?}");
        }
        assert_eq!(v4(""), Err(AnswerError::Empty));
        assert_eq!(v4(" \r\n"), Err(AnswerError::Empty));
        assert_eq!(parse_answer(&[0xff, 0xfe], Family::Ipv4), Err(AnswerError::NotText));
    }

    #[test]
    fn addresses_that_no_host_on_the_internet_has_are_refused() {
        for body in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "::ffff:127.0.0.1"] {
            assert!(matches!(v4(body), Err(AnswerError::Impossible(_))), "{body}");
        }
    }

    #[test]
    fn an_answer_of_the_other_family_is_refused() {
        assert!(matches!(v4("2001:db8::1"), Err(AnswerError::OtherFamily(_))));
        assert!(matches!(parse_answer(b"203.0.113.9", Family::Ipv6), Err(AnswerError::OtherFamily(_))));
    }

    #[test]
    fn each_family_with_entries_must_match() {
        let list = expected(&["203.0.113.10", "203.0.113.64/26"]);
        assert_eq!(list.judge(Family::Ipv4, Some(ip("203.0.113.10"))), Verdict::Expected);
        assert_eq!(list.judge(Family::Ipv4, Some(ip("203.0.113.65"))), Verdict::Expected);
        assert_eq!(list.judge(Family::Ipv4, Some(ip("203.0.113.63"))), Verdict::Foreign);
        assert_eq!(list.judge(Family::Ipv4, None), Verdict::NotLearned);
        assert_eq!(list.judge(Family::Ipv6, Some(ip("2001:db8::1"))), Verdict::NotAsked);
        let both = expected(&["203.0.113.10", "2001:db8:10::/48"]);
        assert_eq!(both.judge(Family::Ipv6, None), Verdict::NotLearned);
        assert_eq!(both.judge(Family::Ipv6, Some(ip("2001:db8:10::10"))), Verdict::Expected);
    }

    #[test]
    fn a_mapped_entry_is_an_ipv4_entry() {
        let list = expected(&["::ffff:203.0.113.10"]);
        assert!(list.names(Family::Ipv4) && !list.names(Family::Ipv6));
        assert_eq!(list.to_string(), "203.0.113.10");
    }

    #[test]
    fn entries_that_could_mean_two_things_or_everything_are_refused() {
        let refused = Expected::parse_entry("203.0.113.10/24").expect_err("host bits");
        let text = refused.to_string();
        assert!(text.contains("203.0.113.0/24") && text.contains("203.0.113.10 "), "{text}");
        assert!(matches!(Expected::parse_entry("0.0.0.0/0"), Err(ExpectedError::Everything(_))));
        for entry in ["", "example.org", "203.0.113.0/33", "203.0.113", "203.0.113.1-203.0.113.9"] {
            assert!(matches!(Expected::parse_entry(entry), Err(ExpectedError::NotARange(_))), "{entry:?}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_panics_and_every_accepted_one_is_of_its_family(body: Vec<u8>) {
            for family in Family::BOTH {
                if let Ok(address) = parse_answer(&body, family) {
                    prop_assert_eq!(Family::of(address), family);
                }
            }
        }

        #[test]
        fn what_is_learned_prints_as_it_was_told(address: std::net::Ipv4Addr) {
            let told = IpAddr::from(address);
            let read = parse_answer(format!("{told}\r\n").as_bytes(), Family::Ipv4);
            prop_assert_eq!(read.is_ok(), !is_impossible(told));
        }
    }
}
