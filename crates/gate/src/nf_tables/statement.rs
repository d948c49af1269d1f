//! Statements of a rule, and the kernel's expressions that they become.
//!
//! A statement that looks into an IPv4 header is preceded by the test that there is one, as `nft` does it; each such
//! test is written once in a rule.

use super::model::{Family, link_bytes};
use super::wire::Buffer;

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

/// Address families as nf_tables writes them.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;
const ICMP6: u8 = 58;
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
        Self::Is(Key::NfProto, vec![IPV4])
    }

    /// Goes on for IPv6.
    #[must_use]
    pub fn ipv6() -> Self {
        Self::Is(Key::NfProto, vec![IPV6])
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

/// The register that all comparisons use (`NFT_REG_1`).
const REGISTER: u32 = 1;
/// The first 4-byte register (`NFT_REG32_00`), which is the head of [`REGISTER`].
const REGISTER32: u32 = 8;

/// Writes a rule's expressions.
#[derive(Debug)]
pub(super) struct Encoder<'a> {
    buffer: &'a mut Buffer,
    family: Family,
    /// Tests that already stand in this rule.
    known: Vec<(Key, u8)>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, family: Family) -> Self {
        Self { buffer, family, known: Vec::new() }
    }

    pub(super) fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Is(key, value) => {
                if let ([byte], Key::NfProto | Key::L4Proto) = (value.as_slice(), key) {
                    return self.need(*key, *byte);
                }
                self.load_one(*key);
                self.compare(EQUAL, value);
            }
            Statement::IsNot(key, value) => {
                self.load_one(*key);
                self.compare(NOT_EQUAL, value);
            }
            Statement::Masked { key, mask, value } => {
                self.load_one(*key);
                self.mask(mask);
                self.compare(EQUAL, value);
            }
            Statement::IsNotMasked { key, mask, value } => {
                self.load_one(*key);
                self.mask(mask);
                self.compare(NOT_EQUAL, value);
            }
            Statement::AnyBit { key, mask } => {
                self.load_one(*key);
                self.mask(&mask.to_ne_bytes());
                self.compare(NOT_EQUAL, &[0; 4]);
            }
            Statement::In(keys, set) => self.lookup(keys, set, 0),
            Statement::NotIn(keys, set) => self.lookup(keys, set, 1),
            Statement::Count => self.expression("counter", |_| ()),
            Statement::CountIn(name) => self.expression("objref", |data| {
                data.u32(1, 1);
                data.text(2, name);
            }),
            Statement::Limit { per_second, burst } => self.expression("limit", |data| {
                data.u64(1, *per_second);
                data.u64(2, 1);
                data.u32(3, *burst);
                data.u32(4, 0);
            }),
            Statement::Log(log) => self.expression("log", |data| {
                data.u16(1, log.group);
                data.text(2, &log.prefix);
                data.u32(3, log.length);
            }),
            Statement::ClampSegmentSize => self.clamp(),
            Statement::Masquerade => self.expression("masq", |_| ()),
            Statement::Redirect(port) => {
                self.immediate(REGISTER, |data| data.bytes(1, &port.to_be_bytes()));
                self.expression("redir", |data| {
                    data.u32(1, REGISTER);
                    // NF_NAT_RANGE_PROTO_SPECIFIED
                    data.u32(3, 2);
                });
            }
            Statement::Reject(Rejection::TcpReset) => {
                self.need(Key::L4Proto, TCP);
                self.expression("reject", |data| {
                    data.u32(1, 1);
                    data.u8(2, 0);
                });
            }
            Statement::Reject(Rejection::AdminProhibited) => self.expression("reject", |data| {
                // NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED
                data.u32(1, 2);
                data.u8(2, 3);
            }),
            Statement::Verdict(verdict) => self.immediate(0, |data| {
                data.nested(2, |inner| encode_verdict(inner, verdict));
            }),
        }
    }

    fn expression(&mut self, name: &str, data: impl FnOnce(&mut Buffer)) {
        self.buffer.nested(1, |element| {
            element.text(1, name);
            element.nested(2, data);
        });
    }

    /// Tests, once in a rule, for a protocol.
    fn need(&mut self, key: Key, value: u8) {
        if self.known.contains(&(key, value)) {
            return;
        }
        self.known.push((key, value));
        match (self.family, key) {
            (Family::Netdev, Key::NfProto) => {
                self.load(Key::EtherType, REGISTER);
                let ethertype: u16 = if value == IPV4 { 0x0800 } else { 0x86dd };
                self.compare(EQUAL, &ethertype.to_be_bytes());
            }
            _ => {
                self.load(key, REGISTER);
                self.compare(EQUAL, &[value]);
            }
        }
    }

    /// Tests for the headers that the key is read from.
    fn headers(&mut self, key: Key) {
        match key {
            Key::Ip4Source | Key::Ip4Destination => self.need(Key::NfProto, IPV4),
            Key::Ip6Source | Key::Ip6Destination | Key::Ip6HopLimit => self.need(Key::NfProto, IPV6),
            Key::TcpFlags => self.need(Key::L4Proto, TCP),
            Key::Icmp6Type => {
                self.need(Key::NfProto, IPV6);
                self.need(Key::L4Proto, ICMP6);
            }
            _ => (),
        }
    }

    fn load_one(&mut self, key: Key) {
        self.headers(key);
        self.load(key, REGISTER);
    }

    fn load(&mut self, key: Key, register: u32) {
        match key.source() {
            Source::Meta(number) => self.expression("meta", |data| {
                data.u32(1, register);
                data.u32(2, number);
            }),
            Source::Ct(number) => self.expression("ct", |data| {
                data.u32(1, register);
                data.u32(2, number);
            }),
            Source::Payload { base, offset, length } => self.expression("payload", |data| {
                data.u32(1, register);
                data.u32(2, base);
                data.u32(3, offset);
                data.u32(4, length);
            }),
        }
    }

    fn compare(&mut self, operation: u32, value: &[u8]) {
        self.expression("cmp", |data| {
            data.u32(1, REGISTER);
            data.u32(2, operation);
            data.nested(3, |inner| inner.bytes(1, value));
        });
    }

    fn mask(&mut self, mask: &[u8]) {
        let length = u32::try_from(mask.len()).expect("a mask is a few bytes");
        self.expression("bitwise", |data| {
            data.u32(1, REGISTER);
            data.u32(2, REGISTER);
            data.u32(3, length);
            data.nested(4, |inner| inner.bytes(1, mask));
            data.nested(5, |inner| inner.bytes(1, &vec![0; mask.len()]));
        });
    }

    fn lookup(&mut self, keys: &[Key], set: &str, flags: u32) {
        for key in keys {
            self.headers(*key);
        }
        let mut register = REGISTER32;
        for key in keys {
            self.load(*key, register);
            register += key.registers();
        }
        self.expression("lookup", |data| {
            data.text(1, set);
            data.u32(2, REGISTER32);
            data.u32(5, flags);
        });
    }

    fn immediate(&mut self, register: u32, value: impl FnOnce(&mut Buffer)) {
        self.expression("immediate", |data| {
            data.u32(1, register);
            data.nested(2, value);
        });
    }

    fn clamp(&mut self) {
        self.expression("rt", |data| {
            data.u32(1, REGISTER);
            // NFT_RT_TCPMSS
            data.u32(2, 3);
        });
        self.expression("byteorder", |data| {
            data.u32(1, REGISTER);
            data.u32(2, REGISTER);
            // NFT_BYTEORDER_HTON
            data.u32(3, 1);
            data.u32(4, 2);
            data.u32(5, 2);
        });
        self.expression("exthdr", |data| {
            // TCP option 2 (maximum segment size), its value of 2 bytes at offset 2
            data.u8(2, 2);
            data.u32(3, 2);
            data.u32(4, 2);
            data.u32(6, 1);
            data.u32(7, REGISTER);
        });
    }
}

