//! Sends a load, and stops by itself.

use std::net::IpAddr;
use std::os::unix::thread::JoinHandleExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Once};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::net::netdevice::name_to_index;
use signal_hook::consts::SIGUSR1;

use super::program::{self, GROUPS, Live, Program, Progress};
use super::sources::{Family, Sources};
use crate::netns::Netns;
use crate::packet::Frame;
use crate::veth::RECEIVER;
use crate::{clock, cpu};

/// Frames that the kernel makes and sends at a time: enough to be fast, and little for the other
/// end's queue of 256.
const BATCH: u32 = 64;

/// How often the watcher looks whether all is sent, and tries to interrupt.
const LOOK: Duration = Duration::from_millis(5);

/// Ethernet, IPv4 and UDP headers.
const HEADERS_V4: usize = 42;

/// Ethernet, IPv6 and UDP headers.
const HEADERS_V6: usize = 62;

/// A load: UDP to the receiving end of the cable.
#[derive(Clone, Debug)]
pub struct Load {
    /// From whom.
    pub sources: Sources,
    /// Version of IP.
    pub family: Family,
    /// Length of the frames from the Ethernet header, without frame check sequence: at least the
    /// headers.
    pub length: usize,
    /// Frames a second; as fast as possible without.
    pub per_second: Option<u32>,
    /// Frames at most, without those of regular sources.
    pub frames: u64,
    /// For how long at most.
    pub duration: Duration,
    /// Sources that send a little all the time, amid the rest and until the end. At most four
    /// groups.
    pub regular: Vec<Regular>,
    /// CPU and urgency of the sending thread; without, those of the thread that starts it.
    pub place: Option<Place>,
}

/// A group of sources that send in turn, evenly spaced. With IPv4 the first 8 bytes of the payload,
/// if it has as many, are the nanoseconds of `CLOCK_MONOTONIC` at which the frame was made, in the
/// machine's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regular {
    /// The first one's IPv4 address, or bits 32 to 63 of its IPv6 address. Each next one is 256
    /// further.
    pub first: u32,
    /// How many there are.
    pub count: u32,
    /// Frames a second of all together.
    pub per_second: u32,
}

/// CPU and urgency of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// On which CPU.
    pub cpu: usize,
    /// With which real-time priority. The thread that starts it should have a higher one, or
    /// stopping waits for the end of a time slice.
    pub priority: i32,
}

/// Counts of what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Frames handed to the interface, without those of regular sources. Those that the other end's
    /// queue had no room for are among them; the interface counts those as dropped.
    pub frames: u64,
    /// Frames handed over for each group of regular sources.
    pub regular: [u64; GROUPS],
    /// Nanoseconds that it took.
    pub nanos: u64,
}

/// A generator at work. Dropping it stops it.
pub struct LiveFrames {
    progress: Arc<Progress>,
    stop: Option<mpsc::Sender<()>>,
    watcher: Option<JoinHandle<Result<Sent>>>,
}

impl LiveFrames {
    /// Starts sending on `interface` inside `netns`.
    ///
    /// # Errors
    ///
    /// When the load is impossible or the program cannot be loaded. What fails later is reported by
    /// [`LiveFrames::finish`].
    pub fn start(netns: &Arc<Netns>, interface: &str, load: &Load) -> Result<Self> {
        interruptible()?;
        let frame = template(load)?;
        let interface = netns.enter(|| index_of(interface))??;
        let Load { sources, family, frames, per_second, duration, place, .. } = *load;
        let regular = load.regular.as_slice();
        if let Sources::New(first) = sources {
            let last = u64::from(first).checked_add(frames).context("too many frames")?;
            ensure!(last <= family.sources(), "only {} sources are new", family.sources());
        }
        if let Sources::Again { first, block, times } = sources {
            ensure!(block > 0 && times > 0, "no block of sources, or no packet of each");
            let rounds = frames.div_ceil(u64::from(block) * u64::from(times));
            let last = rounds.checked_mul(block.into()).context("too many frames")?;
            let last = last.checked_add(first.into()).context("too many frames")?;
            ensure!(last <= family.sources(), "only {} sources are new", family.sources());
        }
        if let Sources::Zipf(octaves) = sources {
            ensure!((1..=28).contains(&octaves), "1 to 28 octaves, not {octaves}");
        }
        let out = (interface, sum(&frame, family));
        let live = Live::new((sources, family), (frames, per_second), regular, out)?;
        let endless = !regular.is_empty();
        let (program, progress) = Program::load(&live)?;
        let progress = Arc::new(progress);
        let over = Arc::new(AtomicBool::new(false));
        let worker = {
            let (netns, over) = (Arc::clone(netns), Arc::clone(&over));
            thread::Builder::new().name("live-frames".into()).spawn(move || {
                netns.move_in()?;
                if let Some(Place { cpu, priority }) = place {
                    cpu::pin(None, cpu)?;
                    cpu::real_time(None, priority)?;
                }
                send(&program, &frame, &over)
            })?
        };
        let (stop, stopped) = mpsc::channel();
        let watcher = {
            let progress = Arc::clone(&progress);
            thread::Builder::new().name("live-watcher".into()).spawn(move || {
                let started = clock::now();
                let end = started + u64::try_from(duration.as_nanos())?;
                while clock::now() < end && !worker.is_finished() {
                    match stopped.recv_timeout(LOOK) {
                        // All else ends it, an error as well: the worker must not go on.
                        Err(RecvTimeoutError::Timeout)
                            if endless || progress.read().is_ok_and(|live| live.sent < frames) => {}
                        _ => break,
                    }
                }
                over.store(true, Ordering::Relaxed);
                interrupt(worker)?;
                let nanos = clock::now() - started;
                let live = progress.read()?;
                Ok(Sent { frames: live.sent, regular: live.groups.map(|group| group.sent), nanos })
            })?
        };
        Ok(Self { progress, stop: Some(stop), watcher: Some(watcher) })
    }

