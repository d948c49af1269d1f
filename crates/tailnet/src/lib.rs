//! What Sallyport knows of a tailnet: tailscaled's LocalAPI over its socket, exit-node resolution,
//! and what its policy file allows.
//!
//! - [`Client`] speaks the LocalAPI: one connection a request, a deadline on each, every error shape told apart.
//! - [`Bus`] follows the daemon's notifications and says when it lost them; [`Watch`] is one such stream.
//! - [`wire`] holds tailscaled's JSON as it is; unknown fields are tolerated, absent and null ones are zero.
//! - [`exit_node`] turns what a person typed into one concrete exit node. Pure.
//! - [`policy_file`] reads a tailnet's policy and says what it lets a tag reach: [`policy_file::may_reach`],
//!   [`policy_file::may_use_exit`], [`policy_file::run_tests`]. Pure.
//!
//! ```no_run
//! use sallyport_tailnet::{Client, ExitNodeArg, MaskedPrefs, Peers, exit_node};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("/var/run/tailscale/tailscaled.sock");
//! let status = client.status(Peers::Include).await?;
//! let argument: ExitNodeArg = "exit-us-east".parse()?;
//! let node = exit_node::resolve(&status, &argument, None)?;
//! client.patch_prefs(&MaskedPrefs::new().pin_exit_node(&node.id)).await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod client;
pub mod error;
pub mod exit_node;
mod http;
pub mod policy_file;
pub mod watch;
pub mod wire;

pub use client::{Client, Peers, StartOptions, Wait};
pub use error::Error;
pub use exit_node::{ExitNode, ExitNodeArg, ResolveError};
pub use watch::{Bus, BusEvent, Mask, Watch};
pub use wire::notify::Notify;
pub use wire::ping::{PingKind, PingResult};
pub use wire::prefs::{MaskedPrefs, Prefs};
pub use wire::status::{BackendState, PeerStatus, StableId, Status};
