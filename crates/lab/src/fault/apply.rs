//! Faults on a raised lab: done, remembered with what undoes them, undone.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::Signal;
use sallyport_tailnet::{MaskedPrefs, StableId};

use super::{Checked, Key, Order, Parameters, check};
use crate::control::Settings;
use crate::host::Link;
use crate::join;
use crate::lab::Lab;
use crate::registry::record::ControlKind;
use crate::stamp::Stamp;

mod node;
mod traffic;

/// A fault that is in force.
#[derive(Debug)]
pub struct Active {
    /// By what it is known.
    pub key: Key,
    /// What was said beside.
    pub parameters: Parameters,
    /// Since when.
    pub since: Stamp,
    undo: Undo,
}

/// What undoes a fault.
#[derive(Debug, Clone)]
enum Undo {
    Nothing,
    StartDaemon(String),
    Continue(String),
    /// Let packets pass again.
    Drops(Vec<Dropped>),
    Connect6(String),
    JoinAnew(String),
    Approve(String),
    Renew(String),
    Policy(String),
    StartControl,
    Setting(Setting),
    LogIn {
        host: String,
        exit_node: StableId,
    },
    WantRunning(String),
    ExitNode {
        host: String,
        exit_node: StableId,
    },
    Delay {
        host: String,
        link: Link,
    },
    Rate {
        host: String,
        link: Link,
    },
    HonestDns,
}

/// Packets of a link that are dropped: by a table in the namespace `internet`.
#[derive(Debug, Clone)]
struct Dropped {
    table: String,
    host: String,
    link: Link,
    /// Which packets, as the beginning of an nft rule; empty for all.
    condition: String,
}

/// One setting of the control server, as it was.
#[derive(Debug, Clone)]
enum Setting {
    Slow(u64),
    RefuseKeys(Option<String>),
    Batch(u64),
    Grace(u64),
    /// `told` is none where nothing is overridden, and holds none where the node's state is left unsaid.
    Online {
        node: String,
        told: Option<Option<bool>>,
    },
}

impl Setting {
    fn put(self, settings: &mut Settings) {
        match self {
            Self::Slow(ms) => settings.slow_ms = ms,
            Self::RefuseKeys(text) => settings.refuse_keys = text,
            Self::Batch(ms) => settings.batch_ms = ms,
            Self::Grace(ms) => settings.offline_grace_ms = ms,
            Self::Online { node, told } => {
                match told {
                    Some(told) => settings.online_override.insert(node, told),
                    None => settings.online_override.remove(&node),
                };
            }
        }
    }
}

