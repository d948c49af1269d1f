//! Posture of a workload: established before it starts.
#![deny(unsafe_code)]

pub mod address;
pub mod check;
pub mod dns;
mod driver;
pub mod env;
pub mod events;
mod exit_node;
mod exposure;
mod families;
pub mod host;
mod login;
pub mod machine;
pub mod path;
pub mod plan;
pub mod posture;
pub mod probe;
pub mod reason;
pub mod secret;
pub mod state_file;
mod tls;

pub use driver::start;
pub use events::Report;
