//! One place of the lab: its namespaces, a thread that lives there, and its links.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::mount::{MsFlags, mount};
use sallyport_gate::link::LinkError;
use sallyport_gate::netns::NetnsError;
use sallyport_gate::{Links, Namespace, Resident};
use serde::{Deserialize, Serialize};

use crate::internet::table;

/// A link of a host, by what it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Link {
    /// The network that all hosts are on.
    #[serde(rename = "u0")]
    Underlay,
    /// An exit's own way to the Internet.
    #[serde(rename = "w0")]
    Internet,
}

impl Link {
    /// Its name on the host.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Underlay => "u0",
            Self::Internet => "w0",
        }
    }

    /// The name of its other end, in the namespace `internet`: `number` makes it unique where the host's name is cut.
    #[must_use]
    pub fn far_end(self, number: usize, host: &str) -> String {
        let kind = &self.name()[..1];
        format!("{kind}{number}-{host}").chars().take(sallyport_gate::link::MAX_NAME).collect()
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A place with namespaces of its own: a host, or the Internet in the middle.
#[derive(Debug)]
pub struct Place {
    namespace: Arc<Namespace>,
    resident: Resident,
    links: Links,
}

/// A place that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The namespaces.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// The netlink socket in them.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl Place {
    /// Makes the namespaces of `name`, whose files are kept in `dir`. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`NetnsError`], such as without root.
    pub fn namespace(name: &str, dir: &Path) -> Result<Namespace, NetnsError> {
        Namespace::builder(name).hostname(name).mounts(|| own_etc(name, dir)).create()
    }

    /// Settles in a namespace.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub async fn settle(namespace: Namespace) -> Result<Self, PlaceError> {
        let namespace = Arc::new(namespace);
        let resident = Resident::start(Arc::clone(&namespace))?;
        let links = Links::of(&resident).await?;
        Ok(Self { namespace, resident, links })
    }

    /// Its namespaces.
    #[must_use]
    pub fn namespace_ref(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// The thread that lives there.
    #[must_use]
    pub fn resident(&self) -> &Resident {
        &self.resident
    }

    /// Its links.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.links
    }
}

/// Lays a writable copy over `/etc`, seen in this mount namespace only and gone with it: the lab's resolver and names,
/// and whatever a daemon inside writes there.
fn own_etc(name: &str, dir: &Path) -> io::Result<()> {
    let layer = dir.join("etc");
    let describe = |step: &str, path: &Path| {
        let at = format!("{step} {}", path.display());
        move |source: nix::Error| io::Error::other(format!("{at}: {source}"))
    };
    mount(Some("sallyport-lab"), &layer, Some("tmpfs"), MsFlags::MS_NOSUID, Some("mode=0755,size=4m"))
        .map_err(describe("mount tmpfs on", &layer))?;
    let (upper, work) = (layer.join("upper"), layer.join("work"));
    std::fs::create_dir(&upper)?;
    std::fs::create_dir(&work)?;
    let resolvers: String =
        table::RESOLVER.both().iter().map(|address| format!("nameserver {address}\n")).collect();
    for (file, text) in [
        ("resolv.conf", format!("{resolvers}options timeout:2 attempts:2\n")),
        ("hosts", format!("127.0.0.1 localhost {name}\n::1 localhost\n")),
        ("hostname", format!("{name}\n")),
        ("nsswitch.conf", NSSWITCH.to_string()),
    ] {
        std::fs::write(upper.join(file), text)?;
    }
    let options = format!("lowerdir=/etc,upperdir={},workdir={}", upper.display(), work.display());
    let etc = PathBuf::from("/etc");
    mount(Some("sallyport-lab"), &etc, Some("overlay"), MsFlags::MS_NOSUID, Some(options.as_str()))
        .map_err(describe("mount overlay on", &etc))
}

/// Names by file and DNS only: the machine's own may ask daemons that live outside the lab.
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
                        protocols: files\nservices: files\nrpc: files\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_end_fits_into_a_links_name_and_says_whose_it_is() {
        assert_eq!(Link::Underlay.far_end(2, "exit-us-central"), "u2-exit-us-cent");
        assert_eq!(Link::Internet.far_end(3, "exit-us-east"), "w3-exit-us-east");
    }
}
