//! Sends from many sources at the same time, and records when each frame was sent.
//!
//! One thread serves all sources by absolute times. It sleeps between them, so it leaves the other
//! CPU alone. After a stall it skips the missed slots: a source never catches up in a burst, so a
//! conforming source stays conforming. Every stream has its first slot, and a slot that has begun
//! is sent to its end, however late the machine is: the frames that a test sends at once do not
//! depend on the time this takes.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::thread::set_current_timer_slack;

use crate::clock;
use crate::netns::Netns;
use crate::packet_socket::{NoRoom, PacketSocket};

const NANOS_PER_SECOND: f64 = 1e9;

/// Frames of one source that go out before the others get their turn.
const TURN: u32 = 16;

/// A flood sends this many trains a second: the timer need not be finer than that.
const TRAINS_PER_SECOND: u32 = 1000;

/// The sender looks at its stop flag at least this often.
const LONGEST_SLEEP: u64 = 20_000_000;

/// When a stream sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// One frame at a time, evenly spaced.
    Paced {
        /// Frames a second, above zero.
        per_second: f64,
    },
    /// A number of frames back to back, again and again.
    Burst {
        /// Frames in each burst.
        frames: u32,
        /// Time from the start of one burst to the next.
        every: Duration,
    },
    /// As fast as the machine can, up to a cap, in trains of a millisecond.
    Flood {
        /// Frames a second at most, at least 1000.
        per_second: u32,
    },
}

impl Pattern {
    /// Frames in a slot, and the time from slot to slot in nanoseconds.
    fn slot(self) -> Result<(u32, u64)> {
        let (frames, period) = match self {
            Self::Paced { per_second } => (1, Duration::from_secs_f64(1.0 / per_second)),
            Self::Burst { frames, every } => (frames, every),
            Self::Flood { per_second } => {
                (per_second / TRAINS_PER_SECOND, Duration::from_secs(1) / TRAINS_PER_SECOND)
            }
        };
        let period = u64::try_from(period.as_nanos())?;
        ensure!(frames > 0 && period > 0, "{self:?} sends nothing");
        Ok((frames, period))
    }

    /// The average that the pattern aims at, in frames a second.
    pub fn per_second(self) -> f64 {
        match self {
            Self::Paced { per_second } => per_second,
            Self::Burst { frames, every } => f64::from(frames) / every.as_secs_f64(),
            Self::Flood { per_second } => f64::from(per_second),
        }
    }
}

/// A load: the frames in turn, one for each source address, again and again.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Finished frames.
    pub frames: Vec<Vec<u8>>,
    /// Times at which the frames are sent.
    pub pattern: Pattern,
}

/// Record of what a stream sent.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// `CLOCK_MONOTONIC` in nanoseconds just before each frame was handed over, ascending. The
    /// frame at index `n` was number `n` modulo the number of frames in the stream.
    pub times: Vec<u64>,
    /// Frames that the device refused; they are not in `times`, and the next frame sent is the same
    /// one.
    pub refused: u64,
    /// Slots that passed without a frame because the machine was late.
    pub skipped: u64,
    /// True if recording, and with it sending, stopped at the bound.
    pub truncated: bool,
}

impl Recording {
    /// The times at which frame number `index` of `frames` was sent.
    pub fn times_of(&self, index: usize, frames: usize) -> impl Iterator<Item = u64> + '_ {
        self.times.iter().skip(index).step_by(frames.max(1)).copied()
    }
}

