//! What a real tailscaled will not do on demand: hang, break off, answer garbage. A server on a unix socket plays it.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene has failed")]

mod bus;
mod failures;
mod refusals;
mod server;
