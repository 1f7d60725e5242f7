//! netkit pairs, by a message to the kernel: `ip` of iproute2 before 6.7 cannot ask for a mode.

use std::io;

use anyhow::{Context as _, Result};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoNetkit, LinkAttribute, LinkInfo, LinkMessage, NetkitMode,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::netns::Netns;

/// Makes a pair: `dev0` of both namespaces. False where the kernel has no netkit.
pub(super) fn made(primary: &Netns, peer: &Netns, layer_2: bool) -> Result<bool> {
    let mode = if layer_2 { NetkitMode::L2 } else { NetkitMode::L3 };
    let error = primary.enter(|| ask(mode))??;
    match error {
        None => {}
        // No such kind of device.
        Some(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(false),
        Some(error) => return Err(error).context("the kernel makes no netkit"),
    }
    // The kernel names the peer.
    primary.ip(["link", "set", "nk0", "netns", peer.name(), "name", "dev0"])?;
    Ok(true)
}

/// The error that the kernel answers, if it does.
fn ask(mode: NetkitMode) -> Result<Option<io::Error>> {
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName("dev0".to_owned()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Netkit),
            LinkInfo::Data(InfoData::Netkit(vec![InfoNetkit::Mode(mode)])),
        ]),
    ];
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewLink(link));
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)?.payload {
        NetlinkPayload::Error(error) if error.code.is_some() => Ok(Some(error.to_io())),
        _ => Ok(None),
    }
}
