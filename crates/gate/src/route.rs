//! Routes of one namespace, in its main table.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};

use crate::link::{LinkError, Links};

/// One route.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Route {
    to: IpNet,
    link: String,
    via: Option<IpAddr>,
    source: Option<IpAddr>,
}

impl Route {
    /// A route to a prefix that is reached directly on a link.
    pub fn on_link(to: IpNet, link: &str) -> Self {
        Self { to, link: link.to_string(), via: None, source: None }
    }

    /// Through a neighbour on the link, whose own address need not be in a subnet of the link.
    pub fn via(mut self, neighbour: IpAddr) -> Self {
        self.via = Some(neighbour);
        self
    }

    /// Which source address the kernel picks for what leaves by this route.
    pub fn source(mut self, source: IpAddr) -> Self {
        self.source = Some(source);
        self
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} dev {}", self.to, self.link)?;
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        Ok(())
    }
}

fn address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

impl Links {
    /// Adds a route.
    ///
    /// # Errors
    /// [`LinkError::Missing`], [`LinkError::Refused`].
    pub async fn add_route(&self, route: &Route) -> Result<(), LinkError> {
        let message = self.route_message(route).await?;
        self.handle
            .route()
            .add(message)
            .execute()
            .await
            .map_err(self.refused(|| format!("add route {route}")))
    }

    /// Deletes a route. One that is not there is no error.
    ///
    /// # Errors
    /// [`LinkError::Missing`], [`LinkError::Refused`].
    pub async fn delete_route(&self, route: &Route) -> Result<(), LinkError> {
        let message = self.route_message(route).await?;
        match self.handle.route().del(message).execute().await {
            Ok(()) => Ok(()),
            Err(source) => {
                let error = self.refused(|| format!("delete route {route}"))(source);
                if error.is_missing() { Ok(()) } else { Err(error) }
            }
        }
    }

    async fn route_message(&self, route: &Route) -> Result<RouteMessage, LinkError> {
        let index = self.index(&route.link).await?;
        let mut message = RouteMessage::default();
        message.header.address_family = match route.to {
            IpNet::V4(_) => AddressFamily::Inet,
            IpNet::V6(_) => AddressFamily::Inet6,
        };
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.scope = match (route.via, route.to) {
            (None, IpNet::V4(_)) => RouteScope::Link,
            (Some(_), _) | (None, IpNet::V6(_)) => RouteScope::Universe,
        };
        message.header.destination_prefix_length = route.to.prefix_len();
        message.attributes.push(RouteAttribute::Oif(index));
        if route.to.prefix_len() > 0 {
            message.attributes.push(RouteAttribute::Destination(address(route.to.network())));
        }
        if let Some(via) = route.via {
            message.attributes.push(RouteAttribute::Gateway(address(via)));
            message.header.flags |= RouteFlags::Onlink;
        }
        if let Some(source) = route.source {
            message.attributes.push(RouteAttribute::PrefSource(address(source)));
        }
        Ok(message)
    }
}
