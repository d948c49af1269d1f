//! The numbered packet: what senders put into their payloads and the sink counts.
//!
//! | bytes | what | as |
//! |---|---|---|
//! | 0..4 | `SPN1` | |
//! | 4..8 | sender | big-endian u32 |
//! | 8..16 | sequence number, from 0 | big-endian u64 |
//! | 16..24 | when it was sent, microseconds since 1970 | big-endian u64 |
//!
//! Anything behind it is padding. A DNS question carries sender and number in its name instead: [`Numbered::name`].

use crate::stamp::Stamp;

/// The payload's length in bytes.
pub const LENGTH: usize = 24;

const MAGIC: [u8; 4] = *b"SPN1";

/// One packet of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    /// Who sends.
    pub sender: u32,
    /// Which of its packets, from 0.
    pub sequence: u64,
    /// When it was sent.
    pub sent: Stamp,
}

impl Numbered {
    /// The payload.
    #[must_use]
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.sender.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16..].copy_from_slice(&self.sent.micros().to_be_bytes());
        bytes
    }

    /// Reads a payload; `None` where it is none of ours.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (magic, rest) = payload.split_first_chunk()?;
        let (sender, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (sent, _) = rest.split_first_chunk()?;
        (*magic == MAGIC).then(|| Self {
            sender: u32::from_be_bytes(*sender),
            sequence: u64::from_be_bytes(*sequence),
            sent: Stamp::from_micros(u64::from_be_bytes(*sent)),
        })
    }

    /// The name that a numbered DNS question asks for.
    #[must_use]
    pub fn name(&self) -> String {
        format!("n{}.s{}.numbered.{}", self.sequence, self.sender, crate::internet::table::DOMAIN)
    }

    /// Reads sender and number from such a name; the time of sending is not in it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<(u32, u64)> {
        let mut labels = name.split('.');
        let sequence = labels.next()?.strip_prefix('n')?.parse().ok()?;
        let sender = labels.next()?.strip_prefix('s')?.parse().ok()?;
        (labels.next()? == "numbered").then_some((sender, sequence))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_packet_is_read_back_whatever_follows_it(
            sender: u32, sequence: u64, sent: u64, padding in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let packet = Numbered { sender, sequence, sent: Stamp::from_micros(sent) };
            let mut bytes = packet.encode().to_vec();
            bytes.extend(padding);
            prop_assert_eq!(Numbered::decode(&bytes), Some(packet));
            prop_assert_eq!(Numbered::from_name(&packet.name()), Some((sender, sequence)));
            prop_assert_eq!(Numbered::from_name(&format!("{}.", packet.name())), Some((sender, sequence)));
        }

        #[test]
        fn anything_else_is_none_of_ours(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assume!(bytes.get(..4) != Some(&MAGIC[..]));
            prop_assert_eq!(Numbered::decode(&bytes), None);
        }
    }

    #[test]
    fn a_cut_packet_is_none_of_ours() {
        let bytes = Numbered { sender: 1, sequence: 2, sent: Stamp::from_micros(3) }.encode();
        for length in 0..LENGTH {
            assert_eq!(Numbered::decode(&bytes[..length]), None, "{length}");
        }
    }
}