    /// Frames sent so far.
    ///
    /// # Errors
    ///
    /// When the kernel does not report it.
    pub fn sent(&self) -> Result<u64> {
        Ok(self.progress.read()?.sent)
    }

    /// True if all is sent.
    pub fn is_finished(&self) -> bool {
        self.watcher.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Makes it stop before its time.
    pub fn stop(&mut self) {
        self.stop = None;
    }

    /// Waits for the end; returns what was sent.
    ///
    /// # Errors
    ///
    /// When the kernel refused to send.
    pub fn finish(mut self) -> Result<Sent> {
        match self.watcher.take().map(JoinHandle::join) {
            Some(Ok(result)) => result.context("the generator of live frames"),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Err(anyhow!("the generator was already finished")),
        }
    }
}

impl Drop for LiveFrames {
    fn drop(&mut self) {
        self.stop();
        if let Some(Err(_)) = self.watcher.take().map(JoinHandle::join) {
            eprintln!("the generator of live frames panicked");
        }
    }
}

/// Sends until it is interrupted and over.
fn send(program: &Program, frame: &[u8], over: &AtomicBool) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        program.run(frame, BATCH)?;
    }
    Ok(())
}

/// Gives SIGUSR1 a handler that does nothing: it ends a system call, and not the process.
fn interruptible() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        result = signal_hook::flag::register(SIGUSR1, Arc::default()).map(|_| ());
    });
    result.context("cannot install a handler for SIGUSR1")
}

/// Interrupts the worker until it ends. A signal that comes before its system call does nothing.
fn interrupt(worker: JoinHandle<Result<()>>) -> Result<()> {
    while !worker.is_finished() {
        // SAFETY: the thread is not joined, so its handle is valid; SIGUSR1 has a handler.
        unsafe { libc::pthread_kill(worker.as_pthread_t(), SIGUSR1) };
        thread::sleep(LOOK / 5);
    }
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn index_of(interface: &str) -> Result<u32> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    name_to_index(&socket, interface)
        .with_context(|| format!("no interface {interface} in the sender's network namespace"))
}

/// The frame with zero where the program writes.
fn template(load: &Load) -> Result<Vec<u8>> {
    let headers = match load.family {
        Family::V4 => HEADERS_V4,
        Family::V6 => HEADERS_V6,
    };
    let payload = load.length.checked_sub(headers);
    let payload = payload.with_context(|| format!("a frame has at least {headers} bytes"))?;
    let frame = match (load.family, load.family.source(0)) {
        (Family::V6, IpAddr::V6(source)) => Frame::ipv6(source.octets(), RECEIVER.ipv6.octets()),
        _ => Frame::ipv4([0; 4], RECEIVER.ipv4.octets()),
    };
    let mut frame = frame.payload(&vec![0; payload]).build();
    let (_, checksum) = program::places(load.family);
    let mut zero = |at: usize| {
        frame.get_mut(at..at + 2).map(|bytes| bytes.fill(0)).context("a frame without headers")
    };
    zero(checksum)?;
    if load.family == Family::V4 {
        // UDP's, which would have to change with the source. Zero says that there is none.
        zero(HEADERS_V4 - 2)?;
    }
    Ok(frame)
}

/// The sum of the 16-bit words under the checksum that changes.
fn sum(frame: &[u8], family: Family) -> u32 {
    let words = |from: usize, to: usize| -> u32 {
        let bytes = frame.get(from..to).unwrap_or_default();
        bytes
            .chunks(2)
            .map(|pair| {
                let low = pair.get(1).copied().unwrap_or(0);
                u32::from(u16::from_be_bytes([pair.first().copied().unwrap_or(0), low]))
            })
            .sum()
    };
    match family {
        Family::V4 => words(14, 34),
        // The pseudo header has the addresses, UDP's length and its protocol number.
        Family::V6 => words(22, frame.len()) + words(58, 60) + 17,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(family: Family, length: usize) -> Load {
        Load {
            sources: Sources::One,
            family,
            length,
            per_second: None,
            frames: 1,
            duration: Duration::ZERO,
            regular: Vec::new(),
            place: None,
        }
    }

    #[test]
    fn a_template_has_the_length_asked_for() {
        for (family, least) in [(Family::V4, HEADERS_V4), (Family::V6, HEADERS_V6)] {
            for length in [least, least + 1, 1514] {
                assert_eq!(template(&load(family, length)).expect("possible").len(), length);
            }
            assert!(template(&load(family, least - 1)).is_err());
        }
    }
}
