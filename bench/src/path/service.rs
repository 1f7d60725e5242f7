//! The service that a conforming source sends to: a thread that reads a socket, and notes how old
//! each packet of the source is.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use limiter_tests::{clock, cpu};

/// Real-time priority: before the NAPI thread, on whose CPU it is. What is measured is the way of a
/// packet, and not the queue for a CPU.
const PRIORITY: i32 = 3;

/// Reads on a CPU until it is over; says nanoseconds from when each packet of `source` was made, by
/// the time in its first bytes.
pub(super) fn read(
    socket: &UdpSocket,
    cpu: usize,
    source: Ipv4Addr,
    over: &AtomicBool,
) -> Result<Vec<u64>> {
    cpu::pin(None, cpu)?;
    cpu::real_time(None, PRIORITY)?;
    let mut ages = Vec::new();
    let mut stamp = [0; 8];
    while !over.load(Ordering::Relaxed) {
        match socket.recv_from(&mut stamp) {
            Ok((8, from)) if from.ip() == IpAddr::V4(source) => {
                ages.push(clock::now().saturating_sub(u64::from_ne_bytes(stamp)));
            }
            Ok(_) => {}
            Err(error) if is_timeout(error.kind()) => {}
            Err(error) => return Err(error).context("cannot read the service's socket"),
        }
    }
    Ok(ages)
}

const fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

pub(super) fn drain(socket: &UdpSocket) -> Result<()> {
    socket.set_nonblocking(true)?;
    while socket.recv(&mut [0; 8]).is_ok() {}
    socket.set_nonblocking(false).context("the service's socket cannot be waited for")
}
