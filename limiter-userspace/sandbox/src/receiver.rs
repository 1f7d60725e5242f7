//! Counts the frames that arrive at an interface, by source, behind XDP and before the network
//! stack. This module knows nothing of limiter.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::clock;
use crate::netns::Netns;
use crate::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, TAG_CUSTOMER, TAG_SERVICE};
use crate::packet_socket::{Direction, PacketSocket};

/// Room for some 80,000 small frames: more than a second of any traffic in the tests.
const BUFFER: usize = 64 << 20;

/// Enough for Ethernet, two tags and an IPv6 header.
const HEADERS: usize = 64;

/// Most frames that a tap records.
pub const TAP_BOUND: usize = 1_000_000;

const TIMEOUT: Duration = Duration::from_millis(50);

/// Counts of frames that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames by source: an IPv4 address, or the /64 of an IPv6 address with a zero host part.
    pub sources: HashMap<IpAddr, u64>,
    /// Times at which each frame of a source was seen, in nanoseconds of `CLOCK_MONOTONIC`; only
    /// filled by a [`Receiver::tap`].
    pub times: HashMap<IpAddr, Vec<u64>>,
    /// Frames that are not IP.
    pub other: u64,
    /// Frames that the kernel could not hand over because the socket's buffer was full. Above zero
    /// the measurement is invalid, because the sources of these frames are unknown.
    pub lost: u64,
}

impl Counts {
    /// Frames from a source.
    pub fn of(&self, source: IpAddr) -> u64 {
        self.sources.get(&masked(source)).copied().unwrap_or(0)
    }

    /// Times at which the frames of a source were seen, by a [`Receiver::tap`].
    pub fn times_of(&self, source: IpAddr) -> &[u64] {
        self.times.get(&masked(source)).map_or(&[], Vec::as_slice)
    }

    /// Fails when frames were lost on the way to the counter.
    ///
    /// # Errors
    ///
    /// Says how many.
    pub fn check_clean(&self) -> Result<()> {
        ensure!(
            self.lost == 0,
            "the measurement is invalid: the kernel dropped {} frames on the way to the receiver; \
             try again on a less busy machine",
            self.lost
        );
        Ok(())
    }
}

/// The end of a frame by whose address a [`Receiver`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The sender of a frame.
    Source,
    /// The receiver of a frame.
    Destination,
}

impl End {
    /// The masked address of a frame at this end; `None` when it is not IP.
    pub fn address(self, frame: &[u8]) -> Option<IpAddr> {
        address(frame, self)
    }
}

/// The source that a limiter should see: IPv4 unchanged, IPv6 cut to /64.
pub fn masked(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// A running receiver. Dropping it stops it.
#[derive(Debug)]
pub struct Receiver {
    stop: Arc<AtomicBool>,
    counts: Arc<Mutex<Counts>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Receiver {
    /// Starts counting the frames that come in at `interface` inside `netns`. The receiver is
    /// already active at return.
    ///
    /// # Errors
    ///
    /// When the socket cannot be opened.
    pub fn start(netns: &Arc<Netns>, interface: &'static str) -> Result<Self> {
        Self::start_by(netns, interface, End::Source)
    }

    /// As [`Receiver::start`], but counts by the given end of the frames.
    ///
    /// # Errors
    ///
    /// When the socket cannot be opened.
    pub fn start_by(netns: &Arc<Netns>, interface: &'static str, end: End) -> Result<Self> {
        Self::spawn(netns, interface, Direction::Incoming, end)
    }

    /// Starts recording the frames that go through `interface` in both directions, with times: what
    /// a tool really sent. More than [`TAP_BOUND`] frames are an error.
    ///
    /// # Errors
    ///
    /// When the socket cannot be opened.
    pub fn tap(netns: &Arc<Netns>, interface: &'static str) -> Result<Self> {
        Self::spawn(netns, interface, Direction::Both, End::Source)
    }

    fn spawn(
        netns: &Arc<Netns>,
        interface: &'static str,
        direction: Direction,
        end: End,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Mutex::new(Counts::default()));
        let (ready, is_ready) = mpsc::channel();
        let thread = {
            let (netns, stop, counts) = (Arc::clone(netns), Arc::clone(&stop), Arc::clone(&counts));
            thread::Builder::new().name("receiver".into()).spawn(move || {
                netns.move_in()?;
                let socket = PacketSocket::receiver(interface, direction, BUFFER, TIMEOUT)?;
                ready.send(()).context("nobody waits for the receiver")?;
                receive(&socket, direction, end, &stop, &counts)
            })?
        };
        let receiver = Self { stop, counts, thread: Some(thread) };
        match is_ready.recv() {
            Ok(()) => Ok(receiver),
            // The thread ended before it was ready; its error says why.
            Err(_) => Err(receiver.finish().err().unwrap_or_else(|| anyhow!("no receiver"))),
        }
    }

    /// Counts of the arrivals so far; `lost` is only known at the end.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the frames still queued, stops, and returns the counts. To be called when the sender
    /// has finished.
    ///
    /// # Errors
    ///
    /// When receiving failed.
    pub fn finish(mut self) -> Result<Counts> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result.context("the receiver")?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => return Err(anyhow!("the receiver was already finished")),
        }
        Ok(self.counts())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the receiver panicked");
        }
    }
}

