//! What a command in a host's place finds in its environment: in the worker's, all that the guard needs to know of this
//! lab but for the exit node, which is the user's to name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::control;
use crate::internet::table::{DOMAIN, ECHO, PROBE_PORT, RESOLVER, SECOND_ECHO};
use crate::registry::{Claim, MARK};
use crate::topology::{Role, Topology};

/// The guard's state file in the worker's folder.
pub(super) fn state_file(dir: &Path) -> PathBuf {
    dir.join("egress-selected")
}

/// The variables, by host.
pub(super) fn of(topology: &Topology, claim: &Claim) -> BTreeMap<String, BTreeMap<String, String>> {
    let names = std::iter::once(crate::topology::INTERNET)
        .chain(topology.hosts.iter().map(|host| host.name.as_str()));
    names.map(|name| (name.to_string(), of_host(name, topology, claim))).collect()
}

fn of_host(name: &str, topology: &Topology, claim: &Claim) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::from([
        (MARK.to_string(), claim.id().as_str().to_string()),
        ("SALLYPORT_LAB_NAME".to_string(), claim.dir().name().to_string()),
        ("SALLYPORT_LAB_HOST".to_string(), name.to_string()),
    ]);
    let Some(host) = topology.host(name).filter(|host| host.role.is_node()) else {
        return variables;
    };
    let dir = claim.dir().host(name);
    let mut set = |name: &str, value: String| variables.insert(name.into(), value);
    set("TS_SOCKET", dir.join("tailscaled.sock").display().to_string());
    if host.role == Role::Worker {
        set("TS_LOGIN_SERVER", format!("http://{}:{}", topology.control().addresses.ipv4, control::PORT));
        set("TS_AUTHKEY_FILE", dir.join("authkey").display().to_string());
        set("TS_GUARD_STATE_FILE", state_file(&dir).display().to_string());
        set("TS_EGRESS_CHECK_URLS", format!("http://echo.{DOMAIN}/,http://echo2.{DOMAIN}/"));
        let targets =
            [ECHO, SECOND_ECHO].map(|pair| format!("{}:{PROBE_PORT},[{}]:{PROBE_PORT}", pair.v4, pair.v6));
        set("TS_EGRESS_PROBE_TARGETS", targets.join(","));
        set("TS_EGRESS_RESOLVERS", format!("{},{}", RESOLVER.v4, RESOLVER.v6));
    }
    variables
}
