//! What the kernel holds of a table, in a form that can be compared: everything that decides, nothing that counts.
//!
//! A snapshot is taken right after our own commit, in the generation of that commit; whatever differs later was done by
//! someone else. So nothing has to be decoded, and no rewriting of a rule goes unseen.

use std::collections::{BTreeMap, BTreeSet};

use super::batch::{number, successor};
use super::model::{Family, Set, Shape, Table, Timeouts};
use super::socket::{NfTables, NfTablesError};
use super::wire;

/// One table as the kernel holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Table, chains, rules and sets by name, each with what decides.
    objects: BTreeMap<String, Vec<u8>>,
    /// Elements by set.
    elements: BTreeMap<String, BTreeSet<Vec<u8>>>,
}

impl Snapshot {
    /// Whether there is no such table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// What `now` has less, more, or otherwise than `self`, in words. Empty where they are equal.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (name, was) in &self.objects {
            match now.objects.get(name) {
                None => differences.push(format!("{name} is gone")),
                Some(is) if is != was => differences.push(format!("{name} was changed")),
                Some(_) => (),
            }
        }
        let added = now.objects.keys().filter(|name| !self.objects.contains_key(*name));
        differences.extend(added.map(|name| format!("{name} was added")));
        if now.is_empty() {
            return differences;
        }
        let none = BTreeSet::new();
        for (set, was) in &self.elements {
            let is = now.elements.get(set).unwrap_or(&none);
            let (lost, gained) = (was.difference(is).count(), is.difference(was).count());
            if lost + gained > 0 {
                differences.push(format!("{set} lost {lost} elements and gained {gained}"));
            }
        }
        differences
    }

    /// The same structure with the elements that `table` declares.
    #[must_use]
    pub(crate) fn with_elements_of(mut self, table: &Table) -> Self {
        self.elements = table
            .sets
            .iter()
            .filter(|(_, set)| set.timeouts == Timeouts::Never)
            .map(|(name, set)| (set_name(name), declared(set)))
            .collect();
        self
    }
}

impl NfTables {
    /// Reads one table. Empty where there is none. Elements of sets with timeouts are left out: they end by themselves.
    ///
    /// # Errors
    /// [`NfTablesError::Outrun`] where others change the rules all the time.
    pub fn snapshot(&mut self, family: Family, table: &str) -> Result<Snapshot, NfTablesError> {
        let mut snapshot = Snapshot::default();
        for object in self.dump(number::GET_TABLE, family, |_| ())? {
            if names(&object, 1).as_deref() == Some(table) {
                snapshot.objects.insert(format!("table {family} {table}"), kept(&object, &[1, 2, 6]));
            }
        }
        if snapshot.is_empty() {
            return Ok(snapshot);
        }
        for object in self.dump(number::GET_CHAIN, family, |_| ())? {
            if let (Some(owner), Some(name)) = (names(&object, 1), names(&object, 3))
                && owner == table
            {
                snapshot.objects.insert(format!("chain {name}"), kept(&object, &[3, 4, 5, 7, 10, 12]));
            }
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for object in self.dump(number::GET_RULE, family, |m| m.text(1, table))? {
            if let (Some(owner), Some(chain)) = (names(&object, 1), names(&object, 2))
                && owner == table
            {
                let at = counts.entry(chain.clone()).and_modify(|count| *count += 1).or_insert(1);
                let expressions = wire::attribute(&object, 4).unwrap_or_default();
                snapshot.objects.insert(format!("rule {at:03} of chain {chain}"), decides(expressions));
            }
        }
        let mut sets = Vec::new();
        for object in self.dump(number::GET_SET, family, |m| m.text(1, table))? {
            if let (Some(owner), Some(name)) = (names(&object, 1), names(&object, 2))
                && owner == table
            {
                const TIMEOUT: u32 = 0x10;
                let flags = wire::attribute(&object, 3).and_then(wire::be32).unwrap_or_default();
                snapshot.objects.insert(set_name(&name), kept(&object, &[2, 3, 5, 7]));
                if flags & TIMEOUT == 0 {
                    sets.push(name);
                }
            }
        }
        for set in sets {
            let lists = self.dump(number::GET_ELEMENT, family, |m| {
                m.text(1, table);
                m.text(2, &set);
            })?;
            let elements = lists
                .iter()
                .filter_map(|list| wire::attribute(list, 3))
                .flat_map(wire::attributes)
                .map(|(_, element)| element_bytes(element))
                .filter(|bytes| !bytes.is_empty())
                .collect();
            snapshot.elements.insert(set_name(&set), elements);
        }
        Ok(snapshot)
    }
}

fn set_name(name: &str) -> String {
    format!("set {name}")
}

fn names(object: &[u8], kind: u16) -> Option<String> {
    wire::attribute(object, kind).map(wire::text)
}

/// The attributes of these types, each with its type and length before it.
fn kept(object: &[u8], kinds: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for kind in kinds {
        if let Some(payload) = wire::attribute(object, *kind) {
            bytes.extend(kind.to_be_bytes());
            bytes.extend(payload.len().to_be_bytes());
            bytes.extend(payload);
        }
    }
    bytes
}

/// A rule's expressions less what its counters hold.
fn decides(expressions: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (_, expression) in wire::attributes(expressions) {
        let counts = matches!(names(expression, 1).as_deref(), Some("counter" | "last" | "quota"));
        bytes.extend(kept(expression, if counts { &[1] } else { &[1, 2] }));
    }
    bytes
}

/// Flag and key ends of an element, less timeouts. The marker that nft puts before a first range is left out.
fn element_bytes(element: &[u8]) -> Vec<u8> {
    let end = wire::attribute(element, 3).and_then(wire::be32).unwrap_or_default() & 1;
    let value =
        |kind| wire::attribute(element, kind).and_then(|data| wire::attribute(data, 1)).unwrap_or_default();
    let first = value(1);
    if end == 1 && first.iter().all(|byte| *byte == 0) {
        return Vec::new();
    }
    let catch_all = wire::attribute(element, 3).and_then(wire::be32).unwrap_or_default() & 2;
    if catch_all != 0 {
        return vec![0xff];
    }
    element_key(end == 1, first, value(10))
}

fn element_key(end: bool, first: &[u8], last: &[u8]) -> Vec<u8> {
    let mut bytes = vec![u8::from(end)];
    bytes.extend(first);
    bytes.extend(last);
    bytes
}

/// The same for what a set declares.
fn declared(set: &Set) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::new();
    for element in &set.elements {
        let (first, last) = element.keys();
        match set.shape {
            Shape::Exact => drop(all.insert(element_key(false, &first, &[]))),
            Shape::Interval if set.fields.len() > 1 => drop(all.insert(element_key(false, &first, &last))),
            Shape::Interval => {
                all.insert(element_key(false, &first, &[]));
                all.extend(successor(&last).map(|end| element_key(true, &end, &[])));
            }
        }
    }
    all
}