/// What is given where a fault takes a delay and none was said; the table of faults tells the user.
fn milliseconds(parameters: &Parameters, otherwise: u64) -> u64 {
    parameters.delay.map_or(otherwise, |delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
}

impl Lab {
    /// Does a fault.
    ///
    /// # Errors
    /// Where it makes no sense, is in force already, or could not be done.
    pub async fn apply(&mut self, order: &Order) -> Result<Key> {
        let checked = check(order, self.topology())?;
        let key = checked.key();
        if !checked.kind.headscale && self.control.kind() == ControlKind::Headscale {
            bail!("headscale cannot do {}: the lab's own control server can", checked.kind.name);
        }
        if self.faults.iter().any(|active| active.key == key) {
            bail!("{key} is in force already");
        }
        let undo = self.done(&checked).await.with_context(|| format!("cannot do {key}"))?;
        let parameters = checked.parameters;
        self.faults.push(Active { key: key.clone(), parameters, since: Stamp::now(), undo });
        Ok(key)
    }

    /// Undoes a fault. Where the order names no link, the fault's on every link.
    ///
    /// # Errors
    /// Where it is not in force, or could not be undone; it stays in force then.
    pub async fn undo(&mut self, order: &Order) -> Result<Vec<Key>> {
        let checked = check(order, self.topology())?;
        let meant = |key: &Key| {
            key.name == checked.kind.name
                && key.host == checked.host
                && order.parameters.link.is_none_or(|link| key.link == Some(link))
        };
        let keys: Vec<Key> =
            self.faults.iter().rev().map(|active| active.key.clone()).filter(|key| meant(key)).collect();
        if keys.is_empty() {
            bail!("{} is not in force", checked.key());
        }
        for key in &keys {
            self.undo_key(key).await?;
        }
        Ok(keys)
    }

    /// Undoes all faults, the newest first.
    ///
    /// # Errors
    /// With the first that could not be undone.
    pub async fn undo_all(&mut self) -> Result<Vec<Key>> {
        let keys: Vec<Key> = self.faults.iter().rev().map(|active| active.key.clone()).collect();
        for key in &keys {
            self.undo_key(key).await?;
        }
        Ok(keys)
    }

    /// The faults in force, the oldest first.
    #[must_use]
    pub fn faults(&self) -> &[Active] {
        &self.faults
    }

    async fn undo_key(&mut self, key: &Key) -> Result<()> {
        let found = self.faults.iter().position(|active| active.key == *key);
        let position = found.ok_or_else(|| anyhow!("{key} is not in force"))?;
        let undo = self.faults[position].undo.clone();
        self.undone(undo).await.with_context(|| format!("cannot undo {key}"))?;
        self.faults.remove(position);
        Ok(())
    }

    async fn done(&mut self, fault: &Checked) -> Result<Undo> {
        let host = || fault.host.clone().expect("checked: this fault has a host");
        let worker = self.topology().worker().name.clone();
        Ok(match fault.kind.name {
            "exit-killed" | "worker-killed" => self.end_daemon(host(), Signal::SIGKILL).await?,
            "worker-terminated" => self.end_daemon(host(), Signal::SIGTERM).await?,
            "exit-stopped" | "worker-stopped" => self.stop_daemon(host())?,
            "worker-restarted" => {
                self.end_daemon(host(), Signal::SIGTERM).await?;
                tokio::time::sleep(Duration::from_millis(milliseconds(&fault.parameters, 1000))).await;
                self.start_daemon(&host()).await?;
                Undo::Nothing
            }
            "exit-cut" => self.cut(&host(), self.network.links_of(&host()).collect::<BTreeSet<_>>())?,
            "exit-uplink-cut" => self.cut(&host(), BTreeSet::from([Link::Internet]))?,
            "exit-no-ipv6" => {
                let exit = self.host(&host())?.clone();
                self.network.disconnect6(&exit).await?;
                Undo::Connect6(host())
            }
            "exit-deleted" => {
                self.control.delete(&self.node_of(&host()).await?).await?;
                Undo::JoinAnew(host())
            }
            "exit-unapproved" => self.withdraw_approval(host()).await?,
            "exit-expired" | "worker-expired" => {
                self.control.expire(&self.node_of(&host()).await?).await?;
                Undo::Renew(host())
            }
            "exit-replaced" => {
                self.control.delete(&self.node_of(&host()).await?).await?;
                self.join_anew(&host()).await?;
                Undo::Nothing
            }
            "policy-no-internet" => self.withhold_internet().await?,
            "control-down" => {
                self.control.kill().await;
                Undo::StartControl
            }
            "control-slow" => self.misbehave(Setting::Slow(milliseconds(&fault.parameters, 2000))).await?,
            "control-refuses-key" => {
                let text = fault.parameters.text.clone();
                let text = text.unwrap_or_else(|| "invalid key: unable to validate API key".into());
                self.misbehave(Setting::RefuseKeys(Some(text))).await?
            }
            "control-batches" => self.misbehave(Setting::Batch(milliseconds(&fault.parameters, 800))).await?,
            "control-grace" => {
                self.misbehave(Setting::Grace(milliseconds(&fault.parameters, 60_000))).await?
            }
            "control-says-online" => {
                let told = Some(fault.parameters.online);
                self.misbehave(Setting::Online { node: host(), told }).await?
            }
            "worker-logged-out" => {
                let client = self.daemon(&worker)?.client();
                let exit_node = join::prefs(&client, &worker).await?.exit_node_id;
                join::log_out(&client, &worker).await?;
                Undo::LogIn { host: worker, exit_node }
            }
            "worker-down" => {
                let client = self.daemon(&worker)?.client();
                join::set(&client, &worker, &MaskedPrefs::new().want_running(false)).await?;
                Undo::WantRunning(worker)
            }
            "worker-pref-cleared" => {
                let client = self.daemon(&worker)?.client();
                let exit_node = join::prefs(&client, &worker).await?.exit_node_id;
                join::set(&client, &worker, &MaskedPrefs::new().exit_node_id(&StableId::new(""))).await?;
                Undo::ExitNode { host: worker, exit_node }
            }
            "link-latency" => self.delay(fault).await?,
            "link-loss" => self.lose(&host(), fault.link(), fault.parameters.percent.unwrap_or(10.0))?,
            "link-rate" => self.limit(&host(), fault.link(), fault.parameters.rate.unwrap_or(1000))?,
            "dns-lying" => self.dns_mode(crate::internet::dns::Mode::lying()),
            "dns-silent" => self.dns_mode(crate::internet::dns::Mode::Silent),
            unknown => bail!("{unknown} is in the table, but nobody does it"),
        })
    }

    async fn undone(&mut self, undo: Undo) -> Result<()> {
        match undo {
            Undo::Nothing => Ok(()),
            Undo::StartDaemon(host) => self.start_daemon(&host).await,
            Undo::Continue(host) => Ok(self.daemon(&host)?.signal(Signal::SIGCONT)?),
            Undo::Drops(drops) => self.pass(&drops),
            Undo::Connect6(host) => {
                let exit = self.host(&host)?.clone();
                Ok(self.network.connect6(&exit).await?)
            }
            Undo::JoinAnew(host) => self.join_anew(&host).await,
            Undo::Approve(host) => self.restore_approval(&host).await,
            Undo::Renew(host) => self.renew(&host).await,
            Undo::Policy(text) => Ok(self.control.set_policy(&text).await?),
            Undo::StartControl => self.start_control().await,
            Undo::Setting(setting) => self.misbehave(setting).await.map(drop),
            Undo::LogIn { host, exit_node } => self.log_in(&host, exit_node).await,
            Undo::WantRunning(host) => {
                let client = self.daemon(&host)?.client();
                Ok(join::set(&client, &host, &MaskedPrefs::new().want_running(true)).await?)
            }
            Undo::ExitNode { host, exit_node } => {
                let client = self.daemon(&host)?.client();
                Ok(join::set(&client, &host, &MaskedPrefs::new().exit_node_id(&exit_node)).await?)
            }
            Undo::Delay { host, link } => self.no_delay(&host, link).await,
            Undo::Rate { host, link } => self.no_limit(&host, link),
            Undo::HonestDns => {
                self.internet.dns.set_mode(crate::internet::dns::Mode::Honest);
                Ok(())
            }
        }
    }

    fn dns_mode(&self, mode: crate::internet::dns::Mode) -> Undo {
        self.internet.dns.set_mode(mode);
        Undo::HonestDns
    }

    /// Changes one setting of the control server; what undoes it holds the value of before.
    async fn misbehave(&self, setting: Setting) -> Result<Undo> {
        let mut settings = self.control.settings().await?;
        let before = match &setting {
            Setting::Slow(_) => Setting::Slow(settings.slow_ms),
            Setting::RefuseKeys(_) => Setting::RefuseKeys(settings.refuse_keys.clone()),
            Setting::Batch(_) => Setting::Batch(settings.batch_ms),
            Setting::Grace(_) => Setting::Grace(settings.offline_grace_ms),
            Setting::Online { node, .. } => {
                let told = settings.online_override.get(node).copied();
                Setting::Online { node: node.clone(), told }
            }
        };
        setting.put(&mut settings);
        self.control.set_settings(&settings).await?;
        Ok(Undo::Setting(before))
    }
}