/// A running generator. Dropping it stops it.
#[derive(Debug)]
pub struct Generator {
    stop: Arc<AtomicBool>,
    recordings: Arc<Vec<Mutex<Recording>>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Generator {
    /// Starts sending `streams` on `interface` inside `netns` for `duration`, at most `bound`
    /// frames for each stream.
    ///
    /// # Errors
    ///
    /// When a stream is empty or its pattern sends nothing. What fails later is reported by
    /// [`Generator::finish`].
    pub fn start(
        netns: &Arc<Netns>,
        interface: &'static str,
        streams: Vec<Stream>,
        duration: Duration,
        bound: usize,
    ) -> Result<Self> {
        Self::start_with(netns, interface, streams, duration, bound, NoRoom::Refused)
    }

    /// As [`Generator::start`], where `ENOBUFS` may mean that a frame was dropped at tc.
    ///
    /// # Errors
    ///
    /// As [`Generator::start`].
    pub fn start_with(
        netns: &Arc<Netns>,
        interface: &'static str,
        streams: Vec<Stream>,
        duration: Duration,
        bound: usize,
        no_room: NoRoom,
    ) -> Result<Self> {
        let mut queues = Vec::new();
        for stream in streams {
            ensure!(!stream.frames.is_empty(), "a stream without frames sends nothing");
            queues.push(Queue::new(stream)?);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let recordings: Arc<Vec<Mutex<Recording>>> =
            Arc::new(queues.iter().map(|_| Mutex::default()).collect());
        let thread = {
            let (netns, stop) = (Arc::clone(netns), Arc::clone(&stop));
            let recordings = Arc::clone(&recordings);
            thread::Builder::new().name("generator".into()).spawn(move || {
                netns.move_in()?;
                let socket = PacketSocket::sender(interface)?;
                // The default of 50 us would shift every slot.
                set_current_timer_slack(NonZeroU64::new(1))
                    .context("cannot set the timer slack")?;
                send((&socket, no_room), queues, duration, bound, &stop, &recordings)
            })?
        };
        Ok(Self { stop, recordings, thread: Some(thread) })
    }

    /// The times recorded for a stream after the first `skip`: those new since the last look.
    pub fn times_after(&self, stream: usize, skip: usize) -> Vec<u64> {
        self.recordings
            .get(stream)
            .and_then(|recording| lock(recording).times.get(skip..).map(<[u64]>::to_vec))
            .unwrap_or_default()
    }

    /// Returns true if all frames are sent.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the generator before its time.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end; returns what was sent, by stream.
    ///
    /// # Errors
    ///
    /// When the socket could not be opened or a frame could not be sent for another reason than a
    /// full queue.
    pub fn finish(mut self) -> Result<Vec<Recording>> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result.context("the generator")?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => return Err(anyhow!("the generator was already finished")),
        }
        Ok(self.recordings.iter().map(|recording| std::mem::take(&mut *lock(recording))).collect())
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.stop();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the generator panicked");
        }
    }
}

/// A stream and its position.
struct Queue {
    frames: Vec<Vec<u8>>,
    per_slot: u32,
    period: u64,
    /// Frames of the present slot that are still to be sent.
    pending: u32,
    /// When the next slot starts.
    next: u64,
    /// True once the first slot was opened.
    has_begun: bool,
}

impl Queue {
    fn new(stream: Stream) -> Result<Self> {
        let (per_slot, period) = stream.pattern.slot()?;
        Ok(Self { frames: stream.frames, per_slot, period, pending: 0, next: 0, has_begun: false })
    }

    /// Opens the slot that contains `now`, unless it is open; returns the number of slots lost
    /// before it.
    fn advance(&mut self, now: u64) -> u64 {
        if now < self.next {
            return 0;
        }
        let missed = (now - self.next) / self.period;
        self.next += (missed + 1) * self.period;
        self.pending = self.per_slot;
        self.has_begun = true;
        missed
    }

    /// Returns true if a slot has begun and all its frames are sent.
    fn is_done(&self) -> bool {
        self.has_begun && self.pending == 0
    }

    /// Sends the frames of up to one turn.
    fn take_turn(
        &mut self,
        (socket, no_room): (&PacketSocket, NoRoom),
        bound: usize,
        recording: &mut Recording,
    ) -> Result<()> {
        for _ in 0..TURN.min(self.pending) {
            if recording.times.len() >= bound {
                recording.truncated = true;
                self.pending = 0;
                return Ok(());
            }
            let frame = &self.frames[recording.times.len() % self.frames.len()];
            let time = clock::now();
            self.pending -= 1;
            match socket.send(frame) {
                Ok(()) => recording.times.push(time),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => match no_room {
                    NoRoom::Refused => recording.refused += 1,
                    NoRoom::Dropped => recording.times.push(time),
                },
                Err(error) => return Err(error).context("cannot send a frame"),
            }
        }
        Ok(())
    }
}

