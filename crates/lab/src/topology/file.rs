//! The topology file as it is written: every unknown key is an error.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

use super::Role;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) domain: String,
    pub(super) underlay: Underlay,
    pub(super) hosts: BTreeMap<String, HostTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Underlay {
    pub(super) networks: Vec<IpNet>,
    pub(super) gateway: Vec<IpAddr>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostTable {
    pub(super) role: Role,
    pub(super) addresses: Vec<IpAddr>,
    #[serde(default)]
    pub(super) public: Vec<IpAddr>,
    #[serde(default)]
    pub(super) tags: Vec<String>,
}
