//! One source that sends from many ports, and a counter of the packets that arrive. Each packet
//! carries the time at which it was sent.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::thread::set_current_timer_slack;

use super::bound::Packet;
use crate::clock;
use crate::netns::Netns;

/// Source of all packets.
pub const SOURCE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// The network it is in.
pub const NETWORK: &str = "198.51.100.0/24";

/// Destination of all packets.
pub const TARGET: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// Port of the discard service (RFC 863).
const DISCARD: u16 = 9;

/// Ports that the source sends from: enough that each way gets some of them.
const PORTS: usize = 96;

/// Room for some 80,000 packets.
const BUFFER: usize = 64 << 20;

/// Pause between two looks at the packets that are due.
const STEP: u64 = 1_000_000;

/// Delay after which due packets are left out: the source does not catch up after a stall of the
/// machine, so a source within its limit stays within it.
const STALL: u64 = 10_000_000;

const TIMEOUT: Duration = Duration::from_millis(50);

/// A running source. Dropping it stops it.
#[derive(Debug)]
pub struct Source {
    stop: Arc<AtomicBool>,
    rate: Arc<AtomicU64>,
    sent: Arc<Mutex<Vec<u64>>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Source {
    /// Starts a source in a namespace that has [`SOURCE`]; it sends nothing yet.
    ///
    /// # Errors
    ///
    /// When its sockets cannot be opened.
    pub fn start(netns: &Netns) -> Result<Self> {
        let open = || (0..PORTS).map(|_| UdpSocket::bind((SOURCE, 0))).collect::<io::Result<_>>();
        let sockets: Vec<UdpSocket> = netns.enter(open)?.context("the sockets of the source")?;
        let (stop, rate) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let sent = Arc::new(Mutex::new(Vec::new()));
        let thread = {
            let (stop, rate, sent) = (Arc::clone(&stop), Arc::clone(&rate), Arc::clone(&sent));
            thread::Builder::new()
                .name("source".into())
                .spawn(move || send(&sockets, &stop, &rate, &sent))?
        };
        Ok(Self { stop, rate, sent, thread: Some(thread) })
    }

    /// Sends this many packets a second from now on.
    pub fn send(&self, per_second: u64) {
        self.rate.store(per_second, Ordering::Relaxed);
    }

    /// Packets sent so far.
    pub fn sent(&self) -> usize {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Stops the source; returns the time at which each packet was sent, ascending.
    ///
    /// # Errors
    ///
    /// When sending failed.
    pub fn finish(mut self) -> Result<Vec<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        join(self.thread.take()).context("the source")?;
        Ok(std::mem::take(&mut *self.sent.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Err(error) = join(self.thread.take()) {
            eprintln!("the source: {error:#}");
        }
    }
}

fn join(thread: Option<JoinHandle<Result<()>>>) -> Result<()> {
    match thread.map(JoinHandle::join) {
        None => Ok(()),
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(anyhow!("its thread panicked")),
    }
}

fn send(
    sockets: &[UdpSocket],
    stop: &AtomicBool,
    rate: &AtomicU64,
    sent: &Mutex<Vec<u64>>,
) -> Result<()> {
    set_current_timer_slack(NonZeroU64::new(1)).context("cannot set the timer's slack")?;
    let mut due = clock::now();
    for socket in sockets.iter().cycle() {
        let mut now = clock::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if rate.load(Ordering::Relaxed) > 0 && due <= now {
                break;
            }
            if due <= now {
                due = now;
            }
            clock::sleep_until(now + STEP);
            now = clock::now();
        }
        due = due.max(now.saturating_sub(STALL));
        due += 1_000_000_000 / rate.load(Ordering::Relaxed).max(1);
        let time = clock::now();
        match socket.send_to(&time.to_le_bytes(), (TARGET, DISCARD)) {
            Ok(_) => sent.lock().unwrap_or_else(PoisonError::into_inner).push(time),
            Err(error) => return Err(error).context("cannot send"),
        }
    }
    Ok(())
}

/// Counter of arriving packets. Dropping it stops it.
#[derive(Debug)]
pub struct Arrivals {
    stop: Arc<AtomicBool>,
    packets: Arc<Mutex<Vec<Packet>>>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Arrivals {
    /// Starts counting in a namespace that has [`TARGET`]. The counter is already active at return.
    ///
    /// # Errors
    ///
    /// When the socket cannot be opened.
    pub fn start(netns: &Arc<Netns>) -> Result<Self> {
        let (stop, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let packets = Arc::new(Mutex::new(Vec::new()));
        let (ready, is_ready) = mpsc::channel();
        let thread = {
            let (netns, stop, packets) =
                (Arc::clone(netns), Arc::clone(&stop), Arc::clone(&packets));
            let lost = Arc::clone(&lost);
            thread::Builder::new().name("arrivals".into()).spawn(move || {
                netns.move_in()?;
                let socket = UdpSocket::bind((TARGET, DISCARD))?;
                set_socket_recv_buffer_size_force(&socket, BUFFER)?;
                socket.set_read_timeout(Some(TIMEOUT))?;
                ready.send(()).context("nobody waits for the arrivals")?;
                receive(&socket, &stop, &packets)?;
                lost.store(receive_errors()?, Ordering::Relaxed);
                Ok(())
            })?
        };
        let mut arrivals = Self { stop, packets, lost, thread: Some(thread) };
        if is_ready.recv().is_err() {
            // The thread ended before it was ready; its error says why.
            join(arrivals.thread.take())?;
        }
        Ok(arrivals)
    }

    /// Packets that arrived so far.
    pub fn count(&self) -> usize {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Reads the packets still queued, stops, and returns the arrivals and the number of packets
    /// that found no room on the way to the counter: above zero the measurement is invalid.
    ///
    /// # Errors
    ///
    /// When receiving failed.
    pub fn finish(mut self) -> Result<(Vec<Packet>, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        join(self.thread.take()).context("the arrivals")?;
        let packets =
            std::mem::take(&mut *self.packets.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((packets, self.lost.load(Ordering::Relaxed)))
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Err(error) = join(self.thread.take()) {
            eprintln!("the arrivals: {error:#}");
        }
    }
}

/// Counts until the stop flag is set and nothing came for [`TIMEOUT`].
fn receive(socket: &UdpSocket, stop: &AtomicBool, packets: &Mutex<Vec<Packet>>) -> Result<()> {
    let mut time = [0; 8];
    loop {
        match socket.recv(&mut time) {
            Ok(8) => {
                let packet = Packet { sent: u64::from_le_bytes(time), arrived: clock::now() };
                packets.lock().unwrap_or_else(PoisonError::into_inner).push(packet);
            }
            Ok(length) => return Err(anyhow!("somebody else sends here: {length} bytes")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}

/// Packets for which the sockets of this thread's namespace had no room.
fn receive_errors() -> Result<u64> {
    let path = "/proc/thread-self/net/snmp";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut counts = names.split(' ').zip(values.split(' '));
    let (_, count) = counts
        .find(|(name, _)| *name == "RcvbufErrors")
        .with_context(|| format!("{path} has no RcvbufErrors"))?;
    Ok(count.parse()?)
}
