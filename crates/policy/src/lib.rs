//! Rules, ceilings, containment and explain: what a workload may declare, what it declared, and whether a packet
//! may leave, decided once, exactly, and explained by the same code.
//!
//! Pure: no IO, no async, no clock. Text comes in through [`mod@file`] (YAML, TOML, JSON) or as [`raw`] shapes that the
//! gateway fills from the wire; both end in types in which an illegal rule has no spelling. A [`Ceiling`] and a
//! [`RuleSet`] go into [`contains`]; a rule set alone goes into [`compile`], whose [`Program`] answers [`evaluate()`]
//! and [`diff()`].
#![forbid(unsafe_code)]

mod ceiling;
mod cidr;
mod containment;
mod diff;
mod document;
mod emit;
mod evaluate;
mod explain;
pub mod file;
mod flow;
mod gap;
mod grant;
mod index;
mod label;
mod mistake;
mod name;
mod parse;
pub mod platform;
mod port_map;
mod ports;
mod program;
mod ranges;
pub mod raw;
mod refusal;
mod route;
mod rule_set;
mod suggest;

pub use ceiling::{Allowance, Ceiling, HostnameRules};
pub use cidr::{Cidr, CidrBlock, CidrError};
pub use containment::{Cover, Decision, Outcome, PostureOutcome, contains};
pub use diff::{Change, ChangeKind, Diff, Region, diff};
pub use evaluate::{Reason, RuleRef, Verdict, evaluate, evaluate_ingress};
pub use explain::{Mark, Tree};
pub use flow::{Far, Flow, FlowError, Packet, Relation, Transport, Workload};
pub use gap::gap;
pub use grant::{EgressRule, Entitlement, Grant, IngressRule, Target};
pub use label::{LabelError, Labels, Namespace, Selector, TenantScope};
pub use mistake::{Fault, Mistake, Mistakes, Path, Place, Step};
pub use name::{DnsName, NameBlock, NameError, Pattern};
pub use parse::{Edge, limits};
pub use platform::Platform;
pub use ports::{PortSet, PortSpan, Protocol};
pub use program::{AddressGrant, NameGrant, Program, Resolves, WorkloadGrant, compile, compile_ceiling};
pub use refusal::{Refusal, RefusalReason};
pub use route::{ExitNode, Posture, Route, ServiceRef, Via};
pub use rule_set::{Declared, DnsEgress, RuleSet, Source};
pub use suggest::{CeilingChange, RuleChange};
