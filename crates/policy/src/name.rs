//! DNS names in their one canonical spelling, and patterns of names with excepts.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// The longest name, in bytes, without a trailing dot (RFC 1035 §2.3.4, RFC 1123).
pub(crate) const MAX_NAME: usize = 253;
/// The longest label, in bytes.
pub(crate) const MAX_LABEL: usize = 63;

/// Names that never have a public address: RFC 6761 (`localhost`, `invalid`), RFC 7686 (`onion`).
const NEVER: [&str; 3] = ["localhost", "invalid", "onion"];

/// A DNS name: a DNS-1123 subdomain of at most 253 bytes, lower case, international labels as A-labels.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName(Box<str>);

/// Why a text is not a name or a pattern of names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("a name is empty; write one such as pkg.example.org")]
    Empty,
    /// An absolute name with its trailing dot.
    #[error("leave out the trailing dot")]
    TrailingDot,
    /// An address.
    #[error("this is an address, not a name; write it as a cidr")]
    Address,
    /// A last label that URL parsers take for a number.
    #[error("a name whose last label is a number is read as an address and never matches")]
    Numeric,
    /// `*` somewhere else than as the whole first label.
    #[error("a wildcard is one whole label at the front: *.example.com")]
    Wildcard,
    /// More than 253 bytes.
    #[error("a name has at most 253 bytes")]
    TooLong,
    /// A label that is empty, longer than 63 bytes, or holds something else than letters, digits and inner hyphens.
    #[error("each label is 1 to 63 letters, digits and inner hyphens")]
    Label,
    /// Not a valid internationalised name.
    #[error("not a valid internationalised name (UTS 46)")]
    International,
    /// A name that no resolver gives a public address.
    #[error("names under {0} never have a public address, so this can never match")]
    NeverPublic(&'static str),
    /// A wildcard so long that no name fits under it.
    #[error("no name of at most 253 bytes lies under this wildcard, so it can never match")]
    NoRoom,
}

impl DnsName {
    /// Reads a name: surrounding blanks dropped, case folded, international labels turned into A-labels.
    ///
    /// # Errors
    ///
    /// When the text is no DNS-1123 subdomain after that, or could be taken for an address.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let text = text.trim_matches([' ', '\t']);
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.parse::<std::net::IpAddr>().is_ok() {
            return Err(NameError::Address);
        }
        if text.contains('*') {
            return Err(NameError::Wildcard);
        }
        // A bound before the costly part: no input of this many bytes becomes a legal name.
        if text.len() > 4 * MAX_NAME {
            return Err(NameError::TooLong);
        }
        if text.ends_with('.') {
            return Err(NameError::TrailingDot);
        }
        if text.split('.').any(str::is_empty) {
            return Err(NameError::Label);
        }
        let ascii = if text.is_ascii() && !text.to_ascii_lowercase().contains("xn--") {
            text.to_ascii_lowercase()
        } else {
            Uts46::new()
                .to_ascii(text.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Ignore)
                .map_err(|_| NameError::International)?
                .into_owned()
        };
        if ascii.len() > MAX_NAME {
            return Err(NameError::TooLong);
        }
        if !ascii.split('.').all(is_label) {
            return Err(NameError::Label);
        }
        let last = ascii.rsplit('.').next().unwrap_or_default();
        let hexadecimal =
            last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
        if hexadecimal || last.bytes().all(|b| b.is_ascii_digit()) {
            return Err(NameError::Numeric);
        }
        Ok(Self(ascii.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without its first label, if it has more than one.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.0.split_once('.').map(|(_, parent)| parent)
    }

    /// A name of one more label in front. `None` when that is too long.
    pub(crate) fn child(label: &str, parent: Option<&str>) -> Option<Self> {
        let name = parent.map_or_else(|| label.to_owned(), |parent| format!("{label}.{parent}"));
        (is_label(label) && name.len() <= MAX_NAME).then(|| Self(name.into()))
    }
}

fn is_label(label: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = label.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= MAX_LABEL
        && bytes.iter().all(|&b| inner(b) || b == b'-')
        && inner(bytes[0])
        && inner(bytes[bytes.len() - 1])
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for DnsName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Some names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// One name.
    Exact(DnsName),
    /// `*.d`: the names with exactly one label more than `d`; not `d` itself.
    Children(DnsName),
    /// `*`: every name. In ceilings only.
    Every,
}

impl Pattern {
    /// Reads a name, `*.name` or `*`. Whether `*` may be said here is the caller's to know.
    ///
    /// # Errors
    ///
    /// As [`DnsName::parse`]; also for a pattern that no name with a public address can match.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let text = text.trim_matches([' ', '\t']);
        if text == "*" {
            return Ok(Self::Every);
        }
        let (wild, name) = match text.strip_prefix("*.") {
            Some(name) => (true, DnsName::parse(name)?),
            None => (false, DnsName::parse(text)?),
        };
        let last = name.as_str().rsplit('.').next().unwrap_or_default();
        if let Some(zone) = NEVER.into_iter().find(|&zone| zone == last) {
            return Err(NameError::NeverPublic(zone));
        }
        if wild && name.as_str().len() + 2 > MAX_NAME {
            return Err(NameError::NoRoom);
        }
        Ok(if wild { Self::Children(name) } else { Self::Exact(name) })
    }

