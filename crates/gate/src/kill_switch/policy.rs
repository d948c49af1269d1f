//! What may pass, as a value. Nothing here knows how it is enforced.

use std::collections::BTreeSet;

use ipnet::IpNet;

/// What may pass at one moment. The guard computes it from its state; [`GatePolicy::shut`] is where everything starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatePolicy {
    /// Whether tailscaled itself may use the uplink.
    pub tailscaled: Passage,
    /// Where the workload's Internet traffic may go.
    pub internet: Internet,
    /// What of the tailnet the workload may reach.
    pub tailnet: Tailnet,
    /// What else it may reach, spelled out.
    pub allow: BTreeSet<AllowRule>,
    /// TCP ports on which it may be reached over the uplink; answers only (shared shape).
    pub ingress: BTreeSet<u16>,
    /// What becomes of flows that were open when their way was shut.
    pub established: Established,
}

impl GatePolicy {
    /// Nothing passes, tailscaled neither.
    #[must_use]
    pub fn shut() -> Self {
        Self {
            tailscaled: Passage::Shut,
            internet: Internet::Shut,
            tailnet: Tailnet::Shut,
            allow: BTreeSet::new(),
            ingress: BTreeSet::new(),
            established: Established::Reset,
        }
    }

    /// Only tailscaled passes: it has to log in before anything else can.
    #[must_use]
    pub fn bootstrap() -> Self {
        Self { tailscaled: Passage::Open, ..Self::shut() }
    }

    /// The Internet by an exit node: IPv4, and IPv6 where a probe has shown that it works.
    #[must_use]
    pub fn exit_node(ipv4: ExitNodeFamily, ipv6: ExitNodeFamily) -> Self {
        Self { internet: Internet::ExitNode { ipv4, ipv6 }, ..Self::bootstrap() }
    }

    /// The Internet by the normal route: posture none, or fail-open that was spelled out.
    #[must_use]
    pub fn uplink() -> Self {
        Self { internet: Internet::Uplink, ..Self::bootstrap() }
    }

    /// With this much of the tailnet.
    #[must_use]
    pub fn with_tailnet(mut self, tailnet: Tailnet) -> Self {
        self.tailnet = tailnet;
        self
    }

    /// With these rules.
    #[must_use]
    pub fn with_allow(mut self, rules: impl IntoIterator<Item = AllowRule>) -> Self {
        self.allow.extend(rules);
        self
    }

    /// With these ports reachable over the uplink.
    #[must_use]
    pub fn with_ingress(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.ingress.extend(ports);
        self
    }

    /// With this fate of open flows.
    #[must_use]
    pub fn with_established(mut self, established: Established) -> Self {
        self.established = established;
        self
    }
}

/// Whether something may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// It may not.
    Shut,
    /// It may.
    Open,
}

/// Where Internet traffic may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Internet {
    /// Nowhere.
    Shut,
    /// To the tailnet interface and nowhere else.
    ExitNode {
        /// IPv4.
        ipv4: ExitNodeFamily,
        /// IPv6.
        ipv6: ExitNodeFamily,
    },
    /// To the uplink.
    Uplink,
}

/// One address family by an exit node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitNodeFamily {
    /// It passes.
    Allowed,
    /// It is refused at once, so that the workload tries the other one.
    Rejected,
}

/// What of the tailnet may be reached by the tailnet interface. 100.100.100.100 and its IPv6 twin never may: they
/// leaked a query in the trial, and serve a web page (`spec/gate.md` 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tailnet {
    /// Nothing.
    Shut,
    /// All devices; the tailnet's own policy decides.
    All,
}

/// What becomes of flows that were open when their way was shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Established {
    /// They hear nothing, and go on when the way is open again: the grace after a short loss.
    Wait,
    /// Their next packet is answered by a TCP reset or ICMP error.
    Reset,
}

/// One rule: `cidr:proto/port`, and by which way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllowRule {
    /// Where to.
    pub to: IpNet,
    /// Which protocol.
    pub protocol: Protocol,
    /// Which ports; all of them for a protocol without ports.
    pub ports: PortRange,
    /// By which way.
    pub via: Via,
}

impl AllowRule {
    /// A rule for one protocol and its ports.
    #[must_use]
    pub fn new(to: IpNet, protocol: Protocol, ports: PortRange, via: Via) -> Self {
        Self { to: to.trunc(), protocol, ports, via }
    }
}

/// A protocol in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP or ICMPv6, by the family of the prefix.
    Icmp,
    /// Every protocol.
    Any,
}

/// Ports from first to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

impl PortRange {
    /// All ports.
    pub const ALL: Self = Self { first: 0, last: u16::MAX };

    /// One port.
    #[must_use]
    pub fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }
}

/// By which way a rule's packets leave. A rule for both is two rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// The tailnet interface.
    Tailnet,
    /// The uplink.
    Uplink,
}
