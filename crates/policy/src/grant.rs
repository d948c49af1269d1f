//! What a rule and an entitlement have in common: a target, ports and a route; together, a set of packets.

use std::fmt;
use std::net::IpAddr;

use crate::cidr::CidrBlock;
use crate::flow::{Far, Packet, Transport};
use crate::label::{Selector, TenantScope};
use crate::name::{NameBlock, Pattern};
use crate::platform;
use crate::ports::PortSet;
use crate::route::Route;

/// What is at the far end. Ordered from the most to the least specific kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Names, on TCP 443 alone.
    Names(NameBlock),
    /// Addresses.
    Cidr(CidrBlock),
    /// Workloads by their labels.
    Selector(Selector),
    /// Sandboxes by their owner.
    Tenant(TenantScope),
    /// Every public address and every name.
    Any,
}

impl Target {
    /// Whether `far` is one of these.
    #[must_use]
    pub fn contains(&self, far: &Far) -> bool {
        match (self, far) {
            (Self::Any, Far::Address(address)) => platform::is_public(*address),
            (Self::Any, Far::Name(_)) => true,
            (Self::Names(block), Far::Name(name)) => block.matches(name),
            (Self::Cidr(block), Far::Address(address)) => block.contains(*address),
            (Self::Tenant(scope), Far::Workload(workload)) => workload.relations.contains(&scope.relation()),
            (Self::Selector(selector), Far::Workload(workload)) => selector.matches(workload),
            (Self::Any | Self::Names(_) | Self::Cidr(_) | Self::Tenant(_) | Self::Selector(_), _) => false,
        }
    }

    /// One far end of these.
    pub(crate) fn sample(&self) -> Far {
        match self {
            Self::Any => Far::Address(IpAddr::from([203, 0, 113, 1])),
            Self::Names(block) => Far::Name(block.sample().expect("a name block is never empty")),
            Self::Cidr(block) => Far::Address(block.set().first().expect("a cidr block is never empty")),
            Self::Tenant(scope) => Far::Workload(scope.least()),
            Self::Selector(selector) => Far::Workload(selector.least()),
        }
    }

    /// The kind's key in files.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Cidr(_) => "cidr",
            Self::Names(_) => "dns_name",
            Self::Tenant(_) => "tenant",
            Self::Selector(_) => "selector",
        }
    }

    /// How specific this is within what it can overlap with: exact names before wildcards, long prefixes before short
    /// ones, `any` last. Smaller is more specific.
    pub(crate) fn specificity(&self) -> u8 {
        match self {
            Self::Names(block) => match block.pattern() {
                Pattern::Exact(_) => 0,
                Pattern::Children(_) => 1,
                Pattern::Every => 2,
            },
            Self::Cidr(block) => 128 - block.cidr().prefix_len(),
            Self::Selector(_) => 0,
            Self::Tenant(_) => 1,
            Self::Any => u8::MAX,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Cidr(block) => write!(f, "cidr {block}"),
            Self::Names(block) => write!(f, "dns_name {block}"),
            Self::Tenant(scope) => write!(f, "tenant {}", scope.word()),
            Self::Selector(selector) => write!(f, "selector {selector}"),
        }
    }
}

/// A set of packets: every packet to the target, with these protocols and ports, by this route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    pub(crate) target: Target,
    pub(crate) ports: PortSet,
    pub(crate) route: Route,
}

impl Grant {
    /// The far ends.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The protocols and ports.
    #[must_use]
    pub fn ports(&self) -> &PortSet {
        &self.ports
    }

    /// The route.
    #[must_use]
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Whether this packet is one of the set: what the grant means.
    #[must_use]
    pub fn admits(&self, packet: &Packet) -> bool {
        self.reaches(&packet.flow.far, packet.flow.transport) && self.route.contains(&packet.via)
    }

    /// Whether the flow is in the set by some way.
    pub(crate) fn reaches(&self, far: &Far, transport: Transport) -> bool {
        self.target.contains(far) && self.ports.contains(transport)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.target)?;
        match self.target {
            Target::Names(_) => {}
            Target::Any | Target::Cidr(_) | Target::Tenant(_) | Target::Selector(_) => {
                write!(f, ", {}", self.ports)?
            }
        }
        match self.route {
            Route::Posture => Ok(()),
            Route::ExitNodes(_) | Route::Service(_) | Route::Uplink => write!(f, ", by {}", self.route),
        }
    }
}

macro_rules! grants {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) Grant);

        impl std::ops::Deref for $name {
            type Target = Grant;
            fn deref(&self) -> &Grant {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

grants! {
    /// An egress rule that a workload declares: never `*`, never with excepts on names.
    EgressRule,
    /// An ingress rule that a workload declares: a cidr, a tenant scope or any, by no route.
    IngressRule,
    /// What a ceiling allows to be declared.
    Entitlement
}
