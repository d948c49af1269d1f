//! What a lab tells of itself at one moment.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use sallyport_gate::NetnsId;
use sallyport_gate::counter::Count;
use sallyport_tailnet::{Peers, Status as TailscaledStatus};
use secrecy::ExposeSecret;
use serde::Serialize;

use super::Lab;
use crate::control::{Node, Settings};
use crate::daemon::ProcessState;
use crate::fault::{Key, Parameters};
use crate::host::Link;
use crate::internet::dns;
use crate::internet::echo;
use crate::internet::journal::Excerpt;
use crate::internet::sink;
use crate::leak::capture;
use crate::registry::record::ControlKind;
use crate::stamp::Stamp;
use crate::topology::{Dual, Role};

/// How long a tailscaled may take to tell its state; a stopped one never does.
const PATIENCE: Duration = Duration::from_millis(500);

/// The whole answer of `lab status --json`.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The lab's name.
    pub name: String,
    /// Its ownership mark.
    pub id: String,
    /// Its folder.
    pub dir: PathBuf,
    /// The supervisor's process id.
    pub supervisor_pid: u32,
    /// How long it took to come up, in seconds.
    pub raised_in_seconds: f64,
    /// The tailnet's MagicDNS domain.
    pub domain: String,
    /// The control server.
    pub control: ControlStatus,
    /// The hosts, sorted by name.
    pub hosts: Vec<HostStatus>,
    /// Faults in force, the oldest first.
    pub faults: Vec<FaultStatus>,
    /// The worker's uplink.
    pub uplink: UplinkStatus,
    /// What the fake Internet has seen.
    pub internet: InternetStatus,
    /// The worker's auth key: reusable, good for a day.
    pub worker_authkey: String,
}

/// The control server.
#[derive(Debug, Serialize)]
pub struct ControlStatus {
    /// Which program.
    pub kind: ControlKind,
    /// What nodes log in to.
    pub login_server: String,
    /// Its process.
    pub process: ProcessState,
    /// How it is set to misbehave; absent where it cannot be, or does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
}

/// A host.
#[derive(Debug, Serialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Its network namespace.
    pub netns: NetnsId,
    /// Its underlay addresses.
    pub addresses: Dual,
    /// Its public addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<Dual>,
    /// Its links.
    pub links: Vec<Link>,
    /// Its tailscaled; absent on the control server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tailscaled: Option<DaemonStatus>,
    /// Its node as the control server sees it; absent where there is none, or nobody to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Node>,
}

/// A tailscaled.
#[derive(Debug, Serialize)]
pub struct DaemonStatus {
    /// Its process.
    pub process: ProcessState,
    /// Its socket.
    pub socket: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// The state of its backend, such as `Running`; absent where it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Its addresses in the tailnet.
    pub tailnet_addresses: Vec<IpAddr>,
    /// The name of the exit node that it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_node: Option<String>,
}

/// A fault in force.
#[derive(Debug, Serialize)]
pub struct FaultStatus {
    /// What it is.
    #[serde(flatten)]
    pub key: Key,
    /// What was said beside.
    pub parameters: Parameters,
    /// Since when.
    pub since: Stamp,
}

/// What left the worker by its uplink.
#[derive(Debug, Serialize)]
pub struct UplinkStatus {
    /// The link's name at its far end.
    pub link: String,
    /// Packets by kind, as nftables counted them; `leak` is all that nobody declared.
    pub counters: BTreeMap<String, Count>,
    /// The same by a capture, which knows nothing of nftables.
    pub capture: capture::Report,
}

/// What the fake Internet has seen.
#[derive(Debug, Serialize)]
pub struct InternetStatus {
    /// Who asked an echo service for its address.
    pub echo: Excerpt<echo::Asked>,
    /// Who asked the DNS server what.
    pub dns: Excerpt<dns::Question>,
    /// How the DNS server treats its callers.
    pub dns_mode: dns::Mode,
    /// What arrived at the sink.
    pub sink: sink::Report,
}

impl Lab {
    /// Tells its state.
    ///
    /// # Errors
    /// Where the counters cannot be read.
    pub async fn status(&self) -> anyhow::Result<Status> {
        let nodes = self.control.nodes().await.unwrap_or_default();
        let mut hosts = Vec::new();
        for host in &self.plan.topology.hosts {
            let tailscaled = match self.daemons.get(&host.name) {
                Some(daemon) => Some(daemon_status(daemon).await),
                None => None,
            };
            hosts.push(HostStatus {
                name: host.name.clone(),
                role: host.role,
                netns: self.place(&host.name)?.namespace_ref().id(),
                addresses: host.addresses,
                public: host.public,
                links: self.network.links_of(&host.name).collect(),
                node: node_of(&nodes, &host.name, tailscaled.as_ref()),
                tailscaled,
            });
        }
        let faults = self.faults.iter().map(|active| FaultStatus {
            key: active.key.clone(),
            parameters: active.parameters.clone(),
            since: active.since,
        });
        Ok(Status {
            name: self.claim.dir().name().into(),
            id: self.claim.id().as_str().into(),
            dir: self.claim.dir().path().into(),
            supervisor_pid: std::process::id(),
            raised_in_seconds: self.raised_in.as_secs_f64(),
            domain: self.plan.topology.domain.clone(),
            control: ControlStatus {
                kind: self.control.kind(),
                login_server: self.control.login_server(),
                process: ProcessState::of(self.control.process()),
                settings: self.control.settings().await.ok(),
            },
            hosts,
            faults: faults.collect(),
            uplink: UplinkStatus {
                link: self.counters.link.clone(),
                counters: self.counters.read(self.network.internet.namespace_ref())?,
                capture: self.capture.report(),
            },
            internet: InternetStatus {
                echo: self.internet.echo.log(),
                dns: self.internet.dns.log(),
                dns_mode: self.internet.dns.mode(),
                sink: self.internet.sink.report(),
            },
            worker_authkey: self.worker_key.secret.expose_secret().into(),
        })
    }
}

/// The node of a host: by its address where the daemon knows it, else by its name.
fn node_of(nodes: &[Node], host: &str, daemon: Option<&DaemonStatus>) -> Option<Node> {
    let addresses = daemon.map(|daemon| daemon.tailnet_addresses.as_slice()).unwrap_or_default();
    let by_address =
        nodes.iter().find(|node| node.addresses.iter().any(|address| addresses.contains(address)));
    by_address.or_else(|| nodes.iter().find(|node| node.name == host)).cloned()
}

async fn daemon_status(daemon: &crate::daemon::Tailscaled) -> DaemonStatus {
    let client = daemon.client();
    let asked = match daemon.state() {
        ProcessState::Running { .. } => {
            tokio::time::timeout(PATIENCE, client.status(Peers::Include)).await.ok()
        }
        ProcessState::Stopped { .. } | ProcessState::Ended { .. } | ProcessState::Absent => None,
    };
    let told: Option<TailscaledStatus> = asked.and_then(Result::ok);
    let exit_node = told.as_ref().and_then(|status| status.peers.values().find(|peer| peer.exit_node));
    DaemonStatus {
        process: daemon.state(),
        socket: daemon.socket(),
        log: daemon.log(),
        backend: told.as_ref().map(|status| status.backend_state.to_string()),
        tailnet_addresses: told.as_ref().map(|status| status.tailscale_ips.clone()).unwrap_or_default(),
        exit_node: exit_node.map(|peer| peer.fqdn().split('.').next().unwrap_or_default().to_string()),
    }
}
