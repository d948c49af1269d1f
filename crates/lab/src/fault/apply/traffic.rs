//! Faults of links: cut, loss, rate, delay. All but the rate are done at the far end, in the namespace `internet`,
//! where nothing done in the host's place can reach them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use sallyport_gate::{Namespace, nft, sysctl};

use super::{Checked, Undo};
use crate::host::Link;
use crate::lab::Lab;
use crate::relay::{Delay, Relay};

impl Lab {
    /// Drops every packet on some links of a host, both ways, silently.
    pub(super) fn cut(&self, host: &str, links: BTreeSet<Link>) -> Result<Undo> {
        self.drop_on(host, links, "cut", "")
    }

    /// Loses a share of packets on a link, each way by itself.
    pub(super) fn lose(&self, host: &str, link: Link, percent: f64) -> Result<Undo> {
        // In steps of a thousandth of a percent, the finest that is offered.
        let share = (percent * 1000.0).round();
        // nftables refuses a comparison that is always true.
        let condition =
            if share < 100_000.0 { format!("numgen random mod 100000 < {share} ") } else { String::new() };
        self.drop_on(host, BTreeSet::from([link]), "loss", &condition)
    }

    fn drop_on(&self, host: &str, links: BTreeSet<Link>, what: &str, condition: &str) -> Result<Undo> {
        let mut script = String::new();
        let mut tables = Vec::new();
        for link in links {
            let far = self.far_end(host, link)?;
            let table = format!("{what}-{far}");
            let owner = self.claim().id().as_str();
            write!(script, "table netdev {table} {{\n\tcomment \"{owner}\"\n")?;
            for hook in ["ingress", "egress"] {
                // After the leak counter: what a worker sends counts, even if it is lost.
                writeln!(script, "\tchain {hook} {{")?;
                writeln!(script, "\t\ttype filter hook {hook} device \"{far}\" priority 0; policy accept;")?;
                writeln!(script, "\t\t{condition}drop\n\t}}")?;
            }
            script.push_str("}\n");
            tables.push(table);
        }
        nft::apply(self.network.internet.namespace_ref(), &script)?;
        Ok(Undo::Tables(tables))
    }

    pub(super) fn remove_tables(&self, tables: &[String]) -> Result<()> {
        let script: String = tables.iter().map(|table| format!("delete table netdev {table}\n")).collect();
        Ok(nft::apply(self.network.internet.namespace_ref(), &script)?)
    }

    /// Limits the rate of a link, each way by itself: a token bucket at either end.
    pub(super) fn limit(&self, host: &str, link: Link, kilobits: u32) -> Result<Undo> {
        let rate = format!("{kilobits}kbit");
        // 10 ms at this rate, but no less than some full packets, offloaded ones included.
        let burst = (u64::from(kilobits) * 1000 / 8 / 100).max(80_000).to_string();
        let bucket = ["tbf", "rate", &rate, "burst", &burst, "latency", "200ms"];
        for (namespace, device) in self.ends(host, link)? {
            tc(namespace, "replace", &device, &bucket)?;
        }
        Ok(Undo::Rate { host: host.into(), link })
    }

    pub(super) fn no_limit(&self, host: &str, link: Link) -> Result<()> {
        for (namespace, device) in self.ends(host, link)? {
            tc(namespace, "del", &device, &[])?;
        }
        Ok(())
    }

    fn ends(&self, host: &str, link: Link) -> Result<[(&Namespace, String); 2]> {
        let near = self.place(host)?.namespace_ref();
        let far = self.far_end(host, link)?.to_string();
        Ok([(near, link.name().to_string()), (self.network.internet.namespace_ref(), far)])
    }

    /// Delays the packets of a link, each way.
    ///
    /// The far end leaves its bridge; a veth takes its port there, and a relay in user space joins the two.
    pub(super) async fn delay(&mut self, fault: &Checked) -> Result<Undo> {
        let host = fault.host.clone().expect("checked: this fault has a host");
        let link = fault.link();
        let far = self.far_end(&host, link)?.to_string();
        let bridge = self.network.bridge_of(&far).to_string();
        let (inner, port) = detour(&far);
        let (namespace, links) = (self.network.internet.namespace_ref(), self.network.internet.links());
        links.add_veth(&inner, &port, namespace).await?;
        // Nobody but the relay may take what comes by these two: neither answer for addresses of this namespace's
        // other links, nor speak of their own.
        let settings = [
            (format!("net.ipv4.conf.{far}.arp_ignore"), "1"),
            (format!("net.ipv4.conf.{inner}.arp_ignore"), "1"),
            (format!("net.ipv6.conf.{inner}.disable_ipv6"), "1"),
            (format!("net.ipv6.conf.{port}.disable_ipv6"), "1"),
        ];
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        sysctl::write(namespace, &settings)?;
        links.up(&inner).await?;
        links.up(&port).await?;
        let delay = Delay {
            base: Duration::from_millis(super::milliseconds(&fault.parameters, 50)),
            jitter: fault.parameters.jitter.unwrap_or_default(),
        };
        let relay = Relay::start(namespace, [&far, &inner], delay)?;
        links.detach(&far).await?;
        links.attach(&port, &bridge).await?;
        self.relays.insert((host.clone(), link), relay);
        Ok(Undo::Delay { host, link })
    }

    pub(super) async fn no_delay(&mut self, host: &str, link: Link) -> Result<()> {
        let far = self.far_end(host, link)?.to_string();
        let bridge = self.network.bridge_of(&far).to_string();
        self.relays.remove(&(host.to_string(), link));
        let (namespace, links) = (self.network.internet.namespace_ref(), self.network.internet.links());
        links.delete(&detour(&far).0).await?;
        sysctl::write(namespace, &[(&format!("net.ipv4.conf.{far}.arp_ignore"), "0")])?;
        Ok(links.attach(&far, &bridge).await?)
    }

    fn far_end(&self, host: &str, link: Link) -> Result<&str> {
        self.network.far_end(host, link).ok_or_else(|| anyhow!("{host} has no link {link}"))
    }
}

/// The two ends of the veth that stands in for a far end while a relay delays it.
fn detour(far: &str) -> (String, String) {
    let name = |mark: &str| format!("{mark}{far}").chars().take(sallyport_gate::link::MAX_NAME).collect();
    (name("d"), name("e"))
}

/// Changes the queueing discipline of a link by the `tc` program.
fn tc(namespace: &Namespace, action: &str, device: &str, discipline: &[&str]) -> Result<()> {
    let run = || Command::new("tc").args(["qdisc", action, "dev", device, "root"]).args(discipline).output();
    let output = namespace.run(run)?.context("cannot run tc (is iproute2 installed?)")?;
    if !output.status.success() {
        bail!("tc refused: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
