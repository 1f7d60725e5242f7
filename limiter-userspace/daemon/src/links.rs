//! The kernel's word that some interface came, went or changed (route netlink). Which one it was
//! does not matter: anybody who is notified looks at its own. What is not reported is found by
//! looking from time to time.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use tokio::time::{Instant, sleep_until};

use super::readable::Readable;

/// `RTMGRP_LINK` of include/uapi/linux/rtnetlink.h.
const LINKS: u32 = 1;

/// Events of the links of this network namespace.
#[derive(Debug)]
pub(super) struct LinkEvents {
    socket: Option<Readable>,
    /// No event is reported before then: those of a while are one.
    rests_until: Cell<Instant>,
    /// True if the last look did not come to all interfaces.
    has_more: Cell<bool>,
}

impl LinkEvents {
    /// Listens, inside a tokio runtime.
    pub(super) fn listen() -> Self {
        let socket = match open() {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(
                    "interfaces that appear or come back are attached up to a second later: the kernel \
                     reports no changes of them: {error}: check the sandbox"
                );
                None
            }
        };
        Self { socket, rests_until: Cell::new(Instant::now()), has_more: Cell::new(false) }
    }

    /// Rests for as long as a look at the interfaces took, which was due to an event: where many
    /// come and go, looks take at most half of the daemon's time.
    pub(super) fn looked(&self, took: Duration, has_more: bool) {
        self.rests_until.set(Instant::now() + took);
        self.has_more.set(has_more);
    }

    /// Waits for an event, or only until the rest is over if the last look did not come to all
    /// interfaces.
    pub(super) async fn next(&self) {
        sleep_until(self.rests_until.get()).await;
        if self.has_more.get() {
            return;
        }
        let Some(socket) = &self.socket else {
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
