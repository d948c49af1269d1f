//! Changes, and the one batch of netlink messages that they become: all of it takes effect at once, or none.

use std::collections::BTreeSet;
use std::fmt;

use super::expression::Encoder;
use super::model::{Base, Chain, Element, Family, Hook, Kind, Policy, Set, Shape, Table, Timeouts};
use super::wire::{Buffer, flag};

/// `NFNL_SUBSYS_NFTABLES`.
pub(super) const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `NFNL_BATCH_GENID`.
const BATCH_GENERATION: u16 = 1;

/// Message numbers (`enum nf_tables_msg_types`).
pub(super) mod number {
    pub(crate) const NEW_TABLE: u16 = 0;
    pub(crate) const GET_TABLE: u16 = 1;
    pub(crate) const DELETE_TABLE: u16 = 2;
    pub(crate) const NEW_CHAIN: u16 = 3;
    pub(crate) const GET_CHAIN: u16 = 4;
    pub(crate) const NEW_RULE: u16 = 6;
    pub(crate) const GET_RULE: u16 = 7;
    pub(crate) const NEW_SET: u16 = 9;
    pub(crate) const GET_SET: u16 = 10;
    pub(crate) const NEW_ELEMENT: u16 = 12;
    pub(crate) const GET_ELEMENT: u16 = 13;
    pub(crate) const DELETE_ELEMENT: u16 = 14;
    pub(crate) const NEW_GENERATION: u16 = 15;
    pub(crate) const GET_GENERATION: u16 = 16;
    pub(crate) const NEW_OBJECT: u16 = 18;
    pub(crate) const GET_OBJECT: u16 = 19;
}

/// Elements in one message; an attribute ends at 64 KiB and an element takes at most 200 bytes.
const ELEMENTS_AT_ONCE: usize = 256;

/// One change of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The table as given, whatever was there under its name.
    Replace(Table),
    /// No such table, whether there was one or not.
    Delete(Family, String),
    /// These elements in a set, beside others; ones that are there already are no error.
    Add(SetRef, BTreeSet<Element>),
    /// These elements not in a set; ones that are not there are no error.
    Remove(SetRef, BTreeSet<Element>),
}

/// A set by its address, with the layout that its elements have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetRef {
    /// The table's family.
    pub family: Family,
    /// The table.
    pub table: String,
    /// The set's name.
    pub name: String,
    /// How its elements are compared.
    pub shape: Shape,
}

impl SetRef {
    /// The address of a set of a table, where it has that set.
    #[must_use]
    pub fn of(table: &Table, name: &str) -> Option<Self> {
        let set = table.sets.get(name)?;
        Some(Self {
            family: table.family,
            table: table.name.clone(),
            name: name.to_string(),
            shape: set.shape,
        })
    }
}

impl fmt::Display for SetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "set {} of table {} {}", self.name, self.family, self.table)
    }
}

/// Changes that take effect together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// In order.
    pub changes: Vec<Change>,
}

impl From<Change> for Transaction {
    fn from(change: Change) -> Self {
        Self { changes: vec![change] }
    }
}

/// A transaction as bytes.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    /// What each message is about, from sequence number `first + 1` on.
    pub(super) objects: Vec<String>,
    /// The sequence number of the batch's begin.
    pub(super) first: u32,
}

/// Encodes a transaction. With a generation, the kernel refuses it when someone else was there first.
pub(super) fn encode(transaction: &Transaction, first: u32, generation: Option<u32>) -> Encoded {
    let mut writer = Writer { pending: Vec::new(), objects: Vec::new(), set_id: 0 };
    for change in &transaction.changes {
        writer.change(change);
    }
    let mut buffer = Buffer::default();
    let [high, low] = SUBSYSTEM.to_be_bytes();
    buffer.message(BATCH_BEGIN, flag::REQUEST, first, [0, 0, high, low], |m| {
        if let Some(generation) = generation {
            m.u32(BATCH_GENERATION, generation);
        }
    });
    let mut sequence = first;
    let last = writer.pending.len();
    for (at, message) in writer.pending.into_iter().enumerate() {
        sequence = sequence.wrapping_add(1);
        // One acknowledgement for all; a refusal names the message by itself.
        let ack = if at + 1 == last { flag::ACK } else { 0 };
        let kind = SUBSYSTEM << 8 | message.number;
        buffer.message(kind, flag::REQUEST | message.flags | ack, sequence, [message.family, 0, 0, 0], |m| {
            m.append(&message.body);
        });
    }
    buffer.message(BATCH_END, flag::REQUEST, sequence.wrapping_add(1), [0, 0, high, low], |_| ());
    Encoded { bytes: buffer.into_bytes(), objects: writer.objects, first }
}

