//! Requests under way on a connection: whether their bodies have arrived, and how much memory they
//! hold. Both decide which connection is ended if there is no room.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Memory of the requests under way on one thread.
pub(crate) const MEMORY: usize = 32 << 20;

/// What a request counts for besides its head and its body.
const OF_REQUEST: usize = 4 << 10;

/// How many times as long a connection that completed no request seems quiet, and one whose client
/// holds a body back: so a client that begins much and ends nothing goes first.
const SILENT: u32 = 10;
const UNFINISHED: u32 = 50;

/// Memory of the requests under way on a thread.
#[derive(Debug)]
pub(crate) struct Memory {
    most: usize,
    used: AtomicUsize,
    /// Notified when there is too much.
    pub(crate) crowded: Notify,
}

impl Memory {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, used: AtomicUsize::new(0), crowded: Notify::new() })
    }

    fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if self.is_crowded() {
            self.crowded.notify_one();
        }
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.used() > self.most
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// What a connection does that has no requests of hyper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It waits for its client.
    Waiting,
    /// A command has arrived in part.
    Receiving,
    /// It answers commands.
    Answering,
}

#[derive(Debug)]
pub(crate) struct Activity {
    memory: Arc<Memory>,
    state: Mutex<Progress>,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts, one by one")]
struct Progress {
    /// Requests that are being answered: all of their bytes have arrived.
    answering: usize,
    /// Requests whose bodies have not arrived.
    unfinished: usize,
    /// Since when there was always one of these.
    begun: Instant,
    /// End of the last request that was answered, the last report of a stream, or the connection's
    /// begin.
    since: Instant,
    ended: Instant,
    /// Whether there was a request, and whether one was answered.
    asked: bool,
    served: bool,
    /// True if the request came over HTTP/2.
    http2: bool,
    bytes: usize,
    /// True if its bytes no longer count, because it is being ended.
    is_cut: bool,
}

impl Activity {
    pub(crate) fn new(memory: &Arc<Memory>) -> Arc<Self> {
        let now = Instant::now();
        let state = Progress {
            answering: 0,
            unfinished: 0,
            begun: now,
            since: now,
            ended: now,
            asked: false,
            served: false,
            http2: false,
            bytes: 0,
            is_cut: false,
        };
        Arc::new(Self { memory: Arc::clone(memory), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a connection without requests of hyper does, and the bytes that it holds.
    pub(crate) fn does(&self, doing: Doing, held: usize) {
        let mut state = self.state();
        let now = Instant::now();
        if state.answering > 0 {
            (state.ended, state.since, state.served) = (now, now, true);
        }
        if state.unfinished == 0 {
            state.begun = now;
        }
        state.asked |= doing == Doing::Answering;
        state.answering = usize::from(doing == Doing::Answering);
        state.unfinished = usize::from(doing == Doing::Receiving);
        let before = state.bytes;
        self.give(&mut state, before);
        self.take(&mut state, held);
    }

    /// Whether there was a request, and whether it came over HTTP/2.
    pub(crate) fn asked(&self) -> (bool, bool) {
        let state = self.state();
        (state.asked, state.http2)
    }

    /// True if there is a request under way, or was one so short a time ago.
    pub(crate) fn is_busy(&self, within: Duration) -> bool {
        let state = self.state();
        state.answering + state.unfinished > 0 || state.ended.elapsed() < within
    }

    /// How long the connection seems to have been quiet; none while it waits for an answer.
    pub(crate) fn quiet(&self) -> Option<Duration> {
        let state = self.state();
        if state.answering > 0 {
            return None;
        }
        Some(match (state.unfinished, state.served) {
            (1.., _) => state.since.max(state.begun).elapsed() * UNFINISHED,
            (0, false) => state.since.elapsed() * SILENT,
            (0, true) => state.since.elapsed(),
        })
    }

    /// What the connection holds that is not being answered, times how long it has.
    pub(crate) fn held(&self) -> Option<u128> {
        let state = self.state();
        let since = if state.unfinished > 0 { state.begun } else { state.since };
        let is_idle = state.bytes == 0 || state.answering > 0 && state.unfinished == 0;
        (!is_idle).then(|| state.bytes as u128 * (1 + since.elapsed().as_micros()))
    }

    /// Stops counting what the connection holds, because it is ended.
    pub(crate) fn cut(&self) {
        let mut state = self.state();
        state.is_cut = true;
        self.memory.give(std::mem::take(&mut state.bytes));
    }

    fn take(&self, state: &mut Progress, bytes: usize) {
        if !state.is_cut {
            state.bytes += bytes;
            self.memory.take(bytes);
        }
    }

    fn give(&self, state: &mut Progress, bytes: usize) {
        if !state.is_cut {
            state.bytes -= bytes;
            self.memory.give(bytes);
        }
    }
}

/// A request under way, shared by its answer and its body.
#[derive(Debug)]
struct Shared {
    of: Arc<Activity>,
    /// How far it is, changed under the lock of the connection's state.
    phase: Mutex<(Phase, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Unfinished,
    Whole,
    /// Its answer has begun.
    Ended,
}

impl Shared {
    /// Changes the request and its connection together.
    fn with<T>(&self, change: impl FnOnce(&mut Progress, &mut (Phase, usize)) -> T) -> T {
        let mut state = self.of.state();
        let mut own = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state, &mut own)
    }

    fn whole(&self) {
        self.with(|state, (phase, _)| {
            if *phase == Phase::Unfinished {
                *phase = Phase::Whole;
                state.unfinished -= 1;
                state.answering += 1;
            }
        });
    }

    fn received(&self, bytes: usize) {
        self.with(|state, (_, held)| {
            *held += bytes;
            self.of.take(state, bytes);
        });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.with(|state, (_, held)| self.of.give(state, std::mem::take(held)));
    }
}

/// A stream of reports, which goes on after its answer has begun.
#[derive(Clone, Debug)]
pub(crate) struct Reports(Arc<Shared>);

impl Reports {
    /// Notes that a whole report arrived: the client is active, and what it sent was read.
    pub(crate) fn came(&self) {
        self.0.with(|state, (_, held)| {
            state.served = true;
            state.since = Instant::now();
            self.0.of.give(state, std::mem::take(held));
        });
    }
}

/// Counts a request as under way until its answer begins.
pub(crate) struct UnderWay {
    shared: Arc<Shared>,
    is_answered: bool,
}

impl UnderWay {
    /// The request, whose body is counted from here on.
    pub(crate) fn new(
        of: &Arc<Activity>,
        request: Request<Incoming>,
        http2: bool,
    ) -> (Self, Request<Received>) {
        let phase = Mutex::new((Phase::Unfinished, 0));
        let shared = Arc::new(Shared { of: Arc::clone(of), phase });
        let is_whole = request.body().is_end_stream();
        let headers = request.headers().iter();
        let head: usize = headers.map(|(name, value)| name.as_str().len() + value.len()).sum();
        {
            let mut state = of.state();
            (state.asked, state.http2) = (true, http2);
            if state.unfinished == 0 {
                state.begun = Instant::now();
            }
            state.unfinished += 1;
        }
        shared.received(OF_REQUEST + head);
        if is_whole {
            shared.whole();
        }
        let mut request = request.map(|inner| Received { inner, shared: Arc::clone(&shared) });
        request.extensions_mut().insert(Reports(Arc::clone(&shared)));
        (Self { shared, is_answered: false }, request)
    }

    /// Notes that the answer is there; `served` if it answers the question.
    pub(crate) fn answered(mut self, served: bool) {
        self.is_answered = served;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.with(|state, (phase, _)| {
            state.ended = Instant::now();
            let is_whole = *phase == Phase::Whole;
            if is_whole {
                state.answering -= 1;
            } else {
                state.unfinished -= 1;
            }
            *phase = Phase::Ended;
            if is_whole || self.is_answered {
                (state.since, state.served) = (state.ended, true);
            }
        });
    }
}

/// The body of a request, whose bytes are counted.
pub(crate) struct Received {
    inner: Incoming,
    shared: Arc<Shared>,
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.shared.received(frame.data_ref().map_or(0, Bytes::len));
        }
        if frame.is_none() || self.inner.is_end_stream() {
            self.shared.whole();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
