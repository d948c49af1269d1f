//! Address prefixes in their one canonical spelling, and a prefix less its excepts as an exact set.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::ranges::{Ranges, Word};

/// An IPv4 or IPv6 prefix with its host bits zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    address: IpAddr,
    length: u8,
}

/// Why a text is not a canonical prefix. Each variant carries what the fix needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// No `/`.
    #[error("a bare address is not a prefix; write {0}")]
    Bare(Cidr),
    /// A zone such as `%eth0`.
    #[error("a zone has no meaning in a rule; leave out everything from the % on")]
    Zone,
    /// Host bits set.
    #[error("host bits are set; write {0}")]
    HostBits(Cidr),
    /// `::ffff:a.b.c.d/n`.
    #[error("an IPv4-mapped IPv6 prefix is ambiguous; write the IPv4 prefix")]
    Mapped,
    /// Longer than the address.
    #[error("the prefix length must be a plain number from 0 to {0}")]
    Length(u8),
    /// Not an address at all.
    #[error("not an IPv4 or IPv6 prefix such as 203.0.113.0/24 or 2001:db8::/32")]
    Syntax,
}

impl Cidr {
    /// The prefix of `length` bits that `address` lies in. `None` when `length` is longer than the address, or the
    /// address is IPv4-mapped.
    #[must_use]
    pub fn of(address: IpAddr, length: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) if length <= 32 => {
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & !host_bits_v4(length)))
            }
            IpAddr::V6(v6) if length <= 128 => {
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !host_bits_v6(length)))
            }
            IpAddr::V4(_) | IpAddr::V6(_) => return None,
        };
        let cidr = Self { address, length };
        (!cidr.is_mapped()).then_some(cidr)
    }

    /// The network address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The number of leading bits that are fixed.
    #[must_use]
    pub fn prefix_len(&self) -> u8 {
        self.length
    }

    /// Whether `other` lies wholly in this prefix.
    #[must_use]
    pub fn covers(&self, other: &Cidr) -> bool {
        self.length <= other.length && Self::of(other.address, self.length) == Some(*self)
    }

    /// The first and last address.
    #[must_use]
    pub fn ends(&self) -> (IpAddr, IpAddr) {
        match self.address {
            IpAddr::V4(v4) => {
                let last = v4.to_bits() | host_bits_v4(self.length);
                (self.address, IpAddr::V4(Ipv4Addr::from_bits(last)))
            }
            IpAddr::V6(v6) => {
                let last = v6.to_bits() | host_bits_v6(self.length);
                (self.address, IpAddr::V6(Ipv6Addr::from_bits(last)))
            }
        }
    }

    /// The fewest prefixes that make up exactly the addresses from `first` to `last`. Empty when the two are of
    /// different families or in the wrong order.
    #[must_use]
    pub fn of_range(first: IpAddr, last: IpAddr) -> Vec<Cidr> {
        match (first, last) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let address = |word| IpAddr::V4(Ipv4Addr::from_bits(word));
                blocks(a.to_bits(), b.to_bits(), 32, host_bits_v4, address)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let address = |word| IpAddr::V6(Ipv6Addr::from_bits(word));
                blocks(a.to_bits(), b.to_bits(), 128, host_bits_v6, address)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => Vec::new(),
        }
    }

    fn is_mapped(&self) -> bool {
        matches!(self.address, IpAddr::V6(v6) if self.length >= 96 && v6.to_ipv4_mapped().is_some())
    }
}

/// The bits that an IPv4 prefix of that length leaves free.
fn host_bits_v4(length: u8) -> u32 {
    u32::MAX.checked_shr(length.into()).unwrap_or(0)
}

/// The bits that an IPv6 prefix of that length leaves free.
fn host_bits_v6(length: u8) -> u128 {
    u128::MAX.checked_shr(length.into()).unwrap_or(0)
}

/// The fewest aligned blocks from `from` to `to`: each time the largest that starts here and does not pass the end.
fn blocks<W>(
    mut from: W,
    to: W,
    longest: u8,
    host_bits: fn(u8) -> W,
    address: impl Fn(W) -> IpAddr,
) -> Vec<Cidr>
where
    W: Word + std::ops::BitAnd<Output = W> + std::ops::BitOr<Output = W>,
{
    let mut prefixes = Vec::new();
    while from <= to {
        let fits = |length: &u8| {
            from & host_bits(*length) == host_bits(longest) && (from | host_bits(*length)) <= to
        };
        let length = (0..=longest).find(fits).unwrap_or(longest);
        prefixes.push(Cidr { address: address(from), length });
        let Some(next) = (from | host_bits(length)).next() else { break };
        from = next;
    }
    prefixes
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        if text.contains('%') {
            return Err(CidrError::Zone);
        }
        let Some((address, length)) = text.split_once('/') else {
            let address: IpAddr = text.parse().map_err(|_| CidrError::Syntax)?;
            let full = if address.is_ipv4() { 32 } else { 128 };
            return Err(Cidr::of(address, full).map_or(CidrError::Mapped, CidrError::Bare));
        };
        let address: IpAddr = address.parse().map_err(|_| CidrError::Syntax)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let plain = length == "0" || (length.bytes().all(|b| b.is_ascii_digit()) && !length.starts_with('0'));
        let length: u8 =
            length.parse().ok().filter(|&n| plain && n <= longest).ok_or(CidrError::Length(longest))?;
        if matches!(address, IpAddr::V6(v6) if length >= 96 && v6.to_ipv4_mapped().is_some()) {
            return Err(CidrError::Mapped);
        }
        let cidr = Cidr::of(address, length).ok_or(CidrError::Syntax)?;
        if cidr.address == address { Ok(cidr) } else { Err(CidrError::HostBits(cidr)) }
    }
}

