//! Links and addresses of one namespace, by rtnetlink from inside the process.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use crate::netns::{Namespace, NetnsError, Resident};

/// The longest name that the kernel gives a link, in bytes (`IFNAMSIZ` less the final zero).
pub const MAX_NAME: usize = 15;

/// What went wrong with a link, an address or a route; each names the link and the namespace.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The namespace's thread is gone.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// No netlink socket could be opened.
    #[error("cannot open a netlink socket in namespace {label}")]
    Socket {
        /// The namespace.
        label: String,
        /// Why.
        source: std::io::Error,
    },
    /// There is no link of that name.
    #[error("no link {link} in namespace {label}")]
    Missing {
        /// The link.
        link: String,
        /// The namespace.
        label: String,
    },
    /// The kernel refused a request.
    #[error("cannot {action} in namespace {label}")]
    Refused {
        /// What was asked, with the link's name.
        action: String,
        /// The namespace.
        label: String,
        /// The kernel's answer.
        source: rtnetlink::Error,
    },
}

impl LinkError {
    /// Whether the kernel said that the thing is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Missing { .. } => true,
            Self::Refused { source: rtnetlink::Error::NetlinkError(message), .. } => {
                matches!(
                    nix::errno::Errno::from_raw(-message.raw_code()),
                    nix::errno::Errno::ENODEV
                        | nix::errno::Errno::ENOENT
                        | nix::errno::Errno::ESRCH
                        | nix::errno::Errno::EADDRNOTAVAIL
                )
            }
            Self::Refused { .. } | Self::Namespace(_) | Self::Socket { .. } => false,
        }
    }
}

/// Locally administered, unicast, and the last four bytes of the name.
fn bridge_address(name: &str) -> Vec<u8> {
    let mut address = vec![0x02, 0, 0, 0, 0, 0];
    for (to, from) in address[2..].iter_mut().rev().zip(name.bytes().rev()) {
        *to = from;
    }
    address
}

/// The links of one namespace.
#[derive(Clone, Debug)]
pub struct Links {
    pub(crate) handle: rtnetlink::Handle,
    pub(crate) label: Arc<str>,
}

impl Links {
    /// Opens a netlink socket in the namespace of `resident`, whose thread serves it from then on.
    ///
    /// # Errors
    /// [`LinkError::Socket`], or [`LinkError::Namespace`] where the thread is gone.
    pub async fn of(resident: &Resident) -> Result<Self, LinkError> {
        let label: Arc<str> = resident.namespace().label().into();
        let opened = resident
            .run(|| async {
                rtnetlink::new_connection().map(|(connection, handle, _)| {
                    tokio::task::spawn_local(connection);
                    handle
                })
            })
            .await?;
        match opened {
            Ok(handle) => Ok(Self { handle, label }),
            Err(source) => Err(LinkError::Socket { label: label.to_string(), source }),
        }
    }