const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

fn encode_verdict(buffer: &mut Buffer, verdict: &Verdict) {
    let (code, chain) = match verdict {
        Verdict::Drop => (0, None),
        Verdict::Accept => (1, None),
        Verdict::Jump(chain) => (-3, Some(chain)),
        Verdict::Goto(chain) => (-4, Some(chain)),
        Verdict::Return => (-5, None),
    };
    buffer.i32(1, code);
    if let Some(chain) = chain {
        buffer.text(2, chain);
    }
}

/// Where a key is read from, by the kernel's numbers.
enum Source {
    Meta(u32),
    Ct(u32),
    Payload { base: u32, offset: u32, length: u32 },
}

impl Key {
    fn source(self) -> Source {
        let network = |offset, length| Source::Payload { base: 1, offset, length };
        let transport = |offset, length| Source::Payload { base: 2, offset, length };
        match self {
            Self::EtherType => Source::Meta(1),
            Self::Mark => Source::Meta(3),
            Self::Iifname => Source::Meta(6),
            Self::Oifname => Source::Meta(7),
            Self::SkUid => Source::Meta(10),
            Self::NfProto => Source::Meta(15),
            Self::L4Proto => Source::Meta(16),
            Self::CtState => Source::Ct(0),
            Self::CtDirection => Source::Ct(1),
            Self::Ip4Source => network(12, 4),
            Self::Ip4Destination => network(16, 4),
            Self::Ip6HopLimit => network(7, 1),
            Self::Ip6Source => network(8, 16),
            Self::Ip6Destination => network(24, 16),
            Self::SourcePort => transport(0, 2),
            Self::DestinationPort => transport(2, 2),
            Self::TcpFlags => transport(13, 1),
            Self::Icmp6Type => transport(0, 1),
        }
    }

    /// How many 4-byte registers a value takes.
    fn registers(self) -> u32 {
        match self {
            Self::Iifname | Self::Oifname | Self::Ip6Source | Self::Ip6Destination => 4,
            _ => 1,
        }
    }
}
