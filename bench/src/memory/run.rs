//! Maps of several sizes, and what the kernel accounts for them.

use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result, ensure};
use limiter_common::verdict::Reason;
use limiter_common::wire::map;
use limiter_datapath::SourceTable;
use limiter_tests::map_memory;
use limiter_tests::packet::Frame;
use limiter_tests::subject::Subject;
use limiter_tests::walk::Order;

use super::{kernel, page, peers};
use crate::figure::{Bound, Figure};
use crate::floods::contender::Tool;
use crate::group::{Measured, Options};
use crate::machine::Machine;
use crate::packets::cases::{FIRST, WIDE};
use crate::packets::rig::Rig;
use crate::spread::Spread;

/// The sizes of `limiter run` without options.
const SOURCES: u32 = 262_144;
const KEYS: u32 = 65_536;
const RULES: u32 = 16_384;

/// The sources that the machine's memory is compared with and without.
const MANY: u32 = 1 << 20;
const FEW: u32 = 1_024;

pub(super) struct Results {
    /// The maps with the defaults, and the program.
    pub(super) maps: Vec<(String, u64)>,
    pub(super) program: u64,
    /// Bytes for each: as accounted for, by family and for a key.
    pub(super) v4: f64,
    pub(super) v6: f64,
    /// Bytes for a source, or a compact key, in lines.
    pub(super) line: f64,
    pub(super) compact: f64,
    pub(super) key: f64,
    /// Bytes of a new flow, if rules count those.
    pub(super) flow: f64,
    /// As the machine's memory shows: for each source that there is room for in both families, and
    /// more of it when as many IPv4 sources were seen.
    pub(super) both: Spread,
    pub(super) seen: Spread,
    pub(super) peers: Vec<(&'static str, Option<Spread>)>,
    pub(super) peer_sources: u32,
    pub(super) rounds: usize,
}

/// Measures everything.
///
/// # Errors
///
/// When the kernel refuses, or reports something else than it must.
pub fn run(options: &Options) -> Result<Measured> {
    let rounds = 3;
    let (peer_rounds, peer_sources) = if options.quick { (1, 100_000) } else { (3, 400_000) };
    let subject = Subject::load(SOURCES, KEYS, RULES)?;
    let maps = map_memory::maps(&subject.map_pins())?;
    let program = map_memory::accounted(subject.fd().as_fd())?;
    drop(subject);
    let each = |names: &[&str], entries| each(&maps, names, entries);
    let subject = Subject::load_in(SourceTable::Lines, SOURCES, FEW, FEW)?;
    let others = map_memory::maps(&subject.map_pins())?;
    drop(subject);
    let line = self::each(&others, &[map::LINES], 2 * SOURCES + FEW)?;
    let v4 = each(&[map::SOURCES_V4, map::FRAMES_V4], SOURCES)?;
    let v6 = each(&[map::SOURCES_V6, map::FRAMES_V6], SOURCES)?;
    let compact = each(&[map::NARROW, map::FRAMES_NARROW], KEYS)?;
    let key = each(&[map::KEYED, map::FRAMES_KEYED], KEYS)?;
    let flow = each(&[map::FLOWS], KEYS)?;
    let (mut both, mut seen) = (Vec::new(), Vec::new());
    let machine = Machine::look(&["iptables", "nft"])?;
    let mut peers = [Tool::HashlimitKept, Tool::Nft].map(|tool| (tool, Vec::new()));
    for round in 0..rounds {
        let [room, used] = kernel::undisturbed(taken, |[room, _]| *room)?;
        both.push(room);
        seen.push(used);
        eprintln!("round {} of {rounds}: {room:.0} bytes a source of both families", round + 1);
        for (tool, bytes) in &mut peers {
            if round < peer_rounds && machine.has(tool.program()) {
                let measured =
                    kernel::undisturbed(|| peers::bytes(*tool, peer_sources), |bytes| *bytes)
                        .with_context(|| tool.name())?;
                eprintln!("round {} of {rounds}: {measured:.0} bytes, {}", round + 1, tool.name());
                bytes.push(measured);
            }
        }
    }
    let results = Results {
        maps,
        program,
        v4,
        v6,
        line,
        compact,
        key,
        flow,
        both: Spread::of(both).context("no rounds")?,
        seen: Spread::of(seen).context("no rounds")?,
        peers: peers.map(|(tool, bytes)| (tool.name(), Spread::of(bytes))).into(),
        peer_sources,
        rounds,
    };
    Ok(Measured { page: page::markdown(&results), figures: figures(&results) })
}

/// Bytes of these maps, over so many entries.
fn each(maps: &[(String, u64)], names: &[&str], entries: u32) -> Result<f64> {
    let mut sum = 0;
    for name in names {
        let found = maps.iter().find(|(map, _)| map == name);
        sum += found.with_context(|| format!("no map {name}"))?.1;
    }
    Ok(f64::from(u32::try_from(sum)?) / f64::from(entries))
}

fn figures(results: &Results) -> Vec<Figure> {
    let bytes = |what: &str, ratio, budget: Option<f64>, held| Figure {
        what: what.to_owned(),
        ratio,
        budget: budget.map(Bound::AtMost),
        held: Bound::AtMost(held),
    };
    let exact = |bytes| Spread { median: bytes, low: bytes, high: bytes };
    // Memory that is accounted for does not vary: a byte more is one.
    vec![
        bytes("a tracked IPv4 source, bytes", exact(results.v4), Some(112.5), 112.5),
        bytes("a tracked IPv6 source, bytes", exact(results.v6), Some(120.0), 112.5),
        bytes("a source or a compact key in lines, bytes", exact(results.line), Some(60.5), 60.5),
        bytes("a compact key, bytes", exact(results.compact), Some(100.0), 112.5),
        bytes("any other key of a table, bytes", exact(results.key), None, 460.0),
        bytes(
            "an IPv4 and an IPv6 source, from the memory of the machine, bytes",
            results.both,
            Some(240.0),
            240.0,
        ),
    ]
}

/// Bytes that the machine's memory shrinks by, for each source that there is room for, and for each
/// that was seen.
fn taken() -> Result<[f64; 2]> {
    let mut rig = Rig::load(1)?;
    // The rest is the same in both.
    let none = kernel::settled()?;
    let few = Subject::load(FEW, 1_024, 1_024)?;
    let with_few = kernel::used()?;
    let mut many = Subject::load(MANY, 1_024, 1_024)?;
    let taken = (kernel::used()? + none).saturating_sub(2 * with_few);
    drop(few);
    many.apply(&format!("descriptors: [{{key: remote_address, {WIDE}}}]\n"))?;
    many.open_doors(true)?;
    rig.call(many.fd())?;
    let frame = Frame::ipv4([11, 0, 0, 0], [198, 51, 100, 1]).payload(&[0; 32]).build();
    let unseen = kernel::settled()?;
    let made = |subject: &Subject| -> Result<u64> {
        let index = usize::try_from(Reason::Conforming.index())?;
        subject.reasons()?.get(index).copied().context("no such reason")
    };
    let before = made(&many)?;
    rig.run(&frame, 26, (FIRST, u32::MAX), Order::From(0), MANY)?;
    let passed = made(&many)? - before;
    ensure!(passed == u64::from(MANY), "{passed} of {MANY} sources got in");
    let more = kernel::used()?.saturating_sub(unseen);
    let each = |bytes: u64, entries: u32| -> Result<f64> {
        Ok(f64::from(u32::try_from(bytes)?) / f64::from(entries))
    };
    Ok([each(taken, MANY - FEW)?, each(more, MANY)?])
}
