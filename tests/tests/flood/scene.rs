//! A flood and those who are known, on one CPU or on all of them.

use std::sync::Barrier;
use std::thread;

use limiter_common::source::Source;
use limiter_common::time::{SECOND, Ticks};
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{EntryKind, EntryTable};
use limiter_datapath::SourceTable;
use limiter_decision::entries::fingerprint::{MOST, STEP_BITS};
use limiter_tests::packet::Frame;
use limiter_tests::program::{Program, rule_set};
use limiter_tests::root::require_root;
use limiter_tests::test_run::Flood;

pub(crate) const NANOS: u64 = 1_000_000_000;

pub(crate) const START: u64 = 1_000 * NANOS;

/// Nanoseconds between two looks at who is due.
const PACE: u64 = NANOS / 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spoofed {
    pub(crate) times: u64,
    /// Nanoseconds from one packet of a source to its next.
    pub(crate) gap: u64,
    /// Bytes that all addresses have, and bits in which they differ.
    pub(crate) net: [u8; 4],
    pub(crate) hosts: [u8; 4],
}

impl Spoofed {
    /// Every packet from another address.
    pub(crate) const ONCE: Self = Self { times: 1, gap: 0, net: [0; 4], hosts: [255; 4] };

    /// Each address so many times, a tenth of a second apart.
    pub(crate) const fn often(times: u64) -> Self {
        Self { times, gap: NANOS / 10, ..Self::ONCE }
    }
}

/// A source that sends a packet every `period` nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) address: [u8; 4],
    pub(crate) period: u64,
    pub(crate) sent: u64,
    pub(crate) passed: u64,
    due: u64,
}

impl Known {
    pub(crate) fn new(address: [u8; 4], period: u64) -> Self {
        Self::from(START, address, period)
    }

    /// One that is first seen at `start`, or up to a period later.
    pub(crate) fn from(start: u64, address: [u8; 4], period: u64) -> Self {
        // Not all at once.
        let due = start + period * u64::from(address[3]) / 256;
        Self { address, period, sent: 0, passed: 0, due }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        Frame::ipv4(self.address, [198, 51, 100, 1]).payload(&[0; 18]).build()
    }
}

/// A program with tables of a size, and floods from so many CPUs.
pub(crate) struct Scene {
    pub(crate) program: Program,
    spoofed: Vec<Spoofed>,
    /// As [`PACE`]: no packet of a known source is later than that.
    pub(crate) pace: u64,
    cpus: usize,
    now: u64,
    number: u64,
}

