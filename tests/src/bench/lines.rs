//! Homes for the state of a source, beside each other: what the line table was chosen by.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, MapData, ProgramArray};
use aya::programs::{ProgramFd, TestRun as _, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use limiter_common::source::Source;
use limiter_userspace::datapath::SourceTable;

use super::packets::subject::Subject;
use crate::packet::Frame;
use crate::spread::Spread;

/// The object; empty when it was built without a BPF toolchain.
static OBJECT: &[u8] = include_bytes!(env!("LIMITER_BENCH_OBJECT"));

/// A home: its program, and lines or sets for 100 sources. Lines of 16 bytes an entry take 40 bytes a source, the others 64.
const HOMES: [(&str, u32); 5] =
    [("home_hash", 0), ("home_four", 50), ("home_seven", 32), ("home_half", 32), ("home_set", 25)];

/// The first source: 11.0.0.0.
const FIRST: u32 = 0x0b00_0000;

/// Sources that were never seen begin here: 64.0.0.0.
const NEW: u32 = 0x4000_0000;

/// Nobody is over it at the rate of a test-run: a packet takes a tick.
const WIDE: [u64; 4] = [1, 1 << 40, 0, 0];

/// Everybody is over it from the second packet on of some seconds.
const NARROW: [u64; 4] = [1 << 38, (1 << 38) + 1, 0, 0];

struct Home {
    name: &'static str,
    ebpf: Ebpf,
}

impl Home {
    fn load(name: &'static str, lines: u32, entries: u32) -> Result<Self> {
        ensure!(!OBJECT.is_empty(), "built without the BPF toolchain: run `cargo xtask setup`");
        let of = |home: &str| if name == home { lines.max(1) } else { 1 };
        let narrow = name != "home_set";
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("LINES_HASH", entries)
            .map_max_entries("LINES", if narrow { lines.max(1) } else { 1 })
            .map_max_entries("LINES_SETS", of("home_set"))
            .map_max_entries("REFERENCE_V4", 1)
            .map_max_entries("REFERENCE_V6", 1)
            .load(&crate::program::aligned(OBJECT))?;
        for program in ["walk", name] {
            self::program(&mut ebpf, program)?.load()?;
        }
        let fd = program(&mut ebpf, name)?.fd()?.try_clone()?;
        let mut home = Self { name, ebpf };
        home.call(&fd)?;
        home.array::<u64>("LINES_CONTROL")?.set(0, 2, 0)?;
        home.array::<u64>("LINES_CONTROL")?.set(1, u64::from(lines), 0)?;
        Ok(home)
    }

    fn array<T: aya::Pod>(&mut self, name: &str) -> Result<Array<&mut MapData, T>> {
        Ok(Array::try_from(self.ebpf.map_mut(name).context("no such map")?)?)
    }

    fn call(&mut self, program: &ProgramFd) -> Result<()> {
        let map = self.ebpf.map_mut("PROGRAM").context("no PROGRAM")?;
        Ok(ProgramArray::try_from(map)?.set(0, program, 0)?)
    }

    fn limit(&mut self, limit: [u64; 4]) -> Result<()> {
        Ok(self.array::<[u64; 4]>("LINES_LIMITS")?.set(0, limit, 0)?)
    }

    /// Nanoseconds a packet.
    fn run(
        &mut self,
        (first, sources): (u32, u32),
        state: Option<u32>,
        packets: u32,
    ) -> Result<f64> {
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let (state, in_turn) = match state {
            Some(number) => (u64::from(number).wrapping_sub(1), 1),
            None => (1, 0),
        };
        let walk: [u64; 3] = [state, two(sources, first), two(in_turn, 26)];
        self.array::<[u64; 3]>("WALK")?.set(0, walk, 0)?;
        let frame = Frame::ipv4([11, 0, 0, 1], [192, 0, 2, 1]).build();
        let mut options = TestRunOptions::new();
        options.data_in = Some(&frame);
        options.repeat = packets;
        let result = program(&mut self.ebpf, "walk")?.test_run(options)?;
        ensure!(result.return_value != 0, "{}: the program was not called, or gave up", self.name);
        Ok(result.duration.as_secs_f64() * 1e9)
    }

    fn refused(&mut self) -> Result<u64> {
        let mut control = self.array::<u64>("LINES_CONTROL")?;
        let refused = control.get(&2, 0)?;
        control.set(2, 0, 0)?;
        Ok(refused)
    }
}

/// Measures them.
///
/// # Errors
///
/// When the kernel refuses.
pub fn report(rounds: usize, packets: u32) -> Result<String> {
    let mut page = String::new();
    for sources in [1, 10_000, 1_000_000u32] {
        let mut homes = HOMES
            .into_iter()
            .map(|(name, lines)| {
                let lines = u32::try_from(u64::from(lines) * u64::from(sources) / 100)?.max(8);
                Home::load(name, lines, sources + sources / 8)
            })
            .collect::<Result<Vec<_>>>()?;
        for (case, limit) in [("over", NARROW), ("passes", WIDE), ("new", WIDE)] {
            for home in &mut homes {
                home.limit(limit)?;
                home.run((FIRST, u32::MAX), Some(0), sources)?;
                home.run((FIRST, u32::MAX), Some(0), sources)?;
            }
            if case == "new" {
                // What is in the way has drained then.
                std::thread::sleep(std::time::Duration::from_secs(9));
            }
            let mut next = NEW;
            let mut figures = vec![Vec::new(); homes.len()];
            let mut refused = vec![0; homes.len()];
            for home in &mut homes {
                home.refused()?;
            }
            for _ in 0..rounds {
                for (home, figures) in homes.iter_mut().zip(&mut figures) {
                    figures.push(match case {
                        "new" => home.run((next, u32::MAX), Some(0), packets)?,
                        _ => home.run((FIRST, sources), None, packets)?,
                    });
                }
                next = next.wrapping_add(packets);
            }
            for (home, refused) in homes.iter_mut().zip(&mut refused) {
                *refused = home.refused()?;
            }
            for ((home, figures), refused) in homes.iter().zip(&figures).zip(refused) {
                let spread = Spread::of(figures.iter().copied()).context("no rounds")?;
                writeln!(
                    page,
                    "{sources} {case} {}: {:.0} ({:.0} to {:.0}), refused {refused}",
                    home.name, spread.median, spread.low, spread.high
                )?;
            }
        }
    }
    Ok(page)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp> {
    Ok(ebpf.program_mut(name).with_context(|| format!("no program {name}"))?.try_into()?)
}

/// What [`hammer`] saw.
#[derive(Clone, Debug)]
pub struct Hammered {
    /// Packets that passed, by the number of their source.
    pub passed: Vec<u64>,
    /// The most that one source may have passed.
    pub bound: u64,
    /// Sources in the lines, sorted.
    pub there: Vec<Source>,
    /// Rule changes meanwhile.
    pub changes: u64,
}

/// Room for two lines.
const ROOM: u32 = 6;

/// Packets a second of each source, and half of it after every second change.
const RATE: u64 = 50_000;
const BURST: u64 = 3;

/// Every CPU sends from the same sources through limiter as it is shipped, into two lines, by the kernel's clock. Sources
/// come and go all the time: their limit drains within microseconds. With `changing`, so do the rules.
///
/// # Errors
///
/// When the kernel refuses.
pub fn hammer(sources: u32, packets: u32, changing: bool) -> Result<Hammered> {
    let mut limiter = Subject::load_in(SourceTable::Lines, ROOM, 64, 512)?;
    limiter.apply(&rules(sources, RATE))?;
    limiter.open_doors(true)?;
    limiter.spare_nobody()?;
    let mut home = Home::load("home_hash", 0, 1)?;
    home.call(limiter.fd())?;
    let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    home.array::<[u64; 3]>("WALK")?.set(0, [1, two(sources, FIRST), two(0, 26)], 0)?;
    let frame = Frame::ipv4([11, 0, 0, 1], [192, 0, 2, 1]).build();
    let cpus = std::thread::available_parallelism()?.get();
    let walk: &Xdp = program(&mut home.ebpf, "walk")?;
    let begin = std::time::Instant::now();
    let mut changes = 0;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus)
            .map(|cpu| {
                let frame = &frame;
                scope.spawn(move || {
                    crate::cpu::pin(None, cpu)?;
                    let mut options = TestRunOptions::new();
                    options.data_in = Some(frame);
                    options.repeat = packets;
                    let result = walk.test_run(options)?;
                    ensure!(result.return_value != 0, "the program was not called, or gave up");
                    Ok(())
                })
            })
            .collect();
        while changing && threads.iter().any(|thread| !thread.is_finished()) {
            changes += 1;
            limiter.apply(&rules(sources, RATE >> (changes % 2)))?;
        }
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => anyhow::bail!("a thread of the hammer panicked"),
        })
    })?;
    let nanos = u64::try_from(begin.elapsed().as_nanos())?;
    let bound = BURST + nanos / (1_000_000_000 / RATE) + 1;
    let passed =
        (0..sources).map(|number| limiter.passed(address(number))).collect::<Result<_>>()?;
    ensure!(limiter.locked_lines()? == 0, "a line was left locked");
    let mut there = limiter.sources()?;
    there.sort_unstable();
    Ok(Hammered { passed, bound, there, changes })
}

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST + number)
}

/// A rule for each source, so that what it passes is counted when its entry is not there any more. Who finds no room passes
/// nothing.
fn rules(sources: u32, rate: u64) -> String {
    let mut text = "descriptors:\n".to_owned();
    for number in 0..sources {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  - {{key: remote_address, value: {}, on_full: drop, rate_limit: {{unit: second, requests_per_unit: {rate}, \
             burst: {BURST}}}}}",
            address(number)
        );
    }
    text
}
