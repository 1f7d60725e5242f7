//! A question over netlink, and the first message of its answer.

use std::io;

use netlink_packet_core::{
    NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};

/// A socket to the kernel for a protocol, as `NETLINK_ROUTE`.
pub(super) fn open(protocol: isize) -> io::Result<Socket> {
    let socket = Socket::new(protocol)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Asks, and takes the answer. An error is the kernel's, with its number, or about the exchange.
pub(super) fn ask<T>(socket: &Socket, request: T) -> io::Result<T>
where
    NetlinkPayload<T>: From<T>,
    T: NetlinkSerializable + NetlinkDeserializable + std::fmt::Debug,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST;
    message.header.sequence_number = 1;
    message.finalize();
    let mut buffer = vec![0; message.buffer_len()];
    message.serialize(&mut buffer);
    socket.send(&buffer, 0)?;
    let (reply, _) = socket.recv_from_full()?;
    let reply = NetlinkMessage::<T>::deserialize(&reply).map_err(io::Error::other)?;
    match reply.payload {
        NetlinkPayload::InnerMessage(answer) => Ok(answer),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        other => Err(io::Error::other(format!("unexpected answer {other:?}"))),
    }
}
