//! Ends the processes of a lab: those with its mark, and those in a namespace that the caller still holds.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sallyport_gate::NetnsId;

use super::{LabId, MARK};

/// How long a killed process may take to be gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// By what a process is known to be a lab's.
#[derive(Debug, Clone)]
pub struct Belongs {
    mark: Vec<u8>,
    namespaces: BTreeSet<NetnsId>,
}

impl Belongs {
    /// By the mark alone: for a lab that is dead, whose namespaces' numbers may be somebody else's by now.
    #[must_use]
    pub fn marked(id: &LabId) -> Self {
        Self { mark: format!("{MARK}={}", id.as_str()).into_bytes(), namespaces: BTreeSet::new() }
    }

    /// By the mark, or by living in one of `namespaces`, which the caller holds open.
    #[must_use]
    pub fn marked_or_in(id: &LabId, namespaces: impl IntoIterator<Item = NetnsId>) -> Self {
        Self { namespaces: namespaces.into_iter().collect(), ..Self::marked(id) }
    }

    fn covers(&self, pid: i32) -> bool {
        let lives_there = u32::try_from(pid)
            .ok()
            .and_then(NetnsId::of_process)
            .is_some_and(|namespace| self.namespaces.contains(&namespace));
        lives_there || self.marks(pid)
    }

    fn marks(&self, pid: i32) -> bool {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == self.mark)
    }
}

/// Kills every process that belongs, but for the calling one, and waits until they are gone. Returns how many there
/// were. A process that the kernel does not let die within a few seconds is left behind.
pub fn kill(belongs: &Belongs) -> usize {
    let deadline = Instant::now() + PATIENCE;
    let mut killed = 0;
    loop {
        let found = pass(belongs);
        killed += found.len();
        for process in &found {
            ended_by(process, deadline);
        }
        // Once more after the last: one of them may have started another before it died.
        if found.is_empty() || Instant::now() > deadline {
            return killed;
        }
    }
}

/// One pass over the process table: kills, and returns whom.
fn pass(belongs: &Belongs) -> Vec<OwnedFd> {
    let own = i32::try_from(std::process::id()).expect("the kernel's process ids are positive ints");
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut found = Vec::new();
    for pid in pids.filter(|pid| *pid != own) {
        // The descriptor first: should the id be used anew after the look, the signal goes nowhere.
        let Some(process) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            continue;
        };
        // A zombie has neither environment nor namespace, and is its parent's to wait for.
        if belongs.covers(pid) && pidfd_send_signal(&process, Signal::KILL).is_ok() {
            found.push(process);
        }
    }
    found
}

/// Waits until a process has ended: its descriptor becomes readable (pidfd_open(2)).
fn ended_by(process: &OwnedFd, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
    // Nothing is to be done about a failure but to look again, which the caller does.
    let _ = poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], timeout);
}
