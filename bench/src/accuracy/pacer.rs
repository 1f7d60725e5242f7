//! Sends one numbered frame at a time, evenly spaced up to a hundred thousand a second.
//!
//! [`limiter_tests::generator`] sleeps between frames, which is too coarse for that; this one waits
//! busily, with real-time priority. As there, a slot that is missed in a stall is never made up
//! for.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::netns::Netns;
use limiter_tests::packet_socket::PacketSocket;
use limiter_tests::{clock, cpu};

/// Bytes of the number: behind the Ethernet, IPv4 and UDP headers.
const NUMBER: std::ops::Range<usize> = 42..50;

/// The UDP checksum. Zero means none, so that the number can change.
const CHECKSUM: std::ops::Range<usize> = 40..42;

/// The number of the frames that only empty the bucket.
pub const UNCOUNTED: u64 = u64::MAX;

/// How long before a frame is due the pacer wakes up, in nanoseconds, and waits busily.
const WAKE_UP: u64 = 200_000;

/// Packets to send.
#[derive(Clone, Debug)]
pub struct Load {
    /// An IPv4 UDP frame without tags or options, at least 50 bytes.
    pub frame: Vec<u8>,
    /// Frames sent at once at the start, to empty the bucket.
    pub spent: u32,
    /// Frames a second.
    pub per_second: f64,
    /// For how long.
    pub duration: Duration,
}

/// Frames that were sent, by `CLOCK_MONOTONIC` in nanoseconds just before each was handed over.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// The frames that emptied the bucket.
    pub spent: Vec<u64>,
    /// The evenly spaced frames; the index is the number in the frame.
    pub times: Vec<u64>,
}

/// Sends on `interface` inside `netns`, to the end.
///
/// # Errors
///
/// When the frame is too short or the device refuses one: the measurement is of no use then.
pub fn send(netns: &Netns, interface: &str, load: &Load) -> Result<Sent> {
    ensure!(load.frame.len() >= NUMBER.end, "a frame needs {} bytes for its number", NUMBER.end);
    ensure!(load.per_second > 0.0, "{} frames a second send nothing", load.per_second);
    netns.enter(|| {
        let socket = PacketSocket::sender(interface)?;
        hurry()?;
        pace(&socket, load)
    })?
}

/// Puts the calling thread before the machine's other work, for good.
///
/// # Errors
///
/// Without `CAP_SYS_NICE`.
pub fn hurry() -> Result<()> {
    cpu::real_time(None, 1)
}

#[expect(clippy::cast_precision_loss, reason = "slots are far under 2^52")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive nanoseconds")]
fn pace(socket: &PacketSocket, load: &Load) -> Result<Sent> {
    let mut frame = load.frame.clone();
    if let Some(checksum) = frame.get_mut(CHECKSUM) {
        checksum.fill(0);
    }
    let mut hand_over = |number: u64| -> Result<u64> {
        if let Some(place) = frame.get_mut(NUMBER) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        let time = clock::now();
        socket.send(&frame).context("cannot send a frame")?;
        Ok(time)
    };
    let mut sent = Sent::default();
    for _ in 0..load.spent {
        sent.spent.push(hand_over(UNCOUNTED)?);
    }
    let period = 1e9 / load.per_second;
    let start = clock::now();
    let end = start + u64::try_from(load.duration.as_nanos())?;
    let mut slot = 1u64;
    loop {
        let due = start + (slot as f64 * period) as u64;
        if due >= end {
            return Ok(sent);
        }
        let mut now = clock::now();
        if due > now + WAKE_UP {
            clock::sleep_until(due - WAKE_UP);
        }
        while now < due {
            std::hint::spin_loop();
            now = clock::now();
        }
        sent.times.push(hand_over(sent.times.len() as u64)?);
        // After the slot that is open now: the ones that were missed are not made up for.
        let open = ((now - start) as f64 / period) as u64;
        slot = slot.max(open) + 1;
    }
}

/// The number in a UDP payload that was received.
pub fn number(payload: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*payload.first_chunk()?))
}
