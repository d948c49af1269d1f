//! The client against a real tailscaled, without root: userspace networking, loopback only, a control server of the
//! lab where a login is needed.
//!
//! Programs come from `SALLYPORT_TAILSCALED` and `SALLYPORT_LABCTL`, else from the cache that `make setup` fills. A
//! missing one fails the tests where `CI` is set and is said loudly elsewhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene has failed")]

mod authority;
mod bus;
mod control;
mod fresh;
mod login;
mod policy;
mod programs;
mod tailscaled;
mod wiped_key;
