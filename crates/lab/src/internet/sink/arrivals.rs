//! What arrived: counts, first and last, the longest silences. Pure, and bounded whatever comes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::numbered::Numbered;
use crate::stamp::Stamp;

/// How many silences are kept for each: the longest.
pub const SILENCES: usize = 32;

/// How many senders are told apart, and how many source addresses of each.
pub const TRACKED: usize = 128;

/// One packet that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// When the kernel received it.
    pub at: Stamp,
    /// Its number.
    pub sequence: u64,
    /// The address it came from.
    pub source: IpAddr,
}

/// A time in which nothing came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// How long, in microseconds.
    pub micros: u64,
    /// The packet before.
    pub after: Arrival,
    /// The packet that ended it.
    pub until: Arrival,
    /// How many numbers lie between the two.
    pub skipped: u64,
}

/// What came of one sender, from everywhere or from one address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// How many packets.
    pub packets: u64,
    /// The first one.
    pub first: Option<Arrival>,
    /// The newest one.
    pub last: Option<Arrival>,
    /// How many came with a number no higher than an earlier one's: repeated, or overtaken.
    pub late: u64,
    /// The shortest time from sending to receiving, in microseconds.
    pub least_delay_micros: Option<u64>,
    /// The longest.
    pub most_delay_micros: Option<u64>,
    /// The longest silences between two packets, the longest first. The one that lasts now is not among them.
    pub silences: Vec<Silence>,
    #[serde(skip)]
    highest: Option<u64>,
}

impl Arrivals {
    fn add(&mut self, arrival: Arrival, delay_micros: u64) {
        if let Some(last) = self.last {
            let micros = u64::try_from(arrival.at.since(last.at).as_micros()).unwrap_or(u64::MAX);
            let skipped = arrival.sequence.saturating_sub(last.sequence).saturating_sub(1);
            self.remember(Silence { micros, after: last, until: arrival, skipped });
        }
        self.packets += 1;
        self.first.get_or_insert(arrival);
        self.last = Some(arrival);
        match self.highest {
            Some(highest) if arrival.sequence <= highest => self.late += 1,
            _ => self.highest = Some(arrival.sequence),
        }
        self.least_delay_micros =
            Some(self.least_delay_micros.map_or(delay_micros, |least| least.min(delay_micros)));
        self.most_delay_micros =
            Some(self.most_delay_micros.map_or(delay_micros, |most| most.max(delay_micros)));
    }

    fn remember(&mut self, silence: Silence) {
        if self.silences.len() == SILENCES
            && self.silences.last().is_some_and(|shortest| shortest.micros >= silence.micros)
        {
            return;
        }
        let place = self.silences.partition_point(|longer| longer.micros >= silence.micros);
        self.silences.insert(place, silence);
        self.silences.truncate(SILENCES);
    }

    /// The longest silence between two packets; `None` before the second.
    #[must_use]
    pub fn longest_silence(&self) -> Option<&Silence> {
        self.silences.first()
    }
}

/// What came of one sender.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderArrivals {
    /// From everywhere: its silences go across a change of address.
    pub all: Arrivals,
    /// From each address.
    pub by_source: BTreeMap<IpAddr, Arrivals>,
}

/// All that came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// By sender.
    pub senders: BTreeMap<u32, SenderArrivals>,
    /// Packets that are no numbered packets.
    pub foreign: u64,
    /// Packets of senders or addresses beyond [`TRACKED`], counted nowhere else.
    pub untracked: u64,
}

impl Tally {
    /// Takes in a payload as it came.
    pub(super) fn add(&mut self, payload: &[u8], at: Stamp, source: IpAddr) {
        let Some(packet) = Numbered::decode(payload) else {
            self.foreign += 1;
            return;
        };
        if !self.senders.contains_key(&packet.sender) && self.senders.len() == TRACKED {
            self.untracked += 1;
            return;
        }
        let arrival = Arrival { at, sequence: packet.sequence, source };
        let delay = u64::try_from(at.since(packet.sent).as_micros()).unwrap_or(u64::MAX);
        let sender = self.senders.entry(packet.sender).or_default();
        sender.all.add(arrival, delay);
        if sender.by_source.contains_key(&source) || sender.by_source.len() < TRACKED {
            sender.by_source.entry(source).or_default().add(arrival, delay);
        } else {
            self.untracked += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 10));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 11));

    fn add(tally: &mut Tally, sequence: u64, at: u64, source: IpAddr) {
        let packet = Numbered { sender: 7, sequence, sent: Stamp::from_micros(at.saturating_sub(40)) };
        tally.add(&packet.encode(), Stamp::from_micros(at), source);
    }

    #[test]
    fn a_failover_is_one_silence_across_two_addresses() {
        let mut tally = Tally::default();
        for (sequence, at, source) in
            [(0, 1_000, A), (1, 2_000, A), (2, 3_000, A), (500, 501_000, B), (501, 502_000, B)]
        {
            add(&mut tally, sequence, at, source);
        }
        let sender = &tally.senders[&7];
        let silence = sender.all.longest_silence().expect("five packets came");
        assert_eq!((silence.micros, silence.skipped), (498_000, 497));
        assert_eq!((silence.after.source, silence.until.source), (A, B));
        assert_eq!((sender.by_source[&A].packets, sender.by_source[&B].packets), (3, 2));
        assert_eq!(sender.by_source[&A].longest_silence().expect("three packets").micros, 1_000);
        assert_eq!((sender.all.least_delay_micros, sender.all.late), (Some(40), 0));
    }

    #[test]
    fn a_repeated_and_an_overtaken_packet_are_late() {
        let mut tally = Tally::default();
        for (sequence, at) in [(0, 10), (2, 20), (1, 30), (2, 40), (3, 50)] {
            add(&mut tally, sequence, at, A);
        }
        assert_eq!((tally.senders[&7].all.late, tally.senders[&7].all.packets), (2, 5));
    }

    #[test]
    fn strangers_and_crowds_are_counted_and_not_kept() {
        let mut tally = Tally::default();
        tally.add(b"hello", Stamp::from_micros(1), A);
        for sender in 0..u32::try_from(TRACKED).expect("small") + 5 {
            let packet = Numbered { sender, sequence: 0, sent: Stamp::default() };
            tally.add(&packet.encode(), Stamp::from_micros(1), A);
        }
        assert_eq!((tally.foreign, tally.untracked, tally.senders.len()), (1, 5, TRACKED));
    }

    proptest! {
        #[test]
        fn the_silences_kept_are_the_longest_of_all(times in proptest::collection::vec(0..100_000_u64, 2..200)) {
            let mut times = times;
            times.sort_unstable();
            let mut tally = Tally::default();
            for (sequence, at) in times.iter().enumerate() {
                add(&mut tally, sequence as u64, *at, A);
            }
            let mut all: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
            all.sort_unstable_by(|a, b| b.cmp(a));
            all.truncate(SILENCES);
            let kept: Vec<u64> =
                tally.senders[&7].all.silences.iter().map(|silence| silence.micros).collect();
            prop_assert_eq!(kept, all);
        }

        #[test]
        fn garbage_never_panics(payload in proptest::collection::vec(any::<u8>(), 0..64), at: u64) {
            Tally::default().add(&payload, Stamp::from_micros(at), A);
        }
    }
}
