//! Netlink messages and attributes as bytes: a builder that grows a buffer, and a parser that trusts no length.

/// Marks an attribute that holds attributes (`NLA_F_NESTED`).
const NESTED: u16 = 0x8000;
/// The bits of an attribute's type that are not flags (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;
/// Length of `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;

/// Message flags (`linux/netlink.h`).
pub(crate) mod flag {
    pub(crate) const REQUEST: u16 = 0x1;
    pub(crate) const ACK: u16 = 0x4;
    pub(crate) const DUMP_INTERRUPTED: u16 = 0x10;
    pub(crate) const CAPPED: u16 = 0x100;
    pub(crate) const EXTENDED: u16 = 0x200;
    pub(crate) const DUMP: u16 = 0x300;
    pub(crate) const CREATE: u16 = 0x400;
    pub(crate) const APPEND: u16 = 0x800;
}

/// A buffer of netlink messages.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Appends a message: header, `struct nfgenmsg` and whatever `body` writes.
    pub(crate) fn message(
        &mut self,
        kind: u16,
        flags: u16,
        sequence: u32,
        generic: [u8; 4],
        body: impl FnOnce(&mut Self),
    ) {
        let start = self.0.len();
        self.0.extend([0; 4]);
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(flags.to_ne_bytes());
        self.0.extend(sequence.to_ne_bytes());
        self.0.extend([0; 4]);
        self.0.extend(generic);
        body(self);
        let length = u32::try_from(self.0.len() - start).expect("a message is far below 4 GiB");
        self.0[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Appends attributes that were built elsewhere.
    pub(crate) fn append(&mut self, attributes: &[u8]) {
        self.0.extend(attributes);
    }

    /// Appends an attribute with a payload as it is.
    pub(crate) fn bytes(&mut self, kind: u16, payload: &[u8]) {
        self.attribute(kind, |buffer| buffer.0.extend(payload));
    }

    /// Appends a text with its final zero.
    pub(crate) fn text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, |buffer| {
            buffer.0.extend(text.as_bytes());
            buffer.0.push(0);
        });
    }

    pub(crate) fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    /// nf_tables' integers are in network byte order.
    pub(crate) fn u16(&mut self, kind: u16, value: u16) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(crate) fn i32(&mut self, kind: u16, value: i32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Appends an attribute that holds whatever `inner` writes.
    pub(crate) fn nested(&mut self, kind: u16, inner: impl FnOnce(&mut Self)) {
        self.attribute(kind | NESTED, inner);
    }

    fn attribute(&mut self, kind: u16, payload: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        payload(self);
        // Lists are chunked by their callers, so that no attribute reaches the limit.
        let length = u16::try_from(self.0.len() - start).expect("an attribute is below 64 KiB");
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        let padded = self.0.len().next_multiple_of(4);
        self.0.resize(padded, 0);
    }
}

/// One received message, split.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// Everything after the header.
    pub(crate) payload: &'a [u8],
}

/// Splits a datagram into messages; what is cut short is left out.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let message = bytes.get(..length).filter(|_| length >= HEADER)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16_at(message, 4)?,
            flags: u16_at(message, 6)?,
            sequence: u32_at(message, 8)?,
            payload: &message[HEADER..],
        })
    })
}

/// Splits attributes: type without flags, and payload.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let payload = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// The first attribute of a type.
pub(crate) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, payload)| payload)
}

/// A text attribute without its final zero.
pub(crate) fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// An integer of 4 bytes in network byte order.
pub(crate) fn be32(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// An integer of 8 bytes in network byte order.
pub(crate) fn be64(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_read_back_and_what_is_cut_short_is_left_out() {
        let mut buffer = Buffer::default();
        buffer.message(7, flag::REQUEST, 3, [1, 0, 0, 0], |m| {
            m.text(1, "gate");
            m.nested(2, |inner| inner.u32(1, 0x0102_0304));
        });
        let bytes = buffer.into_bytes();
        let message = messages(&bytes).next().expect("one message");
        assert_eq!((message.kind, message.flags, message.sequence), (7, flag::REQUEST, 3));
        let body = &message.payload[4..];
        assert_eq!(text(attribute(body, 1).expect("a name")), "gate");
        let inner = attribute(body, 2).expect("a nest");
        assert_eq!(attribute(inner, 1).and_then(be32), Some(0x0102_0304));
        for end in 0..bytes.len() {
            assert_eq!(messages(&bytes[..end]).count(), 0, "cut at {end}");
        }
        assert_eq!(attributes(&[255, 255, 1, 0, 9]).count(), 0, "a length beyond the end");
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0, "a length below the header");
    }
}