/// Counts until the stop flag is set and nothing came for [`TIMEOUT`].
fn receive(
    socket: &PacketSocket,
    direction: Direction,
    end: End,
    stop: &AtomicBool,
    counts: &Mutex<Counts>,
) -> Result<()> {
    let mut recorded = 0;
    let mut buffer = [0u8; HEADERS];
    loop {
        let length = socket.receive(&mut buffer).context("cannot receive")?;
        if length == 0 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            continue;
        }
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        match buffer.get(..length).and_then(|frame| end.address(frame)) {
            Some(source) => {
                *counts.sources.entry(source).or_default() += 1;
                if direction == Direction::Both {
                    counts.times.entry(source).or_default().push(clock::now());
                    recorded += 1;
                    ensure!(recorded < TAP_BOUND, "more than {TAP_BOUND} frames at the tap");
                }
            }
            None => counts.other += 1,
        }
    }
    let lost = socket.statistics()?.dropped;
    counts.lock().unwrap_or_else(PoisonError::into_inner).lost = lost;
    Ok(())
}

/// The masked source address of a frame; `None` when it is not IP.
pub fn source(frame: &[u8]) -> Option<IpAddr> {
    End::Source.address(frame)
}

fn address(frame: &[u8], end: End) -> Option<IpAddr> {
    let mut at = 12;
    let mut ethertype = be16(frame, at)?;
    while matches!(ethertype, TAG_CUSTOMER | TAG_SERVICE) {
        at += 4;
        ethertype = be16(frame, at)?;
    }
    let packet = frame.get(at + 2..)?;
    match ethertype {
        ETHERTYPE_IPV4 => {
            let at = if end == End::Source { 12 } else { 16 };
            let octets: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        ETHERTYPE_IPV6 => {
            let at = if end == End::Source { 8 } else { 24 };
            let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
            Some(masked(Ipv6Addr::from(octets).into()))
        }
        _ => None,
    }
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Frame;

    #[test]
    fn finds_the_source_behind_tags() {
        let frame = Frame::ipv4([192, 0, 2, 9], [192, 0, 2, 254]);
        let expected = Some(IpAddr::from([192, 0, 2, 9]));
        assert_eq!(source(&frame.build()), expected);
        assert_eq!(source(&frame.clone().vlan(1).tag(TAG_SERVICE, 2).build()), expected);
    }

    #[test]
    fn cuts_ipv6_to_the_prefix() {
        let address: Ipv6Addr = "2001:db8:1:2:3:4:5:6".parse().expect("valid");
        let frame = Frame::ipv6(address.octets(), address.octets()).build();
        assert_eq!(source(&frame), Some("2001:db8:1:2::".parse().expect("valid")));
    }

    #[test]
    fn other_frames_have_no_source() {
        let mut frame = Frame::ipv4([192, 0, 2, 9], [192, 0, 2, 254]).build();
        assert_eq!(source(&frame[..20]), None);
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(source(&frame), None);
    }

    #[test]
    fn a_lost_frame_makes_it_invalid() {
        assert!(Counts { lost: 1, ..Counts::default() }.check_clean().is_err());
        assert!(Counts::default().check_clean().is_ok());
    }
}