    /// Makes a veth pair: one end here, the other end in `peer_home` (which may be this namespace).
    ///
    /// # Errors
    /// [`LinkError::Refused`], such as where a name is taken.
    pub async fn add_veth(&self, name: &str, peer: &str, peer_home: &Namespace) -> Result<(), LinkError> {
        let mut far = LinkMessage::default();
        far.attributes = vec![
            LinkAttribute::IfName(peer.to_string()),
            LinkAttribute::NetNsFd(peer_home.net_fd().as_raw_fd()),
        ];
        let mut near = LinkMessage::default();
        near.attributes = vec![
            LinkAttribute::IfName(name.to_string()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
            ]),
        ];
        self.add(near, || format!("add veth {name} with peer {peer} in {}", peer_home.label())).await
    }

    /// Makes a bridge without spanning tree and without multicast snooping, up. Its Ethernet address is made of its name:
    /// one of its own, for a bridge that has none borrows a port's, and changes it when the ports change.
    ///
    /// # Errors
    /// [`LinkError::Refused`], such as where the name is taken.
    pub async fn add_bridge(&self, name: &str) -> Result<(), LinkError> {
        let mut bridge = LinkMessage::default();
        bridge.header.flags = LinkFlags::Up;
        bridge.header.change_mask = LinkFlags::Up;
        bridge.attributes = vec![
            LinkAttribute::IfName(name.to_string()),
            LinkAttribute::Address(bridge_address(name)),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Bridge),
                LinkInfo::Data(InfoData::Bridge(vec![
                    InfoBridge::ForwardDelay(0),
                    InfoBridge::MulticastSnooping(false),
                ])),
            ]),
        ];
        self.add(bridge, || format!("add bridge {name}")).await
    }

    async fn add(&self, link: LinkMessage, action: impl Fn() -> String) -> Result<(), LinkError> {
        self.handle.link().add(link).execute().await.map_err(self.refused(action))
    }

    /// The kernel's number of a link.
    ///
    /// # Errors
    /// [`LinkError::Missing`].
    pub async fn index(&self, name: &str) -> Result<u32, LinkError> {
        let missing = || LinkError::Missing { link: name.to_string(), label: self.label.to_string() };
        let mut found = self.handle.link().get().match_name(name).execute();
        match found.try_next().await {
            Ok(Some(link)) => Ok(link.header.index),
            Ok(None) => Err(missing()),
            Err(source) => {
                let error = self.refused(|| format!("look up link {name}"))(source);
                Err(if error.is_missing() { missing() } else { error })
            }
        }
    }

    /// The names of all links, sorted.
    ///
    /// # Errors
    /// [`LinkError::Refused`].
    pub async fn names(&self) -> Result<Vec<String>, LinkError> {
        let all: Vec<LinkMessage> = self
            .handle
            .link()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(self.refused(|| "list links".into()))?;
        let mut names: Vec<String> = all
            .into_iter()
            .flat_map(|link| link.attributes)
            .filter_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name),
                _ => None,
            })
            .collect();
        names.sort();
        Ok(names)
    }

    /// Sets a link up.
    ///
    /// # Errors
    /// [`LinkError::Missing`], [`LinkError::Refused`].
    pub async fn up(&self, name: &str) -> Result<(), LinkError> {
        self.change(name, "set up", LinkMessageBuilder::<LinkUnspec>::up).await
    }

    /// Sets a link down.
    ///
    /// # Errors
    /// [`LinkError::Missing`], [`LinkError::Refused`].
    pub async fn down(&self, name: &str) -> Result<(), LinkError> {
        self.change(name, "set down", LinkMessageBuilder::<LinkUnspec>::down).await
    }

    /// Makes a link a port of a bridge in the same namespace.
    ///
    /// # Errors
    /// [`LinkError::Missing`], [`LinkError::Refused`].
    pub async fn attach(&self, name: &str, bridge: &str) -> Result<(), LinkError> {
        let bridge = self.index(bridge).await?;
        self.change(name, "attach to its bridge", |link| link.controller(bridge)).await
    }

    /// Takes a link out of its bridge.
    ///
    /// # Errors
    /// [`LinkError::Missing`], [`LinkError::Refused`].
    pub async fn detach(&self, name: &str) -> Result<(), LinkError> {
        self.change(name, "detach from its bridge", LinkMessageBuilder::<LinkUnspec>::nocontroller).await
    }

    async fn change(
        &self,
        name: &str,
        what: &str,
        change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
    ) -> Result<(), LinkError> {
        let index = self.index(name).await?;
        let message = change(LinkUnspec::new_with_index(index)).build();
        self.handle
            .link()
            .change(message)
            .execute()
            .await
            .map_err(self.refused(|| format!("{what}: link {name}")))
    }

    /// Deletes a link; a veth's other end goes with it. A link that is not there is no error.
    ///
    /// # Errors
    /// [`LinkError::Refused`].
    pub async fn delete(&self, name: &str) -> Result<(), LinkError> {
        let index = match self.index(name).await {
            Err(error) if error.is_missing() => return Ok(()),
            index => index?,
        };
        match self.handle.link().del(index).execute().await {
            Ok(()) => Ok(()),
            Err(source) => {
                let error = self.refused(|| format!("delete link {name}"))(source);
                if error.is_missing() { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Adds an address, usable at once: IPv6 without duplicate address detection.
    ///
    /// # Errors
    /// [`LinkError::Missing`], [`LinkError::Refused`].
    pub async fn add_address(&self, name: &str, address: IpNet) -> Result<(), LinkError> {
        let index = self.index(name).await?;
        let mut request = self.handle.address().add(index, address.addr(), address.prefix_len());
        if address.addr().is_ipv6() {
            let message = request.message_mut();
            message.header.flags |= AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        request.execute().await.map_err(self.refused(|| format!("add address {address} to link {name}")))
    }

    /// Removes an address. One that is not there is no error.
    ///
    /// # Errors
    /// [`LinkError::Missing`], [`LinkError::Refused`].
    pub async fn remove_address(&self, name: &str, address: IpNet) -> Result<(), LinkError> {
        let index = self.index(name).await?;
        let mut message = AddressMessage::default();
        message.header.index = index;
        message.header.prefix_len = address.prefix_len();
        message.header.family = match address {
            IpNet::V4(_) => AddressFamily::Inet,
            IpNet::V6(_) => AddressFamily::Inet6,
        };
        message.attributes.push(AddressAttribute::Local(address.addr()));
        match self.handle.address().del(message).execute().await {
            Ok(()) => Ok(()),
            Err(source) => {
                let error = self.refused(|| format!("remove address {address} from link {name}"))(source);
                if error.is_missing() { Ok(()) } else { Err(error) }
            }
        }
    }

    pub(crate) fn refused(&self, action: impl Fn() -> String) -> impl FnOnce(rtnetlink::Error) -> LinkError {
        let label = self.label.to_string();
        move |source| LinkError::Refused { action: action(), label, source }
    }
}
