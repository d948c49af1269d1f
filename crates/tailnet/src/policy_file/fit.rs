//! Whether a word of a rule stands for a device or an address: yes, no, or it depends on what is not known.

use std::net::IpAddr;

use ipnet::IpNet;

use super::model::{Policy, Selector, Tag};
use super::ranges;
use super::service::Lack;
use super::verdict::Doubt;
use super::world::{Coverage, Device, Family, Identity, World};

/// How a part of a rule fits a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fit {
    Yes,
    /// It may, depending on these.
    Depends(Vec<Doubt>),
    No(Lack),
}

impl Fit {
    /// What fits a list of alternatives.
    pub(super) fn any(fits: impl IntoIterator<Item = Self>, otherwise: Lack) -> Self {
        let mut all = Vec::new();
        for fit in fits {
            match fit {
                Self::Yes => return Self::Yes,
                Self::Depends(doubts) => all.extend(doubts),
                Self::No(_) => {}
            }
        }
        if all.is_empty() { Self::No(otherwise) } else { Self::Depends(all) }
    }
}

/// Whether a word stands for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    Yes,
    No,
    /// It depends on whose the device is, or on its address.
    Unknown,
    /// It depends on members of a group that are no login names.
    Members,
    /// The word is not evaluated.
    Opaque,
}

impl From<bool> for Stands {
    fn from(stands: bool) -> Self {
        if stands { Self::Yes } else { Self::No }
    }
}

/// Tells whether `selector` stands for a device of which this much is known.
pub(super) fn device(
    selector: &Selector,
    identity: &Identity,
    addresses: Option<&[IpAddr]>,
    family: Family,
    policy: &Policy,
) -> Stands {
    match (selector, identity) {
        (Selector::Any | Selector::Everything, _) => Stands::Yes,
        (Selector::Internet, _) => Stands::No,
        (Selector::Prefix(prefix), _) => prefix_stands(*prefix, addresses, family),
        (Selector::Opaque(_), _) => Stands::Opaque,
        (Selector::Tag(tag), Identity::Tags(tags)) => tags.contains(tag).into(),
        (Selector::Tag(_), Identity::User(_) | Identity::Somebody) => Stands::No,
        (Selector::User(word), Identity::User(login)) => user(word, login),
        (Selector::Group(name), identity) => group(name, identity, policy),
        (Selector::Tagged, Identity::Tags(_)) | (Selector::Member, Identity::User(_)) => Stands::Yes,
        // A tagged device is nobody's.
        (Selector::User(_) | Selector::Member | Selector::Role(_) | Selector::Own, Identity::Tags(_)) => {
            Stands::No
        }
        (Selector::Tagged, Identity::User(_) | Identity::Somebody) => Stands::No,
        (Selector::Role(_), Identity::User(_)) => Stands::Opaque,
        // `Own` is asked of both ends at once, not here.
        (Selector::Own, _)
        | (
            Selector::User(_) | Selector::Member | Selector::Role(_),
            Identity::Somebody | Identity::Unknown,
        )
        | (Selector::Tag(_) | Selector::Tagged, Identity::Unknown) => Stands::Unknown,
    }
}

/// Tells whether both ends are devices of one user, as `autogroup:self` asks.
pub(super) fn same_user(source: &Identity, destination: &Identity) -> Stands {
    match (source, destination) {
        (Identity::Tags(_), _) | (_, Identity::Tags(_)) => Stands::No,
        (Identity::User(one), Identity::User(other)) => (one == other).into(),
        (Identity::User(_) | Identity::Somebody | Identity::Unknown, _) => Stands::Unknown,
    }
}

fn prefix_stands(prefix: IpNet, addresses: Option<&[IpAddr]>, family: Family) -> Stands {
    if !family.is_of(prefix.addr()) {
        return Stands::No;
    }
    let range = ranges::tailnet(family);
    match addresses {
        Some(addresses) => addresses.iter().any(|address| prefix.contains(address)).into(),
        None if prefix.contains(&range) => Stands::Yes,
        None if range.contains(&prefix) => Stands::Unknown,
        None => Stands::No,
    }
}

