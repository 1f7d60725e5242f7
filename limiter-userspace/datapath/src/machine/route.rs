//! Routes to an address, and default routes.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::netlink;

/// Index of the interface by which packets to an address leave; `None` without a route.
pub fn interface_towards(address: IpAddr) -> io::Result<Option<u32>> {
    let mut asked = RouteMessage::default();
    (asked.header.address_family, asked.header.destination_prefix_length) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    asked.attributes.push(RouteAttribute::Destination(address.into()));
    let socket = netlink::open(NETLINK_ROUTE)?;
    match netlink::ask(&socket, RouteNetlinkMessage::GetRoute(asked)) {
        Ok(RouteNetlinkMessage::NewRoute(route)) => {
            Ok(route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            }))
        }
        Ok(other) => Err(io::Error::other(format!("unexpected answer {other:?}"))),
        Err(error) if error.raw_os_error() == Some(libc::ENETUNREACH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Indices of the interfaces with a default route of IPv4 or IPv6 in the main table.
pub fn default_routes() -> io::Result<BTreeSet<u32>> {
    let mut indices = BTreeSet::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut asked = RouteMessage::default();
        asked.header.address_family = family;
        let socket = netlink::open(NETLINK_ROUTE)?;
        for answer in netlink::dump(&socket, RouteNetlinkMessage::GetRoute(asked))? {
            if let RouteNetlinkMessage::NewRoute(route) = answer {
                indices.extend(interfaces(&route));
            }
        }
    }
    Ok(indices)
}

/// Interfaces of a default route; empty for any other route.
fn interfaces(route: &RouteMessage) -> Vec<u32> {
    let RouteHeader { destination_prefix_length, table, kind, .. } = route.header;
    let is_default = destination_prefix_length == 0
        && table == RouteHeader::RT_TABLE_MAIN
        && kind == RouteType::Unicast;
    if !is_default {
        return Vec::new();
    }
    let each = route.attributes.iter().map(|attribute| match attribute {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    });
    each.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_machine_is_the_loopback() {
        assert_eq!(interface_towards("127.0.0.1".parse().unwrap()).unwrap(), Some(1));
    }
}
