//! The kill switch in real namespaces: each test first shows that its probe sees a leak, then that there is none.
//!
//! The tunnel is a veth called `tailscale0`; the real tailscaled is the lab's business.
#![expect(clippy::unwrap_used, reason = "a failed step of the arrangement is a failed test")]

mod keeping;
mod own;
mod probe;
mod shared;
mod world;