    /// Whether `name` is one of these.
    #[must_use]
    pub fn matches(&self, name: &DnsName) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Children(parent) => name.parent() == Some(parent.as_str()),
            Self::Every => true,
        }
    }

    /// Whether every name of `other` is one of these.
    #[must_use]
    pub fn covers(&self, other: &Pattern) -> bool {
        match (self, other) {
            (Self::Every, _) => true,
            (_, Self::Exact(name)) => self.matches(name),
            (Self::Children(mine), Self::Children(theirs)) => mine == theirs,
            (Self::Exact(_) | Self::Children(_), Self::Every) | (Self::Exact(_), Self::Children(_)) => false,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => write!(f, "{name}"),
            Self::Children(parent) => write!(f, "*.{parent}"),
            Self::Every => f.write_str("*"),
        }
    }
}

/// A pattern less its excepts. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameBlock {
    pattern: Pattern,
    except: BTreeSet<Pattern>,
}

impl NameBlock {
    /// A pattern less `except`. `None` when an except lies outside the pattern, or nothing is left.
    #[must_use]
    pub fn new(pattern: Pattern, except: BTreeSet<Pattern>) -> Option<Self> {
        let block = Self { pattern, except };
        let inside = block.except.iter().all(|hole| block.pattern.covers(hole));
        (inside && block.sample().is_some()).then_some(block)
    }

    /// The pattern.
    #[must_use]
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// What is taken out of it.
    #[must_use]
    pub fn except(&self) -> &BTreeSet<Pattern> {
        &self.except
    }

    /// Whether `name` is in the pattern and in no except.
    #[must_use]
    pub fn matches(&self, name: &DnsName) -> bool {
        self.pattern.matches(name) && !self.excepts(name)
    }

    /// Whether some except holds `name`: the name itself, the wildcard above it, or everything.
    pub(crate) fn excepts(&self, name: &DnsName) -> bool {
        self.except.iter().any(|hole| hole.matches(name))
    }

    /// One name of the block.
    pub(crate) fn sample(&self) -> Option<DnsName> {
        representatives(&[self]).into_iter().find(|name| self.matches(name))
    }
}

impl fmt::Display for NameBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pattern)?;
        for (i, hole) in self.except.iter().enumerate() {
            write!(f, "{}{hole}", if i == 0 { " except " } else { ", " })?;
        }
        Ok(())
    }
}

