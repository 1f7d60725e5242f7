//! The way to an address.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::netlink;

/// Index of the interface that packets to an address leave by; none without a route.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_machine_is_the_loopback() {
        assert_eq!(interface_towards("127.0.0.1".parse().unwrap()).unwrap(), Some(1));
    }
}