struct Pending {
    number: u16,
    flags: u16,
    family: u8,
    body: Vec<u8>,
}

struct Writer {
    pending: Vec<Pending>,
    objects: Vec<String>,
    set_id: u32,
}

impl Writer {
    fn push(
        &mut self,
        number: u16,
        flags: u16,
        family: Family,
        object: String,
        body: impl FnOnce(&mut Buffer),
    ) {
        let mut buffer = Buffer::default();
        body(&mut buffer);
        self.pending.push(Pending { number, flags, family: family.number(), body: buffer.into_bytes() });
        self.objects.push(object);
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Replace(table) => {
                self.absent(table.family, &table.name);
                self.table(table);
            }
            Change::Delete(family, name) => self.absent(*family, name),
            Change::Add(set, elements) => self.elements(number::NEW_ELEMENT, set, elements),
            Change::Remove(set, elements) => {
                // The kernel refuses to delete what is not there, so it is put there first; nobody sees it.
                self.elements(number::NEW_ELEMENT, set, elements);
                self.elements(number::DELETE_ELEMENT, set, elements);
            }
        }
    }

    fn absent(&mut self, family: Family, name: &str) {
        let object = format!("table {family} {name}");
        self.push(number::NEW_TABLE, flag::CREATE, family, object.clone(), |m| m.text(1, name));
        self.push(number::DELETE_TABLE, 0, family, object, |m| m.text(1, name));
    }

    fn table(&mut self, table: &Table) {
        let Table { family, name, .. } = table;
        let here = format!("table {family} {name}");
        self.push(number::NEW_TABLE, flag::CREATE, *family, here.clone(), |m| {
            m.text(1, name);
            m.u32(2, 0);
            m.bytes(6, &comment(&table.comment));
        });
        for counter in &table.counters {
            let object = format!("counter {counter} of {here}");
            self.push(number::NEW_OBJECT, flag::CREATE, *family, object, |m| {
                m.text(1, name);
                m.text(2, counter);
                m.u32(3, 1);
                m.nested(4, |data| {
                    data.u64(1, 0);
                    data.u64(2, 0);
                });
            });
        }
        for (set_name, set) in &table.sets {
            self.set_id += 1;
            let id = self.set_id;
            let object = format!("set {set_name} of {here}");
            self.push(number::NEW_SET, flag::CREATE, *family, object, |m| {
                encode_set(m, name, set_name, set, id)
            });
        }
        for (chain_name, chain) in &table.chains {
            let object = format!("chain {chain_name} of {here}");
            self.push(number::NEW_CHAIN, flag::CREATE, *family, object, |m| {
                encode_chain(m, name, chain_name, chain);
            });
        }
        for (set_name, set) in &table.sets {
            let address =
                SetRef { family: *family, table: name.clone(), name: set_name.clone(), shape: set.shape };
            self.elements(number::NEW_ELEMENT, &address, &set.elements);
        }
        for (chain_name, chain) in &table.chains {
            for (at, rule) in chain.rules.iter().enumerate() {
                let object = format!("rule {} of chain {chain_name} of {here}", at + 1);
                self.push(number::NEW_RULE, flag::CREATE | flag::APPEND, *family, object, |m| {
                    m.text(1, name);
                    m.text(2, chain_name);
                    m.nested(4, |list| {
                        let mut encoder = Encoder::new(list, *family);
                        for statement in &rule.statements {
                            encoder.statement(statement);
                        }
                    });
                });
            }
        }
    }

    fn elements(&mut self, number: u16, set: &SetRef, elements: &BTreeSet<Element>) {
        let flags = if number == number::NEW_ELEMENT { flag::CREATE } else { 0 };
        let all: Vec<&Element> = elements.iter().collect();
        for some in all.chunks(ELEMENTS_AT_ONCE) {
            self.push(number, flags, set.family, format!("elements of {set}"), |m| {
                m.text(1, &set.table);
                m.text(2, &set.name);
                m.nested(3, |list| {
                    for element in some {
                        encode_element(list, set.shape, element);
                    }
                });
            });
        }
    }
}

