//! Rules and ceilings back to the form that files have. Reading what was written gives the same value.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::ceiling::{Allowance, Ceiling, HostnameRules};
use crate::grant::{EgressRule, Entitlement, Grant, IngressRule, Target};
use crate::label::Namespace;
use crate::ports::{PortSet, PortSpan};
use crate::route::{Posture, Route};
use crate::rule_set::{Declared, DnsEgress, RuleSet};

impl Serialize for Grant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let texts = |items: Vec<String>| items;
        let mut map = serializer.serialize_map(None)?;
        match &self.target {
            Target::Any => map.serialize_entry("any", &true)?,
            Target::Cidr(block) if block.except().is_empty() => {
                map.serialize_entry("cidr", &block.cidr().to_string())?
            }
            Target::Cidr(block) => {
                let except = texts(block.except().iter().map(ToString::to_string).collect());
                map.serialize_entry(
                    "cidr",
                    &serde_json::json!({ "cidr": block.cidr().to_string(), "except": except }),
                )?;
            }
            Target::Names(block) => {
                map.serialize_entry("dns_name", &block.pattern().to_string())?;
                if !block.except().is_empty() {
                    let except = texts(block.except().iter().map(ToString::to_string).collect());
                    map.serialize_entry("dns_name_except", &except)?;
                }
            }
            Target::Tenant(scope) => map.serialize_entry("tenant", scope.word())?,
            Target::Selector(selector) => {
                let mut value = serde_json::json!({ "pod_labels": selector.pod().to_map() });
                if let Namespace::Labelled(labels) = selector.namespace() {
                    value["namespace_labels"] = serde_json::json!(labels.to_map());
                }
                map.serialize_entry("selector", &value)?;
            }
        }
        if let (PortSet::Listed(spans), false) = (&self.ports, matches!(self.target, Target::Names(_))) {
            let spans: Vec<serde_json::Value> = spans.iter().map(port).collect();
            map.serialize_entry("ports", &spans)?;
        }
        match &self.route {
            Route::Posture => {}
            Route::Uplink => map.serialize_entry("route", "uplink")?,
            Route::Service(service) => {
                map.serialize_entry("route", &serde_json::json!({ "service": service.to_string() }))?
            }
            Route::ExitNodes(nodes) => {
                let nodes: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
                map.serialize_entry("route", &serde_json::json!({ "exit_nodes": nodes }))?;
            }
        }
        map.end()
    }
}

fn port(span: &PortSpan) -> serde_json::Value {
    if span.first() == span.last() {
        serde_json::json!({ "protocol": span.protocol().word(), "port": span.first() })
    } else {
        serde_json::json!({ "protocol": span.protocol().word(), "port": span.first(), "end_port": span.last() })
    }
}

macro_rules! as_grant {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(serializer)
            }
        }
    )*};
}

as_grant!(EgressRule, IngressRule, Entitlement);

impl Serialize for RuleSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.egress {
            Declared::Unset => map.serialize_entry("egress", &[(); 0])?,
            Declared::Deny => map.serialize_entry("deny_egress", &true)?,
            Declared::Rules(rules) => map.serialize_entry("egress", rules)?,
        }
        match &self.ingress {
            Declared::Unset => {}
            Declared::Deny => map.serialize_entry("deny_ingress", &true)?,
            Declared::Rules(rules) => map.serialize_entry("ingress", rules)?,
        }
        if self.dns_egress == DnsEgress::Deny {
            map.serialize_entry("dns_egress", "deny")?;
        }
        if self.posture != Posture::None {
            map.serialize_entry("posture", self.posture.word())?;
        }
        map.end()
    }
}

impl Serialize for Allowance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unrestricted => serializer.serialize_str("unrestricted"),
            Self::None => serializer.serialize_str("none"),
            Self::List(list) => list.as_slice().serialize(serializer),
        }
    }
}

impl Serialize for Ceiling {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("allowed_egress", &self.allowed_egress)?;
        if !self.default_egress.is_empty() {
            map.serialize_entry("default_egress", &self.default_egress)?;
        }
        if self.hostname_rules == HostnameRules::Denied {
            map.serialize_entry("deny_https_hostname_rules", &true)?;
        }
        map.serialize_entry("allowed_ingress", &self.allowed_ingress)?;
        if !self.default_ingress.is_empty() {
            map.serialize_entry("default_ingress", &self.default_ingress)?;
        }
        if self.minimum_posture != Posture::None {
            map.serialize_entry("minimum_posture", self.minimum_posture.word())?;
        }
        map.end()
    }
}

/// The ceiling cannot be said on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is none, which the wire cannot say: an empty list there means unrestricted")]
pub struct NoneOnTheWire(pub &'static str);

impl Ceiling {
    /// The ceiling in the wire's reading, where an empty list is unrestricted.
    ///
    /// # Errors
    ///
    /// When a direction allows nothing: the wire would open it.
    pub fn wire_allowed(&self) -> Result<[&[Entitlement]; 2], NoneOnTheWire> {
        for (key, allowance) in
            [("allowed_egress", &self.allowed_egress), ("allowed_ingress", &self.allowed_ingress)]
        {
            if matches!(allowance, Allowance::None) {
                return Err(NoneOnTheWire(key));
            }
        }
        Ok([self.allowed_egress.entitlements(), self.allowed_ingress.entitlements()])
    }
}
