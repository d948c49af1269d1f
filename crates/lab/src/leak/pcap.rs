//! A capture file as every reader of packets knows it: libpcap's classic format, microseconds, Ethernet.

use std::io::{self, Write};

use crate::stamp::Stamp;

const MAGIC: u32 = 0xa1b2_c3d4;
const ETHERNET: u32 = 1;
const SNAP: u32 = 262_144;

/// A file being written.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of writing.
    pub fn begin(mut to: W) -> io::Result<Self> {
        to.write_all(&MAGIC.to_le_bytes())?;
        // Version 2.4, UTC, no accuracy said.
        for half in [2u16, 4, 0, 0, 0, 0] {
            to.write_all(&half.to_le_bytes())?;
        }
        to.write_all(&SNAP.to_le_bytes())?;
        to.write_all(&ETHERNET.to_le_bytes())?;
        Ok(Self { to })
    }

    /// Adds a frame, of which `frame` may be the beginning.
    ///
    /// # Errors
    /// Those of writing.
    pub fn add(&mut self, at: Stamp, frame: &[u8], wire_length: usize) -> io::Result<()> {
        let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let micros = at.micros();
        let fields = [
            whole(micros / 1_000_000),
            whole(micros % 1_000_000),
            whole(frame.len() as u64),
            whole(wire_length as u64),
        ];
        for field in fields {
            self.to.write_all(&field.to_le_bytes())?;
        }
        self.to.write_all(frame)
    }

    /// Ends the file and hands back what it was written to.
    ///
    /// # Errors
    /// Those of writing.
    pub fn end(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_laid_out_as_its_readers_expect() {
        let mut writer = Writer::begin(Vec::new()).expect("memory takes it");
        writer.add(Stamp::from_micros(3_000_007), b"frame", 9).expect("memory takes it");
        let file = writer.end().expect("memory takes it");
        assert_eq!(file[..8], [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!(file[16..24], [0, 0, 4, 0, 1, 0, 0, 0]);
        assert_eq!(file[24..40], [3, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(&file[40..], b"frame");
    }
}
