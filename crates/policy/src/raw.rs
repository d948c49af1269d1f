//! Rules and ceilings as they were said, before anything is checked: what files decode to and what the gateway fills
//! from the wire.

use std::collections::BTreeMap;

/// One rule or entitlement, as it was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawRule {
    /// `cidr`.
    pub cidr: Option<RawCidr>,
    /// `dns_name`; `https_hostname` on the wire.
    pub name: Option<String>,
    /// `dns_name_except`; `https_hostname_except` on the wire.
    pub name_except: Option<Vec<String>>,
    /// `tenant`.
    pub tenant: Option<String>,
    /// `any`.
    pub any: Option<bool>,
    /// `selector`.
    pub selector: Option<RawSelector>,
    /// `ports`.
    pub ports: Option<Vec<RawPort>>,
    /// `route`, in our own files only.
    pub route: Option<RawRoute>,
    /// A mistake in this rule was already told; it is not checked further.
    pub damaged: bool,
}

/// A prefix and its excepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawCidr {
    /// The prefix.
    pub cidr: String,
    /// The excepts.
    pub except: Option<Vec<String>>,
}

/// A selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawSelector {
    /// Pod labels.
    pub pod_labels: BTreeMap<String, String>,
    /// Namespace labels; absent and empty are the same on the wire.
    pub namespace_labels: Option<BTreeMap<String, String>>,
}

/// A port or a range of ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawPort {
    /// Empty means TCP.
    pub protocol: String,
    /// The port, or the first of the range.
    pub port: i64,
    /// 0, or the last of the range.
    pub end_port: i64,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawRoute {
    /// `route: WORD`.
    Word(String),
    /// `route: {exit_nodes: [...]}`.
    ExitNodes(Vec<String>),
    /// `route: {service: NAMESPACE/NAME}`.
    Service(String),
}

/// What a workload declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawRuleSet {
    /// Egress rules; empty is the same as unset.
    pub egress: Vec<RawRule>,
    /// Ingress rules.
    pub ingress: Vec<RawRule>,
    /// Nothing leaves.
    pub deny_egress: Option<bool>,
    /// Nothing enters.
    pub deny_ingress: Option<bool>,
    /// `allow`, `deny`, or the wire's enum names.
    pub dns_egress: Option<String>,
    /// The posture, in our own files only.
    pub posture: Option<String>,
}

/// What may be declared in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RawAllowance {
    /// Nothing was said.
    #[default]
    Absent,
    /// `unrestricted` or `none`.
    Word(String),
    /// A list.
    List(Vec<RawRule>),
}

/// A ceiling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawCeiling {
    /// Egress that may be declared.
    pub allowed_egress: RawAllowance,
    /// Egress of a workload that declares none.
    pub default_egress: Vec<RawRule>,
    /// Refuses every hostname rule.
    pub deny_https_hostname_rules: Option<bool>,
    /// Ingress that may be declared.
    pub allowed_ingress: RawAllowance,
    /// Ingress of a workload that declares none.
    pub default_ingress: Vec<RawRule>,
    /// The weakest posture that may be declared, in our own files only.
    pub minimum_posture: Option<String>,
}
