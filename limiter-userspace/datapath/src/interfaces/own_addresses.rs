//! Addresses of this machine's interfaces, with their networks.

use std::io;

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::netlink;

/// All addresses in this network namespace, each with the index of its interface.
pub(crate) fn own_addresses() -> io::Result<Vec<(u32, IpNet)>> {
    let socket = netlink::open(NETLINK_ROUTE)?;
    let asked = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = netlink::dump(&socket, asked)?;
    let found = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewAddress(address) => Some(address),
        _ => None,
    });
    Ok(found.filter_map(|address| of(&address)).collect())
}

/// The interface's own address in a message: `IFA_LOCAL`, which IPv6 has only on point-to-point
/// links.
fn of(message: &AddressMessage) -> Option<(u32, IpNet)> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })?;
    let net = IpNet::new(address, message.header.prefix_len).ok()?;
    Some((message.header.index, net))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn the_loopback_address_is_an_own_one() {
        let found = own_addresses().unwrap();
        let loopback: IpAddr = [127, 0, 0, 1].into();
        // There are no addresses if the loopback interface of the namespace is down.
        assert!(
            found.is_empty() || found.iter().any(|(_, net)| net.addr() == loopback),
            "{found:?}"
        );
    }
}
