//! nf_tables over netlink, in process: a typed rule set goes in as one transaction, and what the kernel holds comes out.
//!
//! It speaks the part of nf_tables that the kill switch needs (`linux/netfilter/nf_tables.h`), without the `nft` program
//! and without C libraries. Tables have no owner flag, so they outlive the process that made them.

mod batch;
mod expression;
mod model;
mod monitor;
mod snapshot;
mod socket;
mod statement;
pub(crate) mod wire;

pub use batch::{Change, SetRef, Transaction};
pub use model::{
    Base, Chain, Element, Family, Field, FieldKind, Hook, Kind, Policy, Rule, Ruleset, Set, Shape, Table,
    Timeouts,
};
pub use monitor::{Commit, Monitor, News};
pub use snapshot::Snapshot;
pub use socket::{CounterReading, Generation, NfTables, NfTablesError};
pub(crate) use socket::{netlink, receive};
pub use statement::{Key, Log, Rejection, Statement, Verdict};