/// One name out of every class of names that these blocks can tell apart: each name that is mentioned, one more child
/// of each parent that is mentioned, and one name of which nothing is mentioned. Whatever holds of these names for
/// the blocks holds of all names.
pub(crate) fn representatives(blocks: &[&NameBlock]) -> BTreeSet<DnsName> {
    let patterns = || blocks.iter().flat_map(|block| std::iter::once(&block.pattern).chain(&block.except));
    let mut mentioned = BTreeSet::new();
    let mut parents = BTreeSet::new();
    for pattern in patterns() {
        match pattern {
            Pattern::Exact(name) => {
                mentioned.insert(name.clone());
            }
            Pattern::Children(parent) => {
                parents.insert(parent.as_str());
            }
            Pattern::Every => {}
        }
    }
    let mut names = mentioned.clone();
    names.extend(parents.iter().filter_map(|parent| fresh_child(parent, &mentioned)));
    names.extend(stranger(&mentioned, &parents));
    names
}

/// The first child of `parent` that is not among `taken`, if there is room for one.
pub(crate) fn fresh_child(parent: &str, taken: &BTreeSet<DnsName>) -> Option<DnsName> {
    let room = (MAX_NAME - parent.len().min(MAX_NAME)).saturating_sub(1).min(MAX_LABEL);
    let short = ["host", "www", "api"].into_iter().map(str::to_owned);
    short
        .chain(labels(room))
        .filter_map(|label| DnsName::child(&label, Some(parent)))
        .find(|name| !taken.contains(name))
}

/// A name that is not mentioned and whose parent is not mentioned either.
pub(crate) fn stranger(mentioned: &BTreeSet<DnsName>, parents: &BTreeSet<&str>) -> Option<DnsName> {
    ["example.net".to_owned(), "example.org".to_owned()]
        .into_iter()
        .chain(labels(MAX_LABEL).map(|label| format!("{label}.test")))
        .find(|parent| !parents.contains(parent.as_str()))
        .and_then(|parent| fresh_child(&parent, mentioned))
}

/// Every label of at most `longest` bytes, short ones first.
fn labels(longest: usize) -> impl Iterator<Item = String> {
    const FIRST: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    const INNER: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789-";
    (1..=longest).flat_map(|length| {
        let mut digits = Some(vec![0usize; length]);
        std::iter::from_fn(move || {
            let now = digits.clone()?;
            let base = |i: usize| if i == 0 || i == length - 1 { FIRST.len() } else { INNER.len() };
            let mut next = now.clone();
            digits = (0..length)
                .rev()
                .find_map(|i| {
                    next[i] += 1;
                    if next[i] < base(i) {
                        return Some(());
                    }
                    next[i] = 0;
                    None
                })
                .map(|()| next);
            Some(now.into_iter().map(|i| char::from(INNER[i])).collect())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_short_first_and_each_once() {
        let all: Vec<String> = labels(3).take(36 + 36 * 36 + 36 * 37 * 36 + 5).collect();
        assert_eq!(all.len(), 36 + 36 * 36 + 36 * 37 * 36);
        assert!(all.iter().all(|label| is_label(label)));
        assert!(all.windows(2).all(|pair| pair[0].len() <= pair[1].len()));
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(labels(0).count(), 0);
    }

    #[test]
    fn a_wildcard_with_room_for_one_byte_is_empty_once_its_36_children_are_excepted() {
        let parent = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(59)].join(".");
        assert_eq!(parent.len(), 251);
        let pattern = Pattern::parse(&format!("*.{parent}")).expect("251 + 2 bytes fit");
        let children: BTreeSet<Pattern> = labels(1)
            .map(|label| Pattern::Exact(DnsName::child(&label, Some(&parent)).expect("fits")))
            .collect();
        assert_eq!(children.len(), 36);
        assert_eq!(NameBlock::new(pattern.clone(), children.clone()), None);
        let most: BTreeSet<Pattern> = children.into_iter().skip(1).collect();
        let block = NameBlock::new(pattern, most).expect("one child is left");
        assert!(block.sample().expect("never empty").as_str().starts_with("0."));
    }
}