/// The addresses of a prefix less its excepts, in one family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FamilySet {
    /// IPv4.
    V4(Ranges<u32>),
    /// IPv6.
    V6(Ranges<u128>),
}

impl FamilySet {
    /// Whether every member is in `other`.
    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::V4(a), Self::V4(b)) => a.is_subset(b),
            (Self::V6(a), Self::V6(b)) => a.is_subset(b),
            (Self::V4(_), Self::V6(_)) | (Self::V6(_), Self::V4(_)) => false,
        }
    }

    /// The members that are not in `other`.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::V4(a), Self::V4(b)) => Self::V4(a.minus(b)),
            (Self::V6(a), Self::V6(b)) => Self::V6(a.minus(b)),
            (Self::V4(_), Self::V6(_)) | (Self::V6(_), Self::V4(_)) => self.clone(),
        }
    }

    /// Whether `address` is a member.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::V4(set), IpAddr::V4(v4)) => set.contains(v4.to_bits()),
            (Self::V6(set), IpAddr::V6(v6)) => set.contains(v6.to_bits()),
            (Self::V4(_), IpAddr::V6(_)) | (Self::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// The least member.
    pub(crate) fn first(&self) -> Option<IpAddr> {
        match self {
            Self::V4(set) => set.first().map(|word| IpAddr::V4(Ipv4Addr::from_bits(word))),
            Self::V6(set) => set.first().map(|word| IpAddr::V6(Ipv6Addr::from_bits(word))),
        }
    }

    /// The greatest member.
    pub(crate) fn last(&self) -> Option<IpAddr> {
        match self {
            Self::V4(set) => set.last().map(|word| IpAddr::V4(Ipv4Addr::from_bits(word))),
            Self::V6(set) => set.last().map(|word| IpAddr::V6(Ipv6Addr::from_bits(word))),
        }
    }

    /// The ranges, in ascending order.
    pub(crate) fn ranges(&self) -> Vec<(IpAddr, IpAddr)> {
        let v4 = |word| IpAddr::V4(Ipv4Addr::from_bits(word));
        let v6 = |word| IpAddr::V6(Ipv6Addr::from_bits(word));
        match self {
            Self::V4(set) => set.iter().map(|(a, b)| (v4(a), v4(b))).collect(),
            Self::V6(set) => set.iter().map(|(a, b)| (v6(a), v6(b))).collect(),
        }
    }

    /// The fewest prefixes that make up exactly this set.
    pub(crate) fn prefixes(&self) -> Vec<Cidr> {
        self.ranges().into_iter().flat_map(|(first, last)| Cidr::of_range(first, last)).collect()
    }

    fn of(cidr: Cidr) -> Self {
        match cidr.ends() {
            (IpAddr::V4(first), IpAddr::V4(last)) => Self::V4(Ranges::one(first.to_bits(), last.to_bits())),
            (IpAddr::V6(first), IpAddr::V6(last)) => Self::V6(Ranges::one(first.to_bits(), last.to_bits())),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => Self::V4(Ranges::empty()),
        }
    }
}

/// A prefix less its excepts. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CidrBlock {
    cidr: Cidr,
    except: BTreeSet<Cidr>,
    set: FamilySet,
}

impl CidrBlock {
    /// A prefix less `except`. `None` when an except lies outside `cidr`, or nothing is left.
    #[must_use]
    pub fn new(cidr: Cidr, except: BTreeSet<Cidr>) -> Option<Self> {
        if !except.iter().all(|hole| cidr.covers(hole)) {
            return None;
        }
        let set = match FamilySet::of(cidr) {
            FamilySet::V4(whole) => {
                let holes = except.iter().filter_map(|hole| match hole.ends() {
                    (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits(), b.to_bits())),
                    _ => None,
                });
                FamilySet::V4(whole.minus(&Ranges::union_of(holes.collect())))
            }
            FamilySet::V6(whole) => {
                let holes = except.iter().filter_map(|hole| match hole.ends() {
                    (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits(), b.to_bits())),
                    _ => None,
                });
                FamilySet::V6(whole.minus(&Ranges::union_of(holes.collect())))
            }
        };
        set.first().is_some().then_some(Self { cidr, except, set })
    }

    /// The prefix.
    #[must_use]
    pub fn cidr(&self) -> Cidr {
        self.cidr
    }

    /// What is taken out of it.
    #[must_use]
    pub fn except(&self) -> &BTreeSet<Cidr> {
        &self.except
    }

    /// Whether `address` is in the prefix and in no except.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.set.contains(address)
    }

    /// The addresses, as ascending ranges with both ends included.
    #[must_use]
    pub fn ranges(&self) -> Vec<(IpAddr, IpAddr)> {
        self.set.ranges()
    }

    /// The addresses as a set.
    pub(crate) fn set(&self) -> &FamilySet {
        &self.set
    }
}

impl fmt::Display for CidrBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cidr)?;
        for (i, hole) in self.except.iter().enumerate() {
            write!(f, "{}{hole}", if i == 0 { " except " } else { ", " })?;
        }
        Ok(())
    }
}
