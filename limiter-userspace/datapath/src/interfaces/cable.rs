//! The cable of a container: a veth pair with one end in the container's network namespace, and the
//! other one here.

use std::fs::File;
use std::io;

use netlink_packet_core::NLM_F_EXCL;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::interface::Interface;
use super::labels::id_of;
use crate::netlink::ifb::hold;
use crate::{DatapathError, netlink};

/// The end here of the cable whose other end is the interface of this name in a network namespace;
/// `None` if that has no such interface, or one that is no end of a cable to here, such as a
/// macvlan.
pub fn host_end(namespace: &File, name: &str) -> Result<Option<Interface>, DatapathError> {
    let failed = |source| DatapathError::Netlink { interface: name.to_owned(), source };
    let socket = netlink::open(NETLINK_ROUTE).map_err(failed)?;
    // Without an id, no interface here has its other end there.
    let Some(id) = id_of(&socket, namespace) else { return Ok(None) };
    let there = vec![LinkAttribute::IfNetnsId(id), LinkAttribute::IfName(name.to_owned())];
    let Some(inside) = link(&socket, 0, there).map_err(failed)? else { return Ok(None) };
    let Some(peer) = end_of(&inside).0 else { return Ok(None) };
    let Some(here) = link(&socket, peer, Vec::new()).map_err(failed)? else { return Ok(None) };
    if end_of(&here) != (Some(inside.header.index), Some(id)) {
        return Ok(None);
    }
    Interface::at(peer)
}

/// The index of the other end of a link, and the id of the network namespace that it is in.
fn end_of(link: &LinkMessage) -> (Option<u32>, Option<i32>) {
    let (mut peer, mut namespace) = (None, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Link(index) => peer = Some(*index),
            LinkAttribute::LinkNetNsId(id) => namespace = Some(*id),
            _ => {}
        }
    }
    (peer, namespace)
}

fn link(
    socket: &Socket,
    index: u32,
    attributes: Vec<LinkAttribute>,
) -> io::Result<Option<LinkMessage>> {
    let mut asked = LinkMessage::default();
    asked.header.index = index;
    asked.attributes = attributes;
    match netlink::ask(socket, RouteNetlinkMessage::GetLink(asked)) {
        Ok(RouteNetlinkMessage::NewLink(link)) => Ok(Some(link)),
        Ok(other) => Err(io::Error::other(format!("unexpected answer {other:?}"))),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives an interface an `fq` with room for so many waiting packets of a flow, if it has the
/// kernel's default discipline. One that somebody gave it stays, and is the error `EEXIST`; without
/// `fq` in the kernel it is `ENOENT`.
pub fn give_fq(interface: &Interface, flow_packets: u64) -> io::Result<()> {
    hold(interface.index, flow_packets, NLM_F_EXCL)
}
