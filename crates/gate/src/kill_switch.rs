//! The kill switch: what may pass, as a value, and the rules that hold it in the kernel.
//!
//! [`GatePolicy`] says what may pass. [`OwnNamespace`] and [`SharedNamespace`] render it into a rule set, purely; all of it
//! that changes while a workload runs stands in sets, so [`plan()`] turns a change of policy into one transaction on
//! elements. [`invariants()`] reads any rendered rule set and complains. [`Keeper`] puts it in place and keeps it there.

mod invariants;
mod keeper;
mod links;
mod own;
mod plan;
mod policy;
mod ranges;
mod shared;

pub use invariants::{Fault, Violation, invariants};
pub use keeper::{Condition, Gap, Gate, Keeper, KeeperError, Watch};
pub use links::{LinkNews, link_names};
pub use own::{OwnNamespace, WorkloadEnd};
pub use plan::plan;
pub use policy::{
    AllowRule, Established, ExitNodeFamily, GatePolicy, Internet, Passage, PortRange, Protocol, Tailnet, Via,
};
pub use shared::{Dhcp, Resolver, SharedNamespace};

/// The name of our tables, in both families.
pub const TABLE: &str = "sallyport";

/// The bits of the packet mark that are Tailscale's (`tsconst/linuxfw.go`).
pub const TAILSCALE_MARK_MASK: u32 = 0x00ff_0000;

/// tailscaled's own sockets carry this mark: they leave by the uplink (`tsconst/linuxfw.go`).
pub const TAILSCALE_BYPASS_MARK: u32 = 0x0008_0000;

/// Sockets of the guard's DNS forwarder carry this mark, so that its questions are not turned back to itself. It lies
/// outside Tailscale's bits: they are routed as the workload's packets are.
pub const FORWARDER_MARK: u32 = 0x5a00_0000;

/// The bits of [`FORWARDER_MARK`].
pub const FORWARDER_MARK_MASK: u32 = 0xff00_0000;
