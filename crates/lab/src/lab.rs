//! A raised lab: its network, its daemons, its control server, its services, and what is broken in it right now.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ipnet::IpNet;
use sallyport_gate::counter::IngressCounters;
use sallyport_gate::{Namespace, Spawner};
use secrecy::{ExposeSecret, SecretString};

use crate::binaries::{self, Program};
use crate::control::policy::Internet as PolicyInternet;
use crate::control::{AuthKey, Control, KeyOrder, Setup, Uses, policy};
use crate::daemon::Tailscaled;
use crate::fault::apply::Active;
use crate::host::{Link, Place};
use crate::internet::app::App;
use crate::internet::dns::zone::Records;
use crate::internet::{Internet, table};
use crate::join::{self, Identity};
use crate::leak::capture::Capture;
use crate::leak::declared::Declared;
use crate::leak::rules;
use crate::network::Network;
use crate::registry::record::{ControlKind, Phase, Place as RecordedPlace, Record};
use crate::registry::{Claim, MARK};
use crate::relay::Relay;
use crate::topology::{Host, Role, Topology};

mod environment;
pub mod status;

/// How long nodes may take to be seen by the control server as they should be.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);

/// The worker's auth key is good for a day.
const KEY_LIFETIME_SECONDS: u64 = 24 * 60 * 60;

/// Whether the worker's node joins when the lab comes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker {
    /// Its tailscaled runs and is not logged in: the guard does that.
    Leave,
    /// It joins.
    Join,
}

/// What a lab is to be.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its hosts.
    pub topology: Topology,
    /// Which control server.
    pub control: ControlKind,
    /// Whether the worker joins.
    pub worker: Worker,
}

/// Told how far the raising is.
pub type Progress<'a> = &'a mut dyn FnMut(String);

/// A lab that is up.
#[derive(Debug)]
pub struct Lab {
    claim: Arc<Claim>,
    plan: Plan,
    pub(crate) spawner: Spawner,
    // The services' tasks run on threads of the network's places.
    pub(crate) internet: Internet,
    // Served as long as they are held.
    _apps: BTreeMap<String, App>,
    pub(crate) control: Control,
    pub(crate) daemons: BTreeMap<String, Tailscaled>,
    pub(crate) counters: IngressCounters,
    pub(crate) capture: Capture,
    pub(crate) relays: BTreeMap<(String, Link), Relay>,
    worker_key: AuthKey,
    pub(crate) faults: Vec<Active>,
    raised_in: Duration,
    // Its standard input is a pipe that ends with this process.
    _reaper: Child,
    pub(crate) network: Network,
}

