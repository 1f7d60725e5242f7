//! One program on several CPUs at the same time, by test-run: a thread and a walk for each.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use aya::programs::ProgramFd;
use limiter_tests::cpu;
use limiter_tests::netns::Netns;
use limiter_tests::walk::Order;

use crate::packets::cases::{FIRST, NEW};
use crate::packets::rig::Rig;

/// Packets of one system call: a few milliseconds, of which many fit into what ran at the same
/// time.
const CHUNK: u32 = 20_000;

/// Offset of the source address in the frame.
const OFFSET: u32 = 26;

/// The share of a thread's time in which all others must have run, too.
const TOGETHER: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Senders {
    /// Number of sources, which are the same on every CPU.
    Known(u32),
    /// Each packet is another one's, and no CPU has one of another's.
    New,
}

/// A CPU, its walk, and the next source that nobody has seen.
pub(super) struct Crew {
    rigs: Vec<Rig>,
    next_new: AtomicU32,
    /// Network namespace that the walks are attached in.
    _netns: Netns,
}

/// Work that was done on some CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// Packets a nanosecond of all of them.
    pub(super) rate: f64,
    /// Nanoseconds a packet on one of them, the mean.
    pub(super) nanos: f64,
    /// Packets sent, also while not all others did.
    pub(super) packets: u64,
}

/// A system call that came back.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    began: Instant,
    ended: Instant,
    /// A packet, as the kernel reports it: without the time that other threads took.
    nanos: f64,
}

impl Crew {
    /// One for each of so many CPUs.
    pub(super) fn load(cpus: usize) -> Result<Self> {
        let netns = Netns::create("bench-cpus")?;
        let mut rigs = Vec::new();
        for cpu in 0..cpus {
            // The reference's maps are not used here.
            let mut rig = Rig::load(1)?;
            rig.attach_walk(&netns, &format!("walk{cpu}"))?;
            rigs.push(rig);
        }
        Ok(Self { rigs, next_new: AtomicU32::new(NEW), _netns: netns })
    }

    /// The walk of the first CPU, for what is done before.
    pub(super) fn first(&mut self) -> Result<&mut Rig> {
        self.rigs.first_mut().context("no CPU")
    }

    pub(super) fn call(&mut self, program: &ProgramFd) -> Result<()> {
        self.rigs.iter_mut().try_for_each(|rig| rig.call(program))
    }

    /// Calls the program that only drops.
    pub(super) fn call_empty(&mut self) -> Result<()> {
        let empty = crate::packets::rig::Baseline::Empty;
        self.rigs.iter_mut().try_for_each(|rig| rig.call_baseline(empty))
    }

    /// Shows the program sources until its table is full.
    pub(super) fn fill(&mut self, frame: &[u8], sources: u32) -> Result<()> {
        let first = self.next_new.fetch_add(sources, Ordering::Relaxed);
        self.first()?.run(frame, OFFSET, (first, u32::MAX), Order::From(0), sources)?;
        Ok(())
    }

    /// Shows it each known source twice: one that is over its limit of one packet is so from the
    /// second on.
    pub(super) fn show(&mut self, frame: &[u8], sources: u32) -> Result<()> {
        for _ in 0..2 {
            let all = (FIRST, u32::MAX);
            self.first()?.run(frame, OFFSET, all, Order::From(0), sources)?;
        }
        Ok(())
    }

    /// Has some CPUs send for a time, all at once; `None` when they did not. The others do nothing
    /// meanwhile, and nobody else runs on them: what shares a cache with the CPUs that send is the
    /// same whether few send or all.
    pub(super) fn send(
        &mut self,
        cpus: &Range<usize>,
        frame: &[u8],
        senders: Senders,
        time: Duration,
    ) -> Result<Option<Done>> {
        let (barrier, next_new) = (Barrier::new(self.rigs.len()), &self.next_new);
        let sending = AtomicUsize::new(cpus.len());
        let chunks: Vec<Vec<Chunk>> = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (cpu, rig) in self.rigs.iter_mut().enumerate() {
                let (barrier, sending) = (&barrier, &sending);
                threads.push(scope.spawn(move || {
                    let ready = cpu::pin(None, cpu).and_then(|()| cpu::real_time(None, 1));
                    // Also after an error: the others wait.
                    barrier.wait();
                    if !cpus.contains(&cpu) {
                        while sending.load(Ordering::Relaxed) > 0 {
                            std::hint::spin_loop();
                        }
                        return ready.map(|()| None);
                    }
                    let done = ready.and_then(|()| hammer(rig, frame, senders, next_new, time));
                    sending.fetch_sub(1, Ordering::Relaxed);
                    done.map(Some)
                }));
            }
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Option<_>>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).transpose()
            };
            threads.into_iter().filter_map(join).collect::<Result<_>>()
        })?;
        // The kernel keeps a twentieth of a second in each for threads of usual priority: they have
        // it now.
        thread::sleep(time / 5);
        together(&chunks)
    }
}

fn hammer(
    rig: &mut Rig,
    frame: &[u8],
    senders: Senders,
    next_new: &AtomicU32,
    time: Duration,
) -> Result<Vec<Chunk>> {
    let deadline = Instant::now() + time;
    let mut chunks = Vec::new();
    loop {
        let (sources, order) = match senders {
            Senders::Known(count) => ((FIRST, count), Order::Random),
            Senders::New => {
                let first = next_new.fetch_add(CHUNK, Ordering::Relaxed);
                ((first, u32::MAX), Order::From(0))
            }
        };
        let began = Instant::now();
        let nanos = rig.run(frame, OFFSET, sources, order, CHUNK)?;
        let ended = Instant::now();
        chunks.push(Chunk { began, ended, nanos });
        if ended > deadline {
            return Ok(chunks);
        }
    }
}

/// Of each CPU what it did while all did something. Nobody can say what it is if one was held up.
fn together(cpus: &[Vec<Chunk>]) -> Result<Option<Done>> {
    let first = |chunks: &Vec<Chunk>| chunks.first().map(|chunk| chunk.began);
    let last = |chunks: &Vec<Chunk>| chunks.last().map(|chunk| chunk.ended);
    let from = cpus.iter().filter_map(first).max().context("no CPU")?;
    let to = cpus.iter().filter_map(last).min().context("no CPU")?;
    let (mut rate, mut nanos) = (0.0, 0.0);
    for chunks in cpus {
        let within = chunks.iter().filter(|chunk| chunk.began >= from && chunk.ended <= to);
        let kept: Vec<f64> = within.map(|chunk| chunk.nanos).collect();
        let (many, all) = (count(kept.len())?, count(chunks.len())?);
        if many < all * TOGETHER {
            return Ok(None);
        }
        let mean = kept.iter().sum::<f64>() / many;
        rate += 1.0 / mean;
        nanos += mean;
    }
    let packets = cpus.iter().map(Vec::len).sum::<usize>() as u64 * u64::from(CHUNK);
    Ok(Some(Done { rate, nanos: nanos / count(cpus.len())?, packets }))
}

fn count(number: usize) -> Result<f64> {
    Ok(u32::try_from(number)?.into())
}
