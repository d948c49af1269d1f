//! The kernel's expressions that a rule's statements become.
//!
//! A statement that looks into an IPv4 header is preceded by the test that there is one, as `nft` does it; each such
//! test is written once in a rule.

use super::model::Family;
use super::statement::{Key, Rejection, Statement, Verdict};
use super::wire::Buffer;

/// Address families as nf_tables writes them.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;
const ICMP6: u8 = 58;

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
