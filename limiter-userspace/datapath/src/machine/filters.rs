//! tc filters for incoming packets.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::Link;
use crate::hooks::clsact;
use crate::{DatapathError, netlink};

/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`: also matches the qdisc `ingress`.
const INGRESS: TcHandle = TcHandle { major: u16::MAX, minor: TcHandle::MIN_INGRESS };

/// Kinds of the filters for incoming packets, each once. They run after all TCX programs. On
/// kernels without TCX, BPF filters are left out, since they are among the programs at tc.
pub fn filters(link: &Link) -> Result<Vec<String>, DatapathError> {
    let mut kinds = kinds(link.index)
        .map_err(|source| DatapathError::Netlink { interface: link.name.clone(), source })?;
    if clsact::is_used() {
        kinds.retain(|kind| kind != "bpf");
    }
    Ok(kinds)
}

fn kinds(index: u32) -> io::Result<Vec<String>> {
    let index = i32::try_from(index).map_err(io::Error::other)?;
    let mut asked = TcMessage::with_index(index);
    asked.header.parent = INGRESS;
    let socket = netlink::open(NETLINK_ROUTE)?;
    let answers = netlink::dump(&socket, RouteNetlinkMessage::GetTrafficFilter(asked))?;
    let mut kinds: Vec<String> = answers
        .into_iter()
        .filter_map(|answer| match answer {
            RouteNetlinkMessage::NewTrafficFilter(filter) => Some(filter),
            _ => None,
        })
        .flat_map(|filter| filter.attributes)
        .filter_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind),
            _ => None,
        })
        .collect();
    kinds.sort();
    kinds.dedup();
    Ok(kinds)
}
