//! Network namespaces, links, routes and counters: what the kernel holds for us, made and read from inside the process.
//!
//! Everything here is named by a [`Namespace`] that has no name in the file system: it lives as long as someone holds
//! its descriptors, so that a killed holder leaves nothing behind. `unsafe` is confined to [`spawn`].

#![deny(unsafe_code)]

pub mod counter;
pub mod kill_switch;
pub mod link;
pub mod netns;
pub mod nf_tables;
pub mod nft;
#[cfg(test)]
mod privilege;
pub mod route;
#[expect(unsafe_code, reason = "a child enters its namespace between fork and exec")]
pub mod spawn;
pub mod sysctl;

pub use link::Links;
pub use netns::{Namespace, NetnsId, Resident};
pub use spawn::{Process, Spawner};