impl Scene {
    pub(crate) fn new(source_store: SourceTable, entries: u32, cpus: usize, rules: &str) -> Self {
        require_root();
        let there = thread::available_parallelism().unwrap().get();
        assert!(there >= cpus, "this needs {cpus} CPUs: this machine has {there}");
        let mut program = Program::load_sized(source_store, entries, 1024, 16).unwrap();
        program = program.for_floods().unwrap();
        program.apply(&rule_set(rules).unwrap()).unwrap();
        pin(0);
        let (spoofed, pace) = (vec![Spoofed::ONCE], PACE);
        Self { program, spoofed, pace, cpus, now: START, number: 0 }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    fn entry_table(&self) -> EntryTable {
        self.program.entries(EntryKind::V4).unwrap().0
    }

    /// So many packets a second from new sources for so long, and everybody known when due.
    pub(crate) fn flood(&mut self, rate: u64, seconds: u64, known: &mut [Known]) {
        let end = self.now + seconds * NANOS;
        let cpus = u64::try_from(self.cpus).unwrap();
        let (spoofed, pace) = (&self.spoofed, self.pace);
        let batch = rate * pace / NANOS / cpus;
        let barrier = Barrier::new(self.cpus);
        let program = &self.program;
        let (first, mut number) = (self.now, self.number);
        let steps = (end - first) / pace;
        thread::scope(|scope| {
            for cpu in 1..self.cpus {
                let barrier = &barrier;
                scope.spawn(move || {
                    pin(cpu);
                    for _ in 0..steps {
                        barrier.wait();
                        run(program, batch);
                        barrier.wait();
                    }
                });
            }
            for step in 0..steps {
                let now = first + step * pace;
                if batch > 0 {
                    let turn = usize::try_from(step).unwrap() % spoofed.len();
                    let spoofed = spoofed[turn];
                    let flood = |cpu: u64| Flood {
                        packets: batch,
                        now,
                        step: pace / batch,
                        number: number + cpu * batch,
                        block: (rate * spoofed.gap / NANOS).max(1),
                        times: spoofed.times,
                        net: spoofed.net,
                        hosts: spoofed.hosts,
                    };
                    program.begin_flood(&(0..cpus).map(flood).collect::<Vec<_>>()).unwrap();
                    number += cpus * batch;
                }
                barrier.wait();
                run(program, batch);
                barrier.wait();
                send_due(program, now + pace, known);
            }
        });
        (self.now, self.number) = (end, number);
    }

    /// Floods from now on have such sources, with other addresses than before: in turn, for a
    /// [`Scene::pace`] each.
    pub(crate) fn spoof(&mut self, spoofed: &[Spoofed]) {
        self.number *= spoofed.iter().map(|sources| sources.times).max().unwrap();
        self.spoofed = spoofed.to_vec();
    }

    /// Lets time pass in which nobody sends.
    pub(crate) fn silence(&mut self, seconds: u64) {
        self.wait(seconds * NANOS);
    }

    /// Lets nanoseconds pass in which nobody sends.
    pub(crate) fn wait(&mut self, nanos: u64) {
        self.now += nanos;
    }

    /// One packet of a source, now.
    pub(crate) fn send(&self, address: [u8; 4]) -> Verdict {
        self.program.set_time(Ticks::from_nanos(self.now)).unwrap();
        self.program.run(&Known::new(address, NANOS).frame(), 1).unwrap()
    }

    pub(crate) fn packets(&self, reason: Reason) -> u64 {
        self.program.reasons().unwrap()[reason.index() as usize].packets
    }

    pub(crate) fn is_tracked(&self, address: [u8; 4]) -> bool {
        self.program.bucket(Source::V4(address)).unwrap().is_some()
    }

    /// Packets that a first flood of `seconds` may pass, of sources that do not come back: one for
    /// each entry that there is before pressure, with those that the demand allows meanwhile; half
    /// of what shares buckets at once; and of 32,768, one that is taken for another.
    pub(crate) fn first_budget(&self, rate: u64, seconds: u64) -> u64 {
        let EntryTable { cost, tolerance, .. } = self.entry_table();
        let cpus = u64::try_from(self.cpus).unwrap();
        let tracked = cpus * (tolerance - SECOND).div_ceil(cost);
        let tracked = (tracked * rate).div_ceil(rate - cpus * SECOND.div_ceil(cost));
        let taken = rate * seconds / 32_768;
        tracked + (SECOND / 2 + seconds * SECOND).div_ceil(cost) + taken
    }

    /// Packets that a flood of `seconds` may pass under pressure, of sources that send `times`: all
    /// but the first of those that get an entry, and what shares buckets.
    pub(crate) fn budget(&self, seconds: u64, times: u64) -> u64 {
        let EntryTable { cost, tolerance, .. } = self.entry_table();
        let cpus = u64::try_from(self.cpus).unwrap();
        let at_once = tolerance / 2 + (u64::from(MOST) << STEP_BITS);
        let tracked = cpus * (at_once + seconds * SECOND).div_ceil(cost);
        tracked * (times - 1) + (SECOND + seconds * SECOND).div_ceil(cost)
    }
}

fn run(program: &Program, packets: u64) {
    if packets > 0 {
        let frame = Frame::ipv4([0; 4], [198, 51, 100, 1]).payload(&[0; 18]).build();
        program.run(&frame, u32::try_from(packets).unwrap()).unwrap();
    }
}

/// Sends what was due meanwhile: the clock does not run backwards.
fn send_due(program: &Program, until: u64, known: &mut [Known]) {
    program.set_time(Ticks::from_nanos(until)).unwrap();
    for source in known {
        while source.due < until {
            source.sent += 1;
            if program.run(&source.frame(), 1).unwrap() == Verdict::Pass {
                source.passed += 1;
            }
            source.due += source.period;
        }
    }
}

fn pin(cpu: usize) {
    limiter_tests::cpu::pin(None, cpu).unwrap();
}
