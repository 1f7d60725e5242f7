//! Requests over netlink: for one message, or a dump of all objects.

pub(crate) mod generic;
pub(crate) mod ifb;
pub(crate) mod offloads;
pub(crate) mod queueing;

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};

/// Opens a socket to the kernel for a protocol such as `NETLINK_ROUTE`.
pub(super) fn open(protocol: isize) -> io::Result<Socket> {
    let socket = Socket::new(protocol)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Sends a request and receives the answer. An error is the kernel's, with its number, or an error
/// of the exchange.
pub(super) fn ask<T>(socket: &Socket, request: T) -> io::Result<T>
where
    NetlinkPayload<T>: From<T>,
    T: NetlinkSerializable + NetlinkDeserializable + std::fmt::Debug,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    send(socket, request, NLM_F_REQUEST)?;
    let (reply, _) = socket.recv_from_full()?;
    let reply = NetlinkMessage::<T>::deserialize(&reply).map_err(io::Error::other)?;
    match reply.payload {
        NetlinkPayload::InnerMessage(answer) => Ok(answer),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        other => Err(io::Error::other(format!("unexpected answer {other:?}"))),
    }
}

/// Requests a change. Returns when the kernel has made it.
pub(super) fn change<T>(socket: &Socket, request: T, flags: u16) -> io::Result<()>
where
    NetlinkPayload<T>: From<T>,
    T: NetlinkSerializable + NetlinkDeserializable + std::fmt::Debug,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    send(socket, request, NLM_F_REQUEST | NLM_F_ACK | flags)?;
    let (reply, _) = socket.recv_from_full()?;
    let reply = NetlinkMessage::<T>::deserialize(&reply).map_err(io::Error::other)?;
    match reply.payload {
        NetlinkPayload::Error(answer) if answer.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        other => Err(io::Error::other(format!("unexpected answer {other:?}"))),
    }
}

/// Dumps all objects of a kind. Not atomic: a concurrent change may be seen in part.
pub(super) fn dump<T>(socket: &Socket, request: T) -> io::Result<Vec<T>>
where
    NetlinkPayload<T>: From<T>,
    T: NetlinkSerializable + NetlinkDeserializable + std::fmt::Debug,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    send(socket, request, NLM_F_REQUEST | NLM_F_DUMP)?;
    let mut answers = Vec::new();
    loop {
        let (replies, _) = socket.recv_from_full()?;
        let mut rest = replies.as_slice();
        while !rest.is_empty() {
            let length = NetlinkBuffer::new_checked(&rest).map_err(io::Error::other)?.length();
            let reply = NetlinkMessage::<T>::deserialize(rest).map_err(io::Error::other)?;
            match reply.payload {
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                NetlinkPayload::Done(_) => return Ok(answers),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                other => return Err(io::Error::other(format!("unexpected answer {other:?}"))),
            }
            // The kernel aligns each message to four bytes.
            let length = usize::try_from(length).map_err(io::Error::other)?.next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

fn send<T>(socket: &Socket, request: T, flags: u16) -> io::Result<()>
where
    NetlinkPayload<T>: From<T>,
    T: NetlinkSerializable + std::fmt::Debug,
{
    let mut message = NetlinkMessage::from(request);
    message.header.flags = flags;
    message.header.sequence_number = 1;
    message.finalize();
    let mut buffer = vec![0; message.buffer_len()];
    message.serialize(&mut buffer);
    socket.send(&buffer, 0).map(drop)
}
