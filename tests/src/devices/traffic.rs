//! Datagrams through a device in both directions, counted where they arrive.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;

use super::{Far, Kind, NEAR};
use crate::netns::Netns;
use crate::packet_socket::receive_buffer;
use crate::testbed::Testbed;

/// How long after the last one another may come.
const QUIET: Duration = Duration::from_millis(500);

/// Bytes of room for those that have arrived, in the kernel's count: a large one takes several
/// pages.
const ROOM: i32 = 8 << 20;

/// Port at both ends.
const PORT: u16 = 9_000;

/// Datagrams that are sent one way.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many.
    pub datagrams: u64,
    /// Bytes of each.
    pub bytes: usize,
    /// Each is from a port of its own, and from the next CPU.
    pub are_flows: bool,
}

impl Load {
    /// From one port.
    pub const ONE_FLOW: Self = Self { datagrams: 25, bytes: 100, are_flows: false };
    /// As many flows as a hash spreads over all queues of a card.
    pub const MANY_FLOWS: Self = Self { datagrams: 64, bytes: 100, are_flows: true };
}

/// Datagrams that got through; none in a direction in which nothing can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Those that came in at the limited end.
    pub into: Option<u64>,
    /// Those that went out there, counted at the other end.
    pub out: Option<u64>,
}

/// Sends [`Load::ONE_FLOW`] each way.
///
/// # Errors
///
/// When a socket cannot be opened.
pub fn carried(bed: &Testbed, (kind, name): (&Kind, &str), far: Ipv4Addr) -> Result<Carried> {
    let (near, other) = ((&*bed.receiver, Ipv4Addr::from(NEAR)), (&*bed.sender, far));
    match kind.far {
        Far::Device => both_ways(near, other, &Load::ONE_FLOW),
        Far::None => {
            let before = sent(&bed.receiver, name)?;
            send(near, other.1, &Load::ONE_FLOW)?;
            Ok(Carried { into: None, out: Some(sent(&bed.receiver, name)? - before) })
        }
    }
}

/// Sends a load each way between the limited end and the other one.
///
/// # Errors
///
/// When a socket cannot be opened.
pub fn both_ways(
    near: (&Netns, Ipv4Addr),
    far: (&Netns, Ipv4Addr),
    load: &Load,
) -> Result<Carried> {
    Ok(Carried { into: Some(through(far, near, load)?), out: Some(through(near, far, load)?) })
}

/// Frames that the device has sent: of one without another end, all that is known.
fn sent(netns: &Netns, name: &str) -> Result<u64> {
    let link = netns.link(name)?;
    let packets = link.pointer("/stats64/tx/packets").and_then(Value::as_u64);
    packets.context("no count of packets sent")
}

fn through(from: (&Netns, Ipv4Addr), to: (&Netns, Ipv4Addr), load: &Load) -> Result<u64> {
    let target = SocketAddr::from((to.1, PORT));
    let at = to.0.enter(|| -> Result<UdpSocket> {
        let socket = UdpSocket::bind(target)?;
        receive_buffer(&socket, ROOM)?;
        socket.set_read_timeout(Some(QUIET))?;
        Ok(socket)
    })??;
    send(from, to.1, load)?;
    let mut count = 0;
    let mut buffer = vec![0; load.bytes + 1];
    while let Ok(got) = at.recv(&mut buffer) {
        // The neighbours' discovery is not by UDP, so it is ours, whole.
        anyhow::ensure!(got == load.bytes, "a datagram of {got} bytes");
        count += 1;
    }
    Ok(count)
}

fn send((netns, from): (&Netns, Ipv4Addr), to: Ipv4Addr, load: &Load) -> Result<()> {
    let target = SocketAddr::from((to, PORT));
    let cpus = thread::available_parallelism()?.get();
    netns.enter(|| -> Result<()> {
        let mut socket = UdpSocket::bind((from, 0))?;
        let mut cpu = (0..cpus).cycle();
        for _ in 0..load.datagrams {
            // One that is dropped on its way out is no error of every kernel.
            drop(socket.send_to(&vec![0; load.bytes], target));
            if load.are_flows {
                socket = UdpSocket::bind((from, 0))?;
                let mut only = CpuSet::new();
                only.set(cpu.next().unwrap_or_default());
                // The thread ends with this.
                sched_setaffinity(None, &only).context("moving to another CPU")?;
            }
        }
        Ok(())
    })?
}