impl Lab {
    /// Raises a lab. Where it fails, processes may be left; the holder of the claim ends them.
    ///
    /// `reaper` is a command that runs [`crate::reaper::watch`] for this lab: should this process be killed, it clears
    /// away what is left.
    ///
    /// # Errors
    /// Whatever could not be had, with what to do about it.
    pub async fn raise(
        claim: Arc<Claim>,
        plan: Plan,
        reaper: Command,
        progress: Progress<'_>,
    ) -> Result<Self> {
        let began = Instant::now();
        let mut say = |what: &str| progress(format!("{what} ({:.1} s)", began.elapsed().as_secs_f64()));
        let tailscaled = binaries::find(Program::Tailscaled)?;
        let server = binaries::find(match plan.control {
            ControlKind::Own => Program::Labctl,
            ControlKind::Headscale => Program::Headscale,
        })?;
        let spawner = Spawner::start().context("cannot start a thread")?;
        let topology = &plan.topology;
        let network = Network::build(topology, claim.dir()).await?;
        claim.write(&record(&claim, &plan, &network, Phase::Starting))?;
        let reaper = start_reaper(reaper, &claim)?;
        say(&format!("{} network namespaces, joined by links", network.hosts.len() + 1));

        let mut daemons = launch_daemons(&claim, topology, &network, &spawner, &tailscaled)?;
        let internet = network.internet.resident().run(Internet::start).await??;
        name_hosts(topology, &internet);
        let apps = start_apps(topology, &network).await?;
        let (counters, capture) = count_leaks(&claim, topology, &network)?;
        say("a fake Internet: address echo, DNS, sink; the worker's uplink is counted");

        let mut control = prepare_control(&claim, &plan, server)?;
        control.start(&spawner, place(&network, &topology.control().name)?.namespace_ref()).await?;
        say(&format!("the control server at {}", control.login_server()));

        let worker_key = control
            .mint(&KeyOrder {
                tags: topology.worker().tags.clone(),
                uses: Uses::Many,
                lifetime_seconds: KEY_LIFETIME_SECONDS,
            })
            .await?;
        write_secret(&claim.dir().host(&topology.worker().name).join("authkey"), &worker_key.secret)?;
        let joining: Vec<&Host> = topology
            .nodes()
            .filter(|host| host.role != Role::Worker || plan.worker == Worker::Join)
            .collect();
        for daemon in daemons.values_mut() {
            daemon.answers().await?;
        }
        say(&format!("{} tailscaleds", daemons.len()));
        let mut lab = Self {
            raised_in: Duration::ZERO,
            _reaper: reaper,
            internet,
            _apps: apps,
            control,
            daemons,
            counters,
            capture,
            relays: BTreeMap::new(),
            worker_key,
            faults: Vec::new(),
            network,
            spawner,
            plan: plan.clone(),
            claim,
        };
        lab.join_all(&joining).await?;
        lab.settled(&joining).await?;
        say(&format!(
            "joined: {}",
            joining.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", ")
        ));
        lab.raised_in = began.elapsed();
        lab.claim.write(&record(&lab.claim, &lab.plan, &lab.network, Phase::Up))?;
        Ok(lab)
    }

    /// Stops holding it: its daemons, links and namespaces are gone when this returns, but for what processes that
    /// others started inside still hold.
    pub async fn lower(mut self) {
        for daemon in self.daemons.values() {
            // The namespaces go with it; a polite end would only take longer.
            let _ = daemon.signal(nix::sys::signal::Signal::SIGKILL);
        }
        self.control.kill().await;
        self.internet.stop().await;
        drop(self.network);
    }

    /// The namespaces that it holds.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.network.places().map(|(_, place)| place.namespace_ref())
    }

    /// The lab's folder and mark.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Its hosts.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.plan.topology
    }

    pub(crate) fn host(&self, name: &str) -> Result<&Host> {
        self.plan.topology.host(name).ok_or_else(|| anyhow!("no host named {name}"))
    }

    pub(crate) fn place(&self, name: &str) -> Result<&Place> {
        place(&self.network, name)
    }

    pub(crate) fn daemon(&self, name: &str) -> Result<&Tailscaled> {
        self.daemons.get(name).ok_or_else(|| anyhow!("{name} runs no tailscaled"))
    }

    /// Starts the tailscaled of a host with what it kept.
    pub(crate) async fn start_daemon(&mut self, host: &str) -> Result<()> {
        let namespace = Arc::clone(self.place(host)?.namespace_ref());
        let daemon = self.daemons.get_mut(host).ok_or_else(|| anyhow!("{host} runs no tailscaled"))?;
        Ok(daemon.start(&self.spawner, &namespace).await?)
    }

    /// Starts the control server with what it kept.
    pub(crate) async fn start_control(&mut self) -> Result<()> {
        let name = self.plan.topology.control().name.clone();
        let namespace = Arc::clone(self.place(&name)?.namespace_ref());
        Ok(self.control.start(&self.spawner, &namespace).await?)
    }

    /// Mints a key for a node of the lab.
    pub(crate) async fn node_key(&self, host: &Host) -> Result<AuthKey> {
        if host.role == Role::Worker {
            return Ok(self.worker_key.clone());
        }
        let order = KeyOrder { tags: host.tags.clone(), uses: Uses::Single, lifetime_seconds: 600 };
        Ok(self.control.mint(&order).await?)
    }

    /// Joins a node, and waits until the control server shows it as it should be.
    pub(crate) async fn join(&self, name: &str) -> Result<()> {
        let host = self.host(name)?;
        self.join_all(&[host]).await?;
        self.settled(&[host]).await
    }

    async fn join_all(&self, hosts: &[&Host]) -> Result<()> {
        let mut keys = Vec::new();
        for host in hosts {
            keys.push(self.node_key(host).await?);
        }
        let joins = hosts.iter().zip(&keys).map(|(host, key)| async move {
            let client = self.daemon(&host.name)?.client();
            let routes = if host.role == Role::Exit { default_routes() } else { Vec::new() };
            let identity = Identity {
                login_server: self.control.login_server(),
                hostname: host.name.clone(),
                routes,
                exit_node: None,
            };
            join::join(&client, &identity, &key.secret).await.map_err(anyhow::Error::from)
        });
        futures_util::future::try_join_all(joins).await.map(drop)
    }

    /// Waits until the control server shows nodes online, and exits approved.
    pub(crate) async fn settled(&self, hosts: &[&Host]) -> Result<()> {
        let mut missing = Vec::new();
        let deadline = Instant::now() + SETTLE_DEADLINE;
        while Instant::now() < deadline {
            let nodes = self.control.nodes().await?;
            missing.clear();
            for host in hosts {
                let node = nodes.iter().find(|node| node.name == host.name && !node.expired);
                if let Some(node) = node.filter(|node| host.role == Role::Exit && !node.is_exit()) {
                    // headscale waits to be told; the lab's own server approves by itself.
                    if !node.advertised_routes.is_empty() && self.control.kind() == ControlKind::Headscale {
                        self.control.approve(&node.id).await?;
                    }
                    missing.push(format!("{} is not an exit yet", host.name));
                } else if !node.is_some_and(|node| node.online) {
                    missing.push(format!("{} is not online", host.name));
                }
            }
            if missing.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("the control server does not show the nodes as they should be: {}", missing.join(", "))
    }

    /// The worker as it was when the lab came up: every fault undone, its node gone, its tailscaled new and logged
    /// out, no state file, all counters and logs at zero.
    ///
    /// # Errors
    /// Where a fault could not be undone, or a daemon not be started.
    pub async fn reset(&mut self) -> Result<()> {
        self.undo_all().await?;
        let worker = self.plan.topology.worker().name.clone();
        let daemon = self.daemon(&worker)?;
        daemon.end(nix::sys::signal::Signal::SIGKILL).await?;
        daemon.wipe()?;
        for node in self.control.nodes().await?.iter().filter(|node| node.name == worker) {
            self.control.delete(&node.id).await?;
        }
        let state_file = environment::state_file(&self.claim.dir().host(&worker));
        if let Err(error) = std::fs::remove_file(&state_file)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("cannot remove {}", state_file.display()));
        }
        self.start_daemon(&worker).await?;
        if self.plan.worker == Worker::Join {
            self.join(&worker).await?;
        }
        self.internet.echo.reset();
        self.internet.sink.clear();
        self.counters.install(self.network.internet.namespace_ref())?;
        self.capture.reset();
        Ok(())
    }

    /// Makes an auth key for somebody's use.
    ///
    /// # Errors
    /// Where the control server refuses.
    pub async fn mint(&self, order: &KeyOrder) -> Result<AuthKey> {
        Ok(self.control.mint(order).await?)
    }

    /// Withdraws an auth key.
    ///
    /// # Errors
    /// Where the control server refuses.
    pub async fn revoke(&self, id: &str) -> Result<()> {
        Ok(self.control.revoke(id).await?)
    }
}

