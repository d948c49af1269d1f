//! What the host of a question turns out to be.

use std::net::IpAddr;

use ipnet::IpNet;

use super::model::Policy;
use super::ranges;
use super::selector::is_single;
use super::world::{Coverage, Device, Family, Host, Identity, World};

/// A host, found.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place<'a> {
    /// A device of the tailnet, as far as it is known.
    Device {
        identity: Identity,
        /// `None`: not known.
        addresses: Option<Vec<IpAddr>>,
        device: Option<&'a Device>,
    },
    /// An address that no device has: of a subnet, or of the Internet.
    Outside(IpAddr),
    /// An alias of many addresses.
    Many(IpNet),
    /// A device that the tailnet does not have; its address, if it was asked for by that.
    Nowhere(Option<IpAddr>),
}

impl<'a> Place<'a> {
    /// Finds a host: in the policy's aliases first, then among the devices.
    pub(super) fn find(policy: &Policy, world: &'a World, host: &Host) -> Self {
        match host {
            Host::Tag(tag) => {
                Self::Device { identity: Identity::Tags([tag.clone()].into()), addresses: None, device: None }
            }
            Host::Address(address) => Self::of_address(*address, world),
            Host::Name(name) => match (policy.hosts.get(name), world.device(name)) {
                (Some(prefix), _) if is_single(prefix) => Self::of_address(prefix.addr(), world),
                (Some(prefix), _) => Self::Many(*prefix),
                (None, Some(device)) => Self::Device {
                    identity: device.identity.clone(),
                    addresses: Some(device.addresses.clone()),
                    device: Some(device),
                },
                (None, None) => Self::unknown(None, world),
            },
        }
    }

    fn of_address(address: IpAddr, world: &'a World) -> Self {
        match world.device(&address.to_string()) {
            Some(device) => Self::Device {
                identity: device.identity.clone(),
                addresses: Some(vec![address]),
                device: Some(device),
            },
            None if ranges::is_tailnet(address) => Self::unknown(Some(address), world),
            None => Self::Outside(address),
        }
    }

    fn unknown(address: Option<IpAddr>, world: &World) -> Self {
        match world.coverage() {
            Coverage::All => Self::Nowhere(address),
            Coverage::Some => Self::Device {
                identity: Identity::Unknown,
                addresses: address.map(|address| vec![address]),
                device: None,
            },
        }
    }

    /// Tells whether it has, or may have, an address of this family.
    pub(super) fn is_in(&self, family: Family) -> bool {
        match self {
            Self::Device { addresses: Some(addresses), .. } => {
                addresses.iter().any(|address| family.is_of(*address))
            }
            Self::Device { addresses: None, .. } | Self::Nowhere(None) => true,
            Self::Outside(address) | Self::Nowhere(Some(address)) => family.is_of(*address),
            Self::Many(prefix) => family.is_of(prefix.addr()),
        }
    }

    pub(super) fn has_known_address(&self) -> bool {
        match self {
            Self::Device { addresses, .. } => addresses.is_some(),
            Self::Outside(_) | Self::Many(_) => true,
            Self::Nowhere(_) => false,
        }
    }
}
