//! Faults of a node: its process, its identity, its approval, its key.

use anyhow::{Result, anyhow, bail};
use nix::sys::signal::Signal;
use sallyport_tailnet::{MaskedPrefs, StableId};

use super::Undo;
use crate::control::policy::{self, Internet};
use crate::daemon::ProcessState;
use crate::join;
use crate::lab::Lab;
use crate::registry::record::ControlKind;

impl Lab {
    /// Ends a tailscaled by a signal.
    pub(super) async fn end_daemon(&self, host: String, signal: Signal) -> Result<Undo> {
        let daemon = self.daemon(&host)?;
        if !daemon.is_alive() {
            bail!("tailscaled of {host} does not run");
        }
        daemon.end(signal).await?;
        Ok(Undo::StartDaemon(host))
    }

    /// Stops a tailscaled where it is.
    pub(super) fn stop_daemon(&self, host: String) -> Result<Undo> {
        let daemon = self.daemon(&host)?;
        if !matches!(daemon.state(), ProcessState::Running { .. }) {
            bail!("tailscaled of {host} does not run");
        }
        daemon.signal(Signal::SIGSTOP)?;
        Ok(Undo::Continue(host))
    }

    /// The control server's id for the node of a host.
    pub(super) async fn node_of(&self, host: &str) -> Result<String> {
        let nodes = self.control.nodes().await?;
        let found = nodes.into_iter().find(|node| node.name == host);
        found
            .map(|node| node.id)
            .ok_or_else(|| anyhow!("{host} is no node of the tailnet (has it logged in?)"))
    }

    /// A new machine under the host's name: nothing of the old one is kept.
    pub(super) async fn join_anew(&mut self, host: &str) -> Result<()> {
        let daemon = self.daemon(host)?;
        daemon.end(Signal::SIGKILL).await?;
        daemon.wipe()?;
        self.start_daemon(host).await?;
        self.join(host).await
    }

    /// Withdraws the approval of an exit, and keeps the control server from giving it again by itself.
    pub(super) async fn withdraw_approval(&self, host: String) -> Result<Undo> {
        self.control.unapprove(&self.node_of(&host).await?).await?;
        Ok(Undo::Approve(host))
    }

    /// Approves an exit again.
    pub(super) async fn restore_approval(&self, host: &str) -> Result<()> {
        self.control.approve(&self.node_of(host).await?).await?;
        self.settled(&[self.host(host)?]).await
    }

    /// Makes an expired node good again. headscale cannot renew a key: there it joins as a new machine.
    pub(super) async fn renew(&mut self, host: &str) -> Result<()> {
        if self.control.kind() == ControlKind::Headscale {
            let old = self.node_of(host).await?;
            self.control.delete(&old).await?;
            return self.join_anew(host).await;
        }
        self.control.renew(&self.node_of(host).await?).await?;
        Ok(join::running(&self.daemon(host)?.client(), host).await?)
    }

    /// Logs a node in that was logged out, with the exit node of before.
    pub(super) async fn log_in(&self, host: &str, exit_node: StableId) -> Result<()> {
        self.join(host).await?;
        let client = self.daemon(host)?.client();
        Ok(join::set(&client, host, &MaskedPrefs::new().exit_node_id(&exit_node)).await?)
    }

    /// Puts a policy without the Internet in force.
    pub(super) async fn withhold_internet(&self) -> Result<Undo> {
        let before = self.control.policy().await?;
        self.control.set_policy(&policy::of(self.topology(), Internet::Withheld)).await?;
        Ok(Undo::Policy(before))
    }
}
