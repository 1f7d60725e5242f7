//! The kernel's word that some interface came, went or changed (route netlink). Which one it was
//! does not matter: anybody who is notified looks at its own. What is not reported is found by
//! looking from time to time.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::readable::Readable;

/// `RTMGRP_LINK` of include/uapi/linux/rtnetlink.h.
const LINKS: u32 = 1;

/// Events of the links of this network namespace.
#[derive(Debug)]
pub(super) struct LinkEvents(Option<Readable>);

impl LinkEvents {
    /// Listens, inside a tokio runtime.
    pub(super) fn listen() -> Self {
        match open() {
            Ok(socket) => Self(Some(socket)),
            Err(error) => {
                tracing::warn!(
                    "interfaces that come back are attached up to a second later: the kernel \
                     reports no changes of them: {error}: check the sandbox"
                );
                Self(None)
            }
        }
    }

    pub(super) async fn next(&self) {
        let Some(socket) = &self.0 else {
            return std::future::pending().await;
        };
        socket.taken(read).await;
    }
}

fn open() -> io::Result<Readable> {
    // Protocol 0 of this family is NETLINK_ROUTE.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
    Readable::new(socket)
}

fn read(socket: &OwnedFd) -> io::Result<usize> {
    let mut events = [0; 8192];
    let (read, _) = recv(socket, &mut events, RecvFlags::empty())?;
    Ok(read)
}
