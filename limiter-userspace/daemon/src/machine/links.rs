//! Events of the kernel that some interface came, went or changed (route netlink). The events do
//! not say which one: each receiver checks its own interfaces. Changes without an event are found
//! by looking from time to time.

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
pub(crate) struct LinkEvents {
    socket: Option<Readable>,
    /// Time before which no event is reported, so that several events become one.
    rests_until: Cell<Instant>,
    /// True if the last look did not reach all interfaces.
    has_more: Cell<bool>,
}

impl LinkEvents {
    /// Listens, inside a tokio runtime.
    pub(crate) fn listen() -> Self {
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

    /// Rests for as long as the look at the interfaces took: so looks take at most half of the
    /// daemon's time, however many interfaces come and go.
    pub(crate) fn looked(&self, took: Duration, has_more: bool) {
        self.rests_until.set(Instant::now() + took);
        self.has_more.set(has_more);
    }

    /// Waits for an event, or only until the rest is over if the last look did not reach all
    /// interfaces.
    pub(crate) async fn next(&self) {
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
