//! What a lab writes down for other processes: how to get in.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::path::PathBuf;

use sallyport_gate::netns::NetnsError;
use sallyport_gate::{Namespace, NetnsId};
use serde::{Deserialize, Serialize};

use super::LabId;
use crate::topology::Topology;

/// How far a lab is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It is being put together.
    Starting,
    /// Everything is there.
    Up,
}

/// Which program is the control server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlKind {
    /// `labctl`, the lab's own.
    Own,
    /// A `headscale` found on `PATH`.
    Headscale,
}

/// The descriptors, in the supervisor, of one host's namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The network namespace.
    pub netns: NetnsId,
    /// Descriptor of the network namespace.
    pub net_fd: RawFd,
    /// Descriptor of the mount namespace.
    pub mount_fd: Option<RawFd>,
    /// Descriptor of the UTS namespace (host name).
    pub uts_fd: Option<RawFd>,
}

impl Place {
    /// Where `namespace` is to be found by others.
    #[must_use]
    pub fn of(namespace: &Namespace) -> Self {
        let (net_fd, mount_fd, uts_fd) = namespace.raw_fds();
        Self { netns: namespace.id(), net_fd, mount_fd, uts_fd }
    }
}

/// The record, `lab.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The lab's name.
    pub name: String,
    /// Its ownership mark.
    pub id: LabId,
    /// The supervisor's process id; meaningful while the lab's lock is held.
    pub supervisor_pid: u32,
    /// How far it is.
    pub phase: Phase,
    /// Which program is the control server.
    pub control: ControlKind,
    /// The hosts.
    pub topology: Topology,
    /// The namespaces, by host, the Internet's included.
    pub places: BTreeMap<String, Place>,
    /// What `lab run` sets for a command, by host: the guard's variables in the worker's place.
    pub environment: BTreeMap<String, BTreeMap<String, String>>,
}

/// A host's namespaces that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// There is no such host.
    #[error("no host named {host}; there are {}", hosts.join(", "))]
    NoHost {
        /// What was asked for.
        host: String,
        /// Those that there are.
        hosts: Vec<String>,
    },
    /// The supervisor is gone, or not ours to look into.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// The descriptor leads elsewhere: the record is of a lab that is gone.
    #[error("the namespace of {host} is not the one in the record")]
    Stale {
        /// The host.
        host: String,
    },
}

impl Record {
    /// Opens the namespaces of a host.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn open(&self, host: &str) -> Result<Namespace, PlaceError> {
        let place = self.places.get(host).ok_or_else(|| PlaceError::NoHost {
            host: host.into(),
            hosts: self.places.keys().cloned().collect(),
        })?;
        let path = |fd: RawFd| PathBuf::from(format!("/proc/{}/fd/{fd}", self.supervisor_pid));
        let (mounts, uts) = (place.mount_fd.map(path), place.uts_fd.map(path));
        let namespace = Namespace::open(host, &path(place.net_fd), mounts.as_deref(), uts.as_deref())?;
        if namespace.id() == place.netns {
            Ok(namespace)
        } else {
            Err(PlaceError::Stale { host: host.into() })
        }
    }
}