fn place<'a>(network: &'a Network, name: &str) -> Result<&'a Place> {
    network.host(name).ok_or_else(|| anyhow!("no host named {name}"))
}

fn default_routes() -> Vec<IpNet> {
    ["0.0.0.0/0", "::/0"].map(|route| route.parse().expect("a valid prefix")).into()
}

fn record(claim: &Claim, plan: &Plan, network: &Network, phase: Phase) -> Record {
    let places =
        network.places().map(|(name, place)| (name.into(), RecordedPlace::of(place.namespace_ref())));
    Record {
        name: claim.dir().name().into(),
        id: claim.id().clone(),
        supervisor_pid: std::process::id(),
        phase,
        control: plan.control,
        topology: plan.topology.clone(),
        places: places.collect(),
        environment: environment::of(&plan.topology, claim),
    }
}

fn start_reaper(mut reaper: Command, claim: &Claim) -> Result<Child> {
    reaper.env(MARK, claim.id().as_str());
    reaper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Not in the terminal's group: Ctrl-C is for the supervisor.
    reaper.process_group(0).spawn().context("cannot start the reaper")
}

fn mark(claim: &Claim) -> Vec<(String, String)> {
    vec![(MARK.into(), claim.id().as_str().into())]
}

fn launch_daemons(
    claim: &Claim,
    topology: &Topology,
    network: &Network,
    spawner: &Spawner,
    program: &Path,
) -> Result<BTreeMap<String, Tailscaled>> {
    let mut daemons = BTreeMap::new();
    for host in topology.nodes() {
        let mut daemon = Tailscaled::new(&host.name, program, claim.dir().host(&host.name), mark(claim));
        daemon.launch(spawner, place(network, &host.name)?.namespace_ref())?;
        daemons.insert(host.name.clone(), daemon);
    }
    Ok(daemons)
}