fn encode_set(m: &mut Buffer, table: &str, name: &str, set: &Set, id: u32) {
    const INTERVAL: u32 = 0x4;
    const TIMEOUT: u32 = 0x10;
    const CONCAT: u32 = 0x80;
    let concatenated = set.fields.len() > 1;
    let mut flags = 0;
    if set.shape == Shape::Interval {
        flags |= if concatenated { INTERVAL | CONCAT } else { INTERVAL };
    }
    if set.timeouts == Timeouts::Allowed {
        flags |= TIMEOUT;
    }
    let length = |field: usize| if concatenated { field.next_multiple_of(4) } else { field };
    let key: usize = set.fields.iter().map(|field| length(field.length())).sum();
    m.text(1, table);
    m.text(2, name);
    m.u32(3, flags);
    // Six bits a field, for whoever lists the rules.
    m.u32(4, set.fields.iter().fold(0, |all, field| all << 6 | field.nft_type()));
    m.u32(5, u32::try_from(key).expect("a key is at most 64 bytes"));
    if flags & CONCAT != 0 {
        m.nested(9, |description| {
            description.nested(2, |fields| {
                for field in &set.fields {
                    fields.nested(1, |one| {
                        one.u32(1, u32::try_from(field.length()).expect("at most 16 bytes"));
                    });
                }
            });
        });
    }
    m.u32(10, id);
}

fn encode_chain(m: &mut Buffer, table: &str, name: &str, chain: &Chain) {
    m.text(1, table);
    m.text(3, name);
    let Some(Base { kind, hook, priority, policy }) = &chain.base else { return };
    m.nested(4, |data| {
        data.u32(1, hook.number());
        data.i32(2, *priority);
        if let Hook::Ingress { device } | Hook::Egress { device } = hook {
            data.text(3, device);
        }
    });
    m.u32(5, u32::from(*policy == Policy::Accept));
    m.text(
        7,
        match kind {
            Kind::Filter => "filter",
            Kind::Nat => "nat",
            Kind::Route => "route",
        },
    );
}

impl Hook {
    fn number(&self) -> u32 {
        match self {
            Self::Prerouting | Self::Ingress { .. } => 0,
            Self::Input | Self::Egress { .. } => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

fn encode_element(list: &mut Buffer, shape: Shape, element: &Element) {
    let (first, last) = element.keys();
    let timeout = |item: &mut Buffer| {
        if let Some(timeout) = element.timeout {
            item.u64(4, u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        }
    };
    let key = |item: &mut Buffer, kind: u16, bytes: &[u8]| item.nested(kind, |data| data.bytes(1, bytes));
    match shape {
        Shape::Exact => list.nested(1, |item| {
            key(item, 1, &first);
            timeout(item);
        }),
        Shape::Interval if element.fields.len() > 1 => list.nested(1, |item| {
            key(item, 1, &first);
            key(item, 10, &last);
            timeout(item);
        }),
        Shape::Interval => {
            list.nested(1, |item| {
                key(item, 1, &first);
                timeout(item);
            });
            // A single range ends before the next value; one that reaches the highest value has no end.
            if let Some(end) = successor(&last) {
                list.nested(1, |item| {
                    item.u32(3, 1);
                    key(item, 1, &end);
                });
            }
        }
    }
}

/// The next value in network byte order; `None` after the highest.
pub(super) fn successor(value: &[u8]) -> Option<Vec<u8>> {
    let mut next = value.to_vec();
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

/// A comment as `nft` stores it in user data: type 0, length, text with a final zero.
fn comment(text: &str) -> Vec<u8> {
    let text: Vec<u8> = text.bytes().filter(|byte| *byte != 0).take(250).chain([0]).collect();
    let mut data = vec![0, u8::try_from(text.len()).expect("cut to 251 bytes")];
    data.extend(text);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_reaches_the_highest_value_has_no_end() {
        assert_eq!(successor(&[10, 255, 255, 255]), Some(vec![11, 0, 0, 0]));
        assert_eq!(successor(&[255; 4]), None);
    }

    #[test]
    fn a_comment_is_cut_to_what_user_data_holds() {
        let data = comment(&"x".repeat(1000));
        assert_eq!((data.len(), data[1], data.last()), (253, 251, Some(&0)));
    }
}
