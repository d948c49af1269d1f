//! Faults of links: cut, loss, rate, delay. All but the rate are done at the far end, in the namespace `internet`,
//! where nothing done in the host's place can reach them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use sallyport_gate::{Namespace, nft, sysctl};

use super::{Checked, Dropped, Undo};
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
        let mut drops = Vec::new();
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
            let drop = Dropped { table, host: host.into(), link, condition: condition.into() };
            if self.relays.contains_key(&(host.to_string(), link)) {
                script.push_str(&detoured(&drop, &detour(far).0));
            }
            drops.push(drop);
        }
        nft::apply(self.network.internet.namespace_ref(), &script)?;
        Ok(Undo::Drops(drops))
    }

    pub(super) fn pass(&self, drops: &[Dropped]) -> Result<()> {
        let script: String =
            drops.iter().map(|drop| format!("delete table netdev {}\n", drop.table)).collect();
        Ok(nft::apply(self.network.internet.namespace_ref(), &script)?)
    }

    /// What is dropped on a link by other faults.
    fn drops_on(&self, host: &str, link: Link) -> impl Iterator<Item = &Dropped> {
        let all = self.faults.iter().flat_map(|active| match &active.undo {
            Undo::Drops(drops) => drops.as_slice(),
            _ => &[],
        });
        all.filter(move |drop| drop.host == host && drop.link == link)
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
        let delay = Delay {
            base: Duration::from_millis(super::milliseconds(&fault.parameters, 50)),
            jitter: fault.parameters.jitter.unwrap_or_default(),
        };
        match self.lay_detour(&host, link, delay).await {
            Ok(relay) => {
                self.relays.insert((host.clone(), link), relay);
                Ok(Undo::Delay { host, link })
            }
            Err(error) => {
                // As it was before, as far as that can be had; why it failed matters more.
                let _ = self.no_delay(&host, link).await;
                Err(error)
            }
        }
    }

    async fn lay_detour(&self, host: &str, link: Link, delay: Delay) -> Result<Relay> {
        let far = self.far_end(host, link)?.to_string();
        let bridge = self.network.bridge_of(&far).to_string();
        let (inner, port) = detour(&far);
        let (namespace, links) = (self.network.internet.namespace_ref(), self.network.internet.links());
        links.add_veth(&inner, &port, namespace).await?;
        sysctl::write(
            namespace,
            &[
                (&format!("net.ipv6.conf.{inner}.disable_ipv6"), "1"),
                (&format!("net.ipv6.conf.{port}.disable_ipv6"), "1"),
            ],
        )?;
        // The relay takes frames before any rule. Nobody else may take what comes by these two: else this namespace would
        // answer and forward at once what the relay forwards later.
        let table = deaf(&far);
        let mut script = format!("table netdev {table} {{\n\tcomment \"{}\"\n", self.claim().id().as_str());
        for (chain, device) in [("far", &far), ("inner", &inner)] {
            writeln!(script, "\tchain {chain} {{")?;
            writeln!(
                script,
                "\t\ttype filter hook ingress device \"{device}\" priority 500; policy drop;\n\t}}"
            )?;
        }
        script.push_str("}\n");
        for drop in self.drops_on(host, link) {
            script.push_str(&detoured(drop, &inner));
        }
        nft::apply(namespace, &script)?;
        links.detach(&far).await?;
        links.up(&inner).await?;
        links.up(&port).await?;
        let relay = Relay::start(namespace, [&far, &inner], delay)?;
        links.attach(&port, &bridge).await?;
        Ok(relay)
    }

    pub(super) async fn no_delay(&mut self, host: &str, link: Link) -> Result<()> {
        let far = self.far_end(host, link)?.to_string();
        let bridge = self.network.bridge_of(&far).to_string();
        self.relays.remove(&(host.to_string(), link));
        let table = deaf(&far);
        // Made if it is missing, for then it can be deleted.
        let mut script = format!("table netdev {table}\ndelete table netdev {table}\n");
        for drop in self.drops_on(host, link) {
            let chain = format!("netdev {} {DETOUR}", drop.table);
            write!(script, "add chain {chain}\nflush chain {chain}\ndelete chain {chain}\n")?;
        }
        let (namespace, links) = (self.network.internet.namespace_ref(), self.network.internet.links());
        nft::apply(namespace, &script)?;
        links.delete(&detour(&far).0).await?;
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

/// The table that keeps a delayed link's frames from all but the relay.
fn deaf(far: &str) -> String {
    format!("deaf-{far}")
}

/// The chain of a table of drops that acts on what the relay sends on.
const DETOUR: &str = "detour";

/// What a host sends by a delayed link, the relay takes before the far end's rules: it is dropped behind the relay instead.
fn detoured(drop: &Dropped, inner: &str) -> String {
    let Dropped { table, condition, .. } = drop;
    format!(
        "table netdev {table} {{\n\tchain {DETOUR} {{\n\t\ttype filter hook egress device \"{inner}\" priority 0; policy \
         accept;\n\t\t{condition}drop\n\t}}\n}}\n"
    )
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