fn user(word: &str, login: &str) -> Stands {
    // headscale writes its own users with a trailing `@`.
    let plain = |text: &str| text.trim_end_matches('@').to_ascii_lowercase();
    match word.strip_prefix("*@") {
        Some(domain) => {
            login.rsplit_once('@').is_some_and(|(_, own)| own.eq_ignore_ascii_case(domain)).into()
        }
        None if word.contains(['*', ':']) => Stands::Opaque,
        None => (plain(word) == plain(login)).into(),
    }
}

fn group(name: &str, identity: &Identity, policy: &Policy) -> Stands {
    let Some(group) = policy.groups.get(name) else { return Stands::No };
    let in_it = match identity {
        Identity::User(login) => {
            let members = group.users.iter().map(|word| user(word, login));
            members.fold(Stands::No, |so_far, next| match (so_far, next) {
                (Stands::Yes, _) | (_, Stands::Yes) => Stands::Yes,
                (Stands::No, next) => next,
                (so_far, _) => so_far,
            })
        }
        Identity::Tags(_) => Stands::No,
        Identity::Somebody | Identity::Unknown if group.users.is_empty() => Stands::No,
        Identity::Somebody | Identity::Unknown => Stands::Unknown,
    };
    match in_it {
        Stands::No if !group.others.is_empty() => Stands::Members,
        other => other,
    }
}

/// Tells whether a destination word stands for an address outside the tailnet, by a router that may carry it.
pub(super) fn outside(
    selector: &Selector,
    address: IpAddr,
    via: &[Tag],
    policy: &Policy,
    world: &World,
) -> Outside {
    let routed = || router(address, via, policy, world);
    match selector {
        Selector::Any => routed(),
        Selector::Prefix(prefix) if !prefix.contains(&address) => Outside::No(Lack::Destination),
        Selector::Prefix(prefix) if prefix.prefix_len() == 0 && ranges::is_internet(address) => {
            Outside::EveryAddress
        }
        Selector::Prefix(_) => routed(),
        Selector::Internet if ranges::is_internet(address) => Outside::Yes,
        Selector::Opaque(_) => Outside::Opaque,
        Selector::Internet
        | Selector::User(_)
        | Selector::Group(_)
        | Selector::Tag(_)
        | Selector::Member
        | Selector::Tagged
        | Selector::Own
        | Selector::Everything
        | Selector::Role(_) => Outside::No(Lack::Destination),
    }
}

/// How a word fits an address outside the tailnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outside {
    Yes,
    No(Lack),
    NoKnownRouter,
    EveryAddress,
    Opaque,
}

/// Whether some device carries an address of a subnet.
fn router(address: IpAddr, via: &[Tag], policy: &Policy, world: &World) -> Outside {
    let mut routers = world.routers_of(address).peekable();
    let known = routers.peek().is_some();
    if routers.any(|router| carries(router, via)) {
        return Outside::Yes;
    }
    // A subnet of public addresses is rare enough that somebody has to mention it.
    let mentioned =
        policy.approvers.routes.keys().any(|route| route.prefix_len() > 0 && route.contains(&address));
    let plausible = known || mentioned || !ranges::is_internet(address);
    match world.coverage() {
        Coverage::All if known => Outside::No(Lack::Via),
        Coverage::Some if plausible => Outside::NoKnownRouter,
        Coverage::All | Coverage::Some => Outside::No(Lack::Destination),
    }
}

fn carries(router: &Device, via: &[Tag]) -> bool {
    via.is_empty() || has_any(&router.identity, via) == Stands::Yes
}

/// Tells whether a device has one of these tags.
pub(super) fn has_any(identity: &Identity, tags: &[Tag]) -> Stands {
    match identity {
        Identity::Tags(own) => tags.iter().any(|tag| own.contains(tag)).into(),
        Identity::User(_) | Identity::Somebody => Stands::No,
        Identity::Unknown => Stands::Unknown,
    }
}
