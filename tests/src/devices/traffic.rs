//! Datagrams through a device in both directions, counted where they arrive.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Far, Kind, NEAR};
use crate::netns::Netns;
use crate::testbed::Testbed;

/// Datagrams that are sent in each direction.
pub const DATAGRAMS: u64 = 25;

/// How long after the last one another may come.
const QUIET: Duration = Duration::from_millis(500);

/// Port at both ends.
const PORT: u16 = 9_000;

/// Datagrams that got through; none in a direction in which nothing can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Those that came in at the limited end.
    pub into: Option<u64>,
    /// Those that went out there, counted at the other end.
    pub out: Option<u64>,
}

/// Sends [`DATAGRAMS`] of so many bytes each way.
///
/// # Errors
///
/// When a socket cannot be opened.
pub fn carried(
    bed: &Testbed,
    (kind, name): (&Kind, &str),
    far: Ipv4Addr,
    bytes: usize,
) -> Result<Carried> {
    let (near, other) = ((&*bed.receiver, Ipv4Addr::from(NEAR)), (&*bed.sender, far));
    match kind.far {
        Far::Device => Ok(Carried {
            into: Some(through(other, near, bytes)?),
            out: Some(through(near, other, bytes)?),
        }),
        Far::None => {
            let before = sent(&bed.receiver, name)?;
            send(near, other.1, bytes)?;
            Ok(Carried { into: None, out: Some(sent(&bed.receiver, name)? - before) })
        }
    }
}

/// Frames that the device has sent: of one without another end, all that is known.
fn sent(netns: &Netns, name: &str) -> Result<u64> {
    let link = netns.link(name)?;
    let packets = link.pointer("/stats64/tx/packets").and_then(Value::as_u64);
    packets.context("no count of packets sent")
}

fn through(from: (&Netns, Ipv4Addr), to: (&Netns, Ipv4Addr), bytes: usize) -> Result<u64> {
    let target = SocketAddr::from((to.1, PORT));
    let at = to.0.enter(|| -> Result<UdpSocket> {
        let socket = UdpSocket::bind(target)?;
        socket.set_read_timeout(Some(QUIET))?;
        Ok(socket)
    })??;
    send(from, to.1, bytes)?;
    let mut count = 0;
    let mut buffer = vec![0; bytes + 1];
    while let Ok(got) = at.recv(&mut buffer) {
        // The neighbours' discovery is not by UDP, so it is ours, whole.
        anyhow::ensure!(got == bytes, "a datagram of {got} bytes");
        count += 1;
    }
    Ok(count)
}

fn send((netns, from): (&Netns, Ipv4Addr), to: Ipv4Addr, bytes: usize) -> Result<()> {
    let target = SocketAddr::from((to, PORT));
    netns.enter(|| -> Result<()> {
        let socket = UdpSocket::bind((from, 0))?;
        for _ in 0..DATAGRAMS {
            // One that is dropped on its way out is no error of every kernel.
            drop(socket.send_to(&vec![0; bytes], target));
        }
        Ok(())
    })?
}
