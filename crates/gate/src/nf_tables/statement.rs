//! Statements of a rule: what it tests, counts, tells and decides.

use super::model::link_bytes;

/// Something of a packet that can be compared or looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// The link that it came in by.
    Iifname,
    /// The link that it goes out by.
    Oifname,
    /// The packet mark, 4 bytes in host order.
    Mark,
    /// The uid of the socket, 4 bytes in host order.
    SkUid,
    /// The transport protocol, 1 byte.
    L4Proto,
    /// IPv4 (2) or IPv6 (10), 1 byte; `inet` only.
    NfProto,
    /// The ethertype, 2 bytes.
    EtherType,
    /// IPv4 source.
    Ip4Source,
    /// IPv4 destination.
    Ip4Destination,
    /// IPv6 source.
    Ip6Source,
    /// IPv6 destination.
    Ip6Destination,
    /// IPv6 hop limit, 1 byte.
    Ip6HopLimit,
    /// Source port of whatever transport has one, 2 bytes.
    SourcePort,
    /// Destination port, 2 bytes.
    DestinationPort,
    /// Flags of a TCP header, 1 byte.
    TcpFlags,
    /// Type of an ICMPv6 message, 1 byte.
    Icmp6Type,
    /// Connection state bits, 4 bytes in host order; see [`Key::NEW`] and its kin.
    CtState,
    /// Original (0) or reply (1), 1 byte.
    CtDirection,
}

impl Key {
    /// `ct state invalid`.
    pub const INVALID: u32 = 1;
    /// `ct state established`.
    pub const ESTABLISHED: u32 = 2;
    /// `ct state related`.
    pub const RELATED: u32 = 4;
    /// `ct state new`.
    pub const NEW: u32 = 8;
}

/// What becomes of the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves this hook for the next.
    Accept,
    /// It is gone.
    Drop,
    /// Back to the calling chain.
    Return,
    /// Into a chain, and back.
    Jump(String),
    /// Into a chain, not back.
    Goto(String),
}

/// How a refusal is told to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// A TCP reset.
    TcpReset,
    /// ICMP or ICMPv6 "administratively prohibited".
    AdminProhibited,
}

/// A copy of the packet for a log listener (`NFNETLINK_LOG`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The group.
    pub group: u16,
    /// What stands before it.
    pub prefix: String,
    /// How many bytes of the packet.
    pub length: u32,
}

/// One step of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// Goes on where the key has this value. A shorter value of a link name is a prefix.
    Is(Key, Vec<u8>),
    /// Goes on where it has not.
    IsNot(Key, Vec<u8>),
    /// Goes on where the key's bits under a mask have this value.
    Masked {
        /// The key.
        key: Key,
        /// The mask.
        mask: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Goes on where the key's bits under a mask have another value.
    IsNotMasked {
        /// The key.
        key: Key,
        /// The mask.
        mask: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Goes on where any of the key's bits under a mask is set.
    AnyBit {
        /// The key, 4 bytes in host order.
        key: Key,
        /// The mask.
        mask: u32,
    },
    /// Goes on where the keys are an element of a set.
    In(Vec<Key>, String),
    /// Goes on where they are not.
    NotIn(Vec<Key>, String),
    /// Counts in the rule itself.
    Count,
    /// Counts in a named counter of the table.
    CountIn(String),
    /// Goes on for so many packets a second, with a burst.
    Limit {
        /// Packets a second.
        per_second: u64,
        /// Packets at once.
        burst: u32,
    },
    /// Sends a copy to a log group.
    Log(Log),
    /// Lowers a TCP segment size option to what the route's MTU allows.
    ClampSegmentSize,
    /// Source address of the outgoing link (`nat` chains).
    Masquerade,
    /// To a port of this namespace (`nat` chains).
    Redirect(u16),
    /// Decides, telling the sender.
    Reject(Rejection),
    /// Decides.
    Verdict(Verdict),
}

const TCP: u8 = 6;
const SYN: u8 = 2;
const RST: u8 = 4;

impl Statement {
    /// Goes on where the packet came in by this link.
    #[must_use]
    pub fn from_link(name: &str) -> Self {
        Self::Is(Key::Iifname, link_bytes(name))
    }

    /// Goes on where it did not come in by this link.
    #[must_use]
    pub fn not_from_link(name: &str) -> Self {
        Self::IsNot(Key::Iifname, link_bytes(name))
    }

    /// Goes on where the packet goes out by this link.
    #[must_use]
    pub fn to_link(name: &str) -> Self {
        Self::Is(Key::Oifname, link_bytes(name))
    }

    /// Goes on where it does not go out by this link.
    #[must_use]
    pub fn not_to_link(name: &str) -> Self {
        Self::IsNot(Key::Oifname, link_bytes(name))
    }

    /// Goes on for IPv4.
    #[must_use]
    pub fn ipv4() -> Self {
        Self::Is(Key::NfProto, vec![2])
    }

    /// Goes on for IPv6.
    #[must_use]
    pub fn ipv6() -> Self {
        Self::Is(Key::NfProto, vec![10])
    }

    /// Goes on for TCP.
    #[must_use]
    pub fn tcp() -> Self {
        Self::Is(Key::L4Proto, vec![TCP])
    }

    /// Goes on for UDP.
    #[must_use]
    pub fn udp() -> Self {
        Self::Is(Key::L4Proto, vec![17])
    }

    /// Goes on for a TCP segment that opens a connection.
    #[must_use]
    pub fn opening() -> Self {
        Self::Masked { key: Key::TcpFlags, mask: vec![SYN | RST], value: vec![SYN] }
    }

    /// Goes on for packets of a flow that is answered to.
    #[must_use]
    pub fn reply() -> Self {
        Self::Is(Key::CtDirection, vec![1])
    }

    /// Goes on for flows in one of these states, such as [`Key::NEW`].
    #[must_use]
    pub fn state(bits: u32) -> Self {
        Self::AnyBit { key: Key::CtState, mask: bits }
    }

    /// Goes on where the keys are in the set.
    #[must_use]
    pub fn within(keys: &[Key], set: &str) -> Self {
        Self::In(keys.into(), set.into())
    }

    /// Counts in a named counter.
    #[must_use]
    pub fn count(counter: &str) -> Self {
        Self::CountIn(counter.into())
    }

    /// Lets it pass.
    #[must_use]
    pub fn accept() -> Self {
        Self::Verdict(Verdict::Accept)
    }

    /// Drops it.
    #[must_use]
    pub fn drop() -> Self {
        Self::Verdict(Verdict::Drop)
    }

    /// Goes into a chain and back.
    #[must_use]
    pub fn jump(chain: &str) -> Self {
        Self::Verdict(Verdict::Jump(chain.into()))
    }

    /// Goes into a chain, not back.
    #[must_use]
    pub fn goto(chain: &str) -> Self {
        Self::Verdict(Verdict::Goto(chain.into()))
    }
}
