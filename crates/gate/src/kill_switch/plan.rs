//! From the rules that stand to the rules that should: the smallest transaction, with no gap in between.

use crate::nf_tables::{Chain, Change, Ruleset, Set, SetRef, Table, Transaction};

/// Plans the change. Where two tables differ in elements only, elements are changed; where they differ otherwise, the
/// table is replaced within the same transaction. Empty where nothing is to do.
#[must_use]
pub fn plan(from: &Ruleset, to: &Ruleset) -> Transaction {
    let mut changes = Vec::new();
    for table in &to.tables {
        match from.tables.iter().find(|old| old.family == table.family && old.name == table.name) {
            Some(old) if same_structure(old, table) => elements(old, table, &mut changes),
            Some(_) | None => changes.push(Change::Replace(table.clone())),
        }
    }
    for old in &from.tables {
        if !to.tables.iter().any(|table| table.family == old.family && table.name == old.name) {
            changes.push(Change::Delete(old.family, old.name.clone()));
        }
    }
    Transaction { changes }
}

fn same_structure(a: &Table, b: &Table) -> bool {
    let shape = |set: &Set| (set.fields.clone(), set.shape, set.timeouts);
    let chains = |table: &Table| -> Vec<(String, Chain)> {
        table.chains.iter().map(|(name, chain)| (name.clone(), chain.clone())).collect()
    };
    a.comment == b.comment
        && a.counters == b.counters
        && a.sets.len() == b.sets.len()
        && a.sets.iter().all(|(name, set)| b.sets.get(name).is_some_and(|other| shape(set) == shape(other)))
        && chains(a) == chains(b)
}

fn elements(old: &Table, new: &Table, changes: &mut Vec<Change>) {
    for (name, set) in &new.sets {
        let (Some(before), Some(address)) = (old.sets.get(name), SetRef::of(new, name)) else { continue };
        let gone: std::collections::BTreeSet<_> =
            before.elements.difference(&set.elements).cloned().collect();
        let fresh: std::collections::BTreeSet<_> =
            set.elements.difference(&before.elements).cloned().collect();
        if !gone.is_empty() {
            changes.push(Change::Remove(address.clone(), gone));
        }
        if !fresh.is_empty() {
            changes.push(Change::Add(address, fresh));
        }
    }
}