fn lock(recording: &Mutex<Recording>) -> MutexGuard<'_, Recording> {
    recording.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(
    socket: (&PacketSocket, NoRoom),
    mut queues: Vec<Queue>,
    duration: Duration,
    bound: usize,
    stop: &AtomicBool,
    recordings: &[Mutex<Recording>],
) -> Result<()> {
    let start = clock::now();
    let end = start + u64::try_from(duration.as_nanos())?;
    for queue in &mut queues {
        queue.next = start;
    }
    while !stop.load(Ordering::Relaxed) {
        let now = clock::now();
        let is_over = now >= end;
        if is_over && queues.iter().all(Queue::is_done) {
            break;
        }
        let mut wake = end.min(now + LONGEST_SLEEP);
        for (queue, recording) in queues.iter_mut().zip(recordings) {
            let mut recording = lock(recording);
            if !is_over || !queue.has_begun {
                // The time is read again: the queues before this one took a while.
                recording.skipped += queue.advance(clock::now());
            }
            queue.take_turn(socket, bound, &mut recording)?;
            wake = wake.min(if queue.is_done() { queue.next } else { 0 });
        }
        if wake > clock::now() {
            clock::sleep_until(wake);
        }
    }
    Ok(())
}

/// Rate of `count` frames in `nanos` nanoseconds, in frames a second.
#[expect(clippy::cast_precision_loss, reason = "counts are far under 2^52")]
pub fn rate(count: u64, nanos: u64) -> f64 {
    if nanos == 0 { 0.0 } else { count as f64 * NANOS_PER_SECOND / nanos as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(pattern: Pattern) -> Queue {
        Queue::new(Stream { frames: vec![vec![0]], pattern }).expect("valid")
    }

    #[test]
    fn a_stall_skips_slots_and_adds_no_burst() {
        let mut queue = queue(Pattern::Paced { per_second: 1000.0 });
        queue.next = 0;
        assert_eq!(queue.advance(0), 0);
        assert_eq!((queue.pending, queue.next), (1, 1_000_000));
        // Ten slots late: one frame is due, not eleven.
        assert_eq!(queue.advance(11_500_000), 10);
        assert_eq!((queue.pending, queue.next), (1, 12_000_000));
        // A slot is not opened twice.
        queue.pending = 0;
        assert_eq!(queue.advance(11_999_999), 0);
        assert_eq!(queue.pending, 0);
    }

    #[test]
    fn a_slot_is_due_until_all_of_it_is_sent() {
        let mut queue = queue(Pattern::Burst { frames: 20, every: Duration::from_secs(10) });
        queue.next = 0;
        assert!(!queue.is_done(), "its first slot is due, however late it is");
        // Three seconds late, as on a busy machine.
        assert_eq!(queue.advance(3_000_000_000), 0);
        assert_eq!((queue.pending, queue.is_done()), (20, false));
        queue.pending = 4;
        assert!(!queue.is_done());
        queue.pending = 0;
        assert!(queue.is_done());
    }

    #[test]
    fn a_flood_is_cut_into_trains() {
        assert_eq!(Pattern::Flood { per_second: 50_000 }.slot().expect("valid"), (50, 1_000_000));
        assert!(Pattern::Flood { per_second: 999 }.slot().is_err());
    }

    #[test]
    fn times_are_distinguished_by_frame() {
        let recording = Recording { times: (0..7).collect(), ..Recording::default() };
        assert_eq!(recording.times_of(1, 3).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(recording.times_of(0, 3).collect::<Vec<_>>(), [0, 3, 6]);
    }
}
