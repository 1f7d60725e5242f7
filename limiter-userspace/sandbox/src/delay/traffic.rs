//! Sends datagrams and TCP streams between two namespaces and records when they arrive.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::clock;
use crate::interrupt::Interrupt;
use crate::netns::Netns;
use crate::packet_socket::receive_buffer;
use crate::requests::bounds::Asked;

/// Bytes of a receiver's buffer.
const BUFFER: i32 = 8 << 20;

/// Longer than any packet waits; a receiver that hears nothing for this long has received all.
const SILENCE: Duration = Duration::from_secs(3);

/// Datagrams of one sender to one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Times just before and just after the call that sent each datagram.
    pub times: Vec<Asked>,
    /// Number and time of each arrival, in nanoseconds of [`clock::now`], in the order of arrival.
    pub arrivals: Vec<(usize, u64)>,
}

/// Number of datagrams sent at once, and the time from one group to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Datagrams sent without a pause.
    pub each: u32,
    /// Time from the first datagram of a group to the first of the next.
    pub every: Duration,
}

/// Sends numbered datagrams to an address for a while, and waits until no more arrive.
///
/// # Errors
///
/// When a socket cannot send or receive.
pub fn datagrams(
    [from, to]: [&Netns; 2],
    target: SocketAddr,
    pace: Pace,
    duration: Duration,
    interrupt: &Interrupt,
) -> Result<Sent> {
    let socket = from.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
    collect(to, target, pace, duration, interrupt, |number| {
        // On some kernels, a datagram dropped on its way out makes the call fail.
        drop(socket.send_to(number, target));
        Ok(())
    })
}

/// As [`datagrams`], but `send` sends each datagram and gets its number.
///
/// # Errors
///
/// As [`datagrams`], and those of `send`.
pub fn collect(
    to: &Netns,
    target: SocketAddr,
    pace: Pace,
    duration: Duration,
    interrupt: &Interrupt,
    mut send: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<Sent> {
    let at = to.enter(|| UdpSocket::bind(target))?.with_context(|| target.to_string())?;
    receive_buffer(&at, BUFFER)?;
    at.set_read_timeout(Some(SILENCE))?;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| arrivals(&at));
        let mut times = Vec::new();
        let every = u64::try_from(pace.every.as_nanos())?;
        let mut turn = clock::now();
        let end = turn + u64::try_from(duration.as_nanos())?;
        while turn < end && !interrupt.is_set() {
            clock::sleep_until(turn);
            for _ in 0..pace.each {
                let number = u64::try_from(times.len())?.to_be_bytes();
                let before = clock::now();
                send(&number)?;
                times.push(Asked { sent: before, answered: clock::now() });
            }
            // A busy machine leaves turns out: no sender exceeds its pace.
            turn = (turn + every).max(clock::now());
        }
        let arrivals = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Sent { times, arrivals })
    })
}

/// Numbers and times of the arrivals, until no more come.
fn arrivals(at: &UdpSocket) -> Result<Vec<(usize, u64)>> {
    let mut arrivals = Vec::new();
    let mut number = [0; 8];
    loop {
        match at.recv(&mut number) {
            Ok(_) => {
                let now = clock::now();
                arrivals.push((usize::try_from(u64::from_be_bytes(number))?, now));
            }
            Err(error) if is_timeout(&error) => return Ok(arrivals),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Bytes of one TCP stream that arrive in `duration` and the time that they took, after a first
/// part in which bytes are not counted.
///
/// # Errors
///
/// When there is no connection, or it ends early.
pub fn stream(
    [from, to]: [&Netns; 2],
    target: SocketAddr,
    first: Duration,
    duration: Duration,
) -> Result<(u64, Duration)> {
    let listener = to.enter(|| TcpListener::bind(target))?.with_context(|| target.to_string())?;
    let mut sending = from.enter(|| TcpStream::connect(target))??;
    let (mut at, _) = listener.accept()?;
    let sender = thread::spawn(move || {
        // Sends until the other end is closed.
        while sending.write_all(&[0; 16 << 10]).is_ok() {}
    });
    // A stream that starves still ends.
    at.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut buffer = vec![0; 256 << 10];
    let mut count = |until: Instant| -> Result<u64> {
        let mut bytes = 0;
        while Instant::now() < until {
            match at.read(&mut buffer) {
                Ok(read) => bytes += u64::try_from(read)?,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    };
    count(Instant::now() + first)?;
    let begun = Instant::now();
    let bytes = count(begun + duration)?;
    let lasted = begun.elapsed();
    drop(at);
    sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok((bytes, lasted))
}

fn is_timeout(error: &std::io::Error) -> bool {
    [ErrorKind::TimedOut, ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind())
}
