//! Where the guard runs: never in the machine's own network namespace by accident, where an exit node (and later the
//! rules) could cut off the operator.

use std::fs;
use std::path::Path;

/// `NET_NS_INIT_INO` of `include/uapi/linux/nsfs.h`: the initial network namespace, since Linux 6.18. Older kernels
/// number it like any other, and no other namespace ever gets a number this low.
const INITIAL_NETNS: &str = "net:[4026531833]";
/// `PID_NS_INIT_INO`: the initial process namespace, on every kernel.
const INITIAL_PIDNS: &str = "pid:[4026531836]";
/// A sysctl that the kernel registers for the initial network namespace alone (`net/core/sysctl_net_core.c`,
/// `net_core_table`); `/proc/sys/net` shows a process its own namespace's.
const INITIAL_ONLY_SYSCTL: &str = "netdev_max_backlog";

/// What can be seen of the place that the process runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// `/proc/self/ns/net`.
    pub netns: Option<String>,
    /// `/proc/1/ns/net`; none when it may not be read.
    pub netns_of_pid1: Option<String>,
    /// `/proc/self/ns/pid`.
    pub pidns: Option<String>,
    /// `/proc/1/comm`.
    pub pid1: Option<String>,
    /// The names in `/proc/sys/net/core`; none when there is no such folder.
    pub sysctls: Option<Vec<String>>,
}

impl Sight {
    /// Looks.
    #[must_use]
    pub fn take() -> Self {
        let link = |path: &str| Some(fs::read_link(path).ok()?.to_string_lossy().into_owned());
        let names = |path: &str| {
            let names = fs::read_dir(Path::new(path)).ok()?;
            Some(names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
        };
        Self {
            netns: link("/proc/self/ns/net"),
            netns_of_pid1: link("/proc/1/ns/net"),
            pidns: link("/proc/self/ns/pid"),
            pid1: fs::read_to_string("/proc/1/comm").ok().map(|name| name.trim().to_owned()),
            sysctls: names("/proc/sys/net/core"),
        }
    }
}

/// Whose network namespace it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A workload's.
    Workload,
    /// The machine's, and why that is known.
    Machine(&'static str),
    /// It cannot be told, and so it is treated as the machine's.
    Unknown,
}

/// Decides from what was seen. In order:
/// 1. the number or the sysctls of the initial namespace: the machine's;
/// 2. with the machine's own process 1 in sight (initial process namespace), or a system container's (`systemd`,
///    `init`): the machine's if it is the same as process 1's, which rules would cut off;
/// 3. a process namespace of its own, whose process 1 is the container's first process: a workload's;
/// 4. no way to tell: unknown.
#[must_use]
pub fn place(sight: &Sight) -> Place {
    let Some(netns) = &sight.netns else { return Place::Unknown };
    if netns == INITIAL_NETNS {
        return Place::Machine("it is the kernel's first network namespace");
    }
    let has_initial_sysctl =
        sight.sysctls.as_ref().map(|names| names.iter().any(|name| name == INITIAL_ONLY_SYSCTL));
    if has_initial_sysctl == Some(true) {
        return Place::Machine("its sysctls are those of the kernel's first network namespace");
    }
    let same_as_pid1 = sight.netns_of_pid1.as_ref().map(|of_pid1| of_pid1 == netns);
    let sees_the_machine = sight.pidns.as_deref() == Some(INITIAL_PIDNS);
    let pid1_is_an_init = matches!(sight.pid1.as_deref(), Some("systemd" | "init"));
    match (same_as_pid1, sees_the_machine, pid1_is_an_init) {
        (Some(true), true, _) => Place::Machine("process 1 of the machine has the same one"),
        (Some(true), false, true) => Place::Machine("an init system, process 1, has the same one"),
        (Some(false), _, _) | (Some(true), false, false) => Place::Workload,
        // Not permitted to look at process 1: the sysctls alone tell, where there are any.
        (None, _, _) if has_initial_sysctl == Some(false) => Place::Workload,
        (None, _, _) => Place::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(netns: &str, of_pid1: Option<&str>, pidns: &str, pid1: &str, sysctls: Option<&[&str]>) -> Sight {
        Sight {
            netns: Some(netns.into()),
            netns_of_pid1: of_pid1.map(Into::into),
            pidns: Some(pidns.into()),
            pid1: Some(pid1.into()),
            sysctls: sysctls.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        }
    }

    const OTHER_PIDNS: &str = "pid:[4026532999]";
    const OLD_INITIAL: &str = "net:[4026531840]";
    const WORKLOAD: &str = "net:[4026532500]";
    const IN_WORKLOAD: Option<&[&str]> = Some(&["somaxconn", "rmem_max"]);
    const IN_MACHINE: Option<&[&str]> = Some(&["somaxconn", "netdev_max_backlog"]);

    #[test]
    fn a_shell_on_the_machine_is_in_the_machines_namespace() {
        for netns in [INITIAL_NETNS, OLD_INITIAL] {
            for sysctls in [IN_MACHINE, None] {
                let seen = sight(netns, Some(netns), INITIAL_PIDNS, "systemd", sysctls);
                assert!(matches!(place(&seen), Place::Machine(_)), "{seen:?}");
            }
        }
    }

    #[test]
    fn a_host_mode_container_is_in_the_machines_namespace_whatever_its_process_1_is() {
        let on_6_18 = sight(INITIAL_NETNS, Some(INITIAL_NETNS), OTHER_PIDNS, "tini", None);
        assert!(matches!(place(&on_6_18), Place::Machine(_)));
        let older = sight(OLD_INITIAL, Some(OLD_INITIAL), OTHER_PIDNS, "sallyport", IN_MACHINE);
        assert!(matches!(place(&older), Place::Machine(_)));
    }

    #[test]
    fn a_container_with_a_namespace_of_its_own_is_a_workload() {
        let seen = sight(WORKLOAD, Some(WORKLOAD), OTHER_PIDNS, "sallyport", IN_WORKLOAD);
        assert_eq!(place(&seen), Place::Workload);
        let by_nsenter = sight(WORKLOAD, Some(OLD_INITIAL), INITIAL_PIDNS, "systemd", IN_WORKLOAD);
        assert_eq!(place(&by_nsenter), Place::Workload);
    }

    #[test]
    fn a_system_container_is_a_machine_to_its_operator() {
        let seen = sight(WORKLOAD, Some(WORKLOAD), OTHER_PIDNS, "systemd", IN_WORKLOAD);
        assert!(matches!(place(&seen), Place::Machine(_)));
    }

    #[test]
    fn where_process_1_may_not_be_looked_at_the_sysctls_decide() {
        let inside = sight(WORKLOAD, None, INITIAL_PIDNS, "systemd", IN_WORKLOAD);
        assert_eq!(place(&inside), Place::Workload);
        let outside = sight(OLD_INITIAL, None, INITIAL_PIDNS, "systemd", IN_MACHINE);
        assert!(matches!(place(&outside), Place::Machine(_)));
    }

    #[test]
    fn what_cannot_be_told_is_unknown() {
        assert_eq!(place(&Sight::default()), Place::Unknown);
        assert_eq!(place(&sight(WORKLOAD, None, INITIAL_PIDNS, "systemd", None)), Place::Unknown);
    }

    #[test]
    fn looking_finds_this_process_namespace() {
        assert!(Sight::take().netns.is_some_and(|netns| netns.starts_with("net:[")));
    }
}