fn prepare_control(claim: &Claim, plan: &Plan, program: PathBuf) -> Result<Control> {
    let dir = claim.dir().control();
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let setup = Setup {
        program,
        dir,
        address: plan.topology.control().addresses.ipv4,
        address6: plan.topology.control().addresses.ipv6,
        domain: plan.topology.domain.clone(),
        policy: policy::of(&plan.topology, PolicyInternet::Granted),
        environment: mark(claim),
    };
    Ok(Control::prepare(plan.control, setup)?)
}

async fn start_apps(topology: &Topology, network: &Network) -> Result<BTreeMap<String, App>> {
    let mut apps = BTreeMap::new();
    for host in topology.of_role(Role::App) {
        let resident = place(network, &host.name)?.resident();
        apps.insert(host.name.clone(), resident.run(|| App::start(table::APP_PORT)).await??);
    }
    Ok(apps)
}

fn name_hosts(topology: &Topology, internet: &Internet) {
    for (name, addresses) in topology.names() {
        let records = Records {
            v4: vec![addresses.ipv4],
            v6: addresses.ipv6.into_iter().collect(),
            ..Records::default()
        };
        internet.dns.define(&format!("{name}.{}", table::DOMAIN), records);
    }
}

/// Counts what comes from the worker's uplink, twice, at its far end: nothing done in the worker's place can change that.
fn count_leaks(claim: &Claim, topology: &Topology, network: &Network) -> Result<(IngressCounters, Capture)> {
    let worker = &topology.worker().name;
    let far = network.far_end(worker, Link::Underlay).expect("every host has an underlay link");
    let nodes = topology.nodes().filter(|host| host.role != Role::Worker);
    let nodes = nodes
        .flat_map(|host| host.addresses.iter().chain(host.public.into_iter().flat_map(|dual| dual.iter())));
    let declared = Declared::tailscaled(topology.control().addresses.iter(), nodes, [topology.network6]);
    let counters = rules::counters(far, claim.id().as_str(), &declared);
    let namespace = network.internet.namespace_ref();
    counters.install(namespace)?;
    let capture = Capture::start(namespace, far, declared)?;
    Ok((counters, capture))
}

/// Writes a secret to a file that only its owner may read.
fn write_secret(path: &Path, secret: &SecretString) -> Result<()> {
    let write = || {
        let mut file =
            std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        io::Write::write_all(&mut file, secret.expose_secret().as_bytes())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
