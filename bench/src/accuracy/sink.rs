//! A UDP socket behind every rule: it knows which numbered frames came through.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context as _, Result, anyhow, ensure};
use limiter_tests::netns::Netns;
use limiter_tests::veth::RECEIVER;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, Protocol, Socket, Type};

use super::pacer::{self, UNCOUNTED};

/// Room for some 80,000 small packets.
const BUFFER: usize = 64 << 20;

const TIMEOUT: Duration = Duration::from_millis(50);

/// The port that the frames of [`limiter_tests::packet`] go to by default.
pub const PORT: u16 = 9;

/// A sink at work. Dropping it stops it.
#[derive(Debug)]
pub struct Sink {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<u64>>>>,
}

impl Sink {
    /// Opens the socket inside `netns`; it counts already at return.
    ///
    /// # Errors
    ///
    /// When the socket cannot be opened.
    pub fn start(netns: &Arc<Netns>) -> Result<Self> {
        let socket = netns.enter(open)??;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (netns, stop) = (Arc::clone(netns), Arc::clone(&stop));
            thread::Builder::new().name("sink".into()).spawn(move || {
                netns.move_in()?;
                pacer::hurry()?;
                collect(&socket, &stop)
            })?
        };
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Takes what is still queued; returns the numbers of all frames that came through, ascending.
    ///
    /// # Errors
    ///
    /// When receiving failed, or packets were lost behind the rule because the socket was full.
    pub fn finish(mut self) -> Result<Vec<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result.context("the sink"),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Err(anyhow!("the sink was already finished")),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the sink panicked");
        }
    }
}

fn open() -> Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    set_socket_recv_buffer_size_force(&socket, BUFFER)
        .context("cannot enlarge the sink's buffer: run as root")?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let address = SocketAddrV4::new(RECEIVER.ipv4, PORT);
    socket.bind(&address.into()).with_context(|| format!("cannot bind to {address}"))?;
    Ok(socket)
}

fn collect(socket: &Socket, stop: &AtomicBool) -> Result<Vec<u64>> {
    let before = overflowed()?;
    let mut numbers = Vec::new();
    let mut payload = [0; 8];
    loop {
        match io::Read::read(&mut &*socket, &mut payload) {
            Ok(length) => {
                let number = payload.get(..length).and_then(pacer::number);
                let number = number.context("a packet without a number arrived")?;
                if number != UNCOUNTED {
                    numbers.push(number);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
    let lost = overflowed()? - before;
    ensure!(lost == 0, "{lost} packets were lost behind the rule: the machine is too busy");
    numbers.sort_unstable();
    ensure!(numbers.is_sorted_by(|a, b| a < b), "a frame arrived twice");
    Ok(numbers)
}

/// UDP packets that a full socket or a wrong checksum cost in this thread's namespace.
fn overflowed() -> Result<u64> {
    const PATH: &str = "/proc/thread-self/net/snmp";
    let text = fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = lines.next().zip(lines.next()).context("no UDP counters")?;
    let mut errors = names
        .split_whitespace()
        .zip(values.split_whitespace())
        .filter(|(name, _)| *name == "InErrors")
        .map(|(_, value)| value.parse());
    Ok(errors.next().context("no UDP error counter")??)
}
