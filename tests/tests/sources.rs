//! All sources read in batches out of the kernel's maps.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Result, ensure};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::Bucket;
use limiter_datapath::{Observed as _, SourceTable, Sweep};
use limiter_tests::packet::Frame;
use limiter_tests::program::{Program, SOURCE_STORES, rule_set};
use limiter_tests::root::require_root;

/// A packet keeps its source for an hour.
const RULES: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}}\n";

fn program(source_store: SourceTable) -> Result<Program> {
    require_root();
    let room = match source_store {
        SourceTable::Hash => 4096,
        // None of them finds its line full.
        SourceTable::Lines => 16_384,
    };
    let mut program = Program::load_in(source_store, room, 16)?;
    program.apply(&rule_set(RULES)?)?;
    program.set_time(Ticks::from_nanos(1_000_000_000))?;
    Ok(program)
}

fn v4(number: u16) -> Source {
    let [high, low] = number.to_be_bytes();
    Source::V4([10, 0, high, low])
}

fn v6(number: u16) -> Source {
    let [high, low] = number.to_be_bytes();
    Source::V6([0x20, 1, 0xd, 0xb8, 0, 0, high, low])
}

fn send(program: &Program, source: Source) -> Result<()> {
    let frame = match source {
        Source::V4(address) => Frame::ipv4(address, [198, 51, 100, 1]),
        Source::V6(prefix) => {
            let mut address = [1; 16];
            address[..8].copy_from_slice(&prefix);
            Frame::ipv6(address, [2; 16])
        }
    };
    program.run(&frame.payload(&[0; 18]).build(), 1)?;
    Ok(())
}

/// Everything, in batches of `most`; `between` is done after each.
fn swept(
    program: &mut Program,
    most: usize,
    mut between: impl FnMut(&mut Program) -> Result<()>,
) -> Result<Vec<(Source, Bucket)>> {
    let (mut sweep, mut all, mut batches) = (Sweep::default(), Vec::new(), 0);
    while !sweep.is_done() {
        all.extend(program.kernel().sources(&mut sweep, most)?);
        batches += 1;
        between(program)?;
        ensure!(batches < 20_000, "a sweep without an end");
    }
    ensure!(program.kernel().sources(&mut sweep, most)?.is_empty(), "after the end");
    Ok(all)
}

#[test]
fn every_source_is_read_once_in_batches_of_any_size() -> Result<()> {
    SOURCE_STORES.into_iter().try_for_each(every_source_is_read_once)
}

fn every_source_is_read_once(source_store: SourceTable) -> Result<()> {
    let mut program = program(source_store)?;
    assert_eq!(swept(&mut program, 64, |_| Ok(()))?, []);
    let sources: BTreeSet<Source> = (0..1500).map(v4).chain((0..700).map(v6)).collect();
    for source in &sources {
        send(&program, *source)?;
        send(&program, *source)?;
    }
    // With one place for an entry every bucket of the hash that has two is too large at first.
    for most in [1, 2, 7, 256, 4096, 1 << 20] {
        let read = swept(&mut program, most, |_| Ok(()))?;
        assert_eq!(read.len(), sources.len(), "batches of {most}");
        assert_eq!(read.iter().map(|(source, _)| *source).collect::<BTreeSet<_>>(), sources);
        for (source, bucket) in read {
            assert_eq!((bucket.passed, bucket.dropped), (1, 1), "{source:?}");
            assert_eq!(program.bucket(source)?, Some(bucket));
        }
    }
    Ok(())
}

#[test]
fn those_who_stay_are_read_once_while_others_come() -> Result<()> {
    SOURCE_STORES.into_iter().try_for_each(those_who_stay_are_read_once)
}

fn those_who_stay_are_read_once(source_store: SourceTable) -> Result<()> {
    let mut program = program(source_store)?;
    for number in 0..1000 {
        send(&program, v4(number))?;
    }
    let mut next = 1000;
    let read = swept(&mut program, 32, |program| {
        for _ in 0..8 {
            if next < 3000 {
                send(program, v4(next))?;
                next += 1;
            }
        }
        Ok(())
    })?;
    let mut times: HashMap<Source, u32> = HashMap::new();
    for (source, _) in &read {
        *times.entry(*source).or_default() += 1;
    }
    assert!((0..1000).all(|number| times.get(&v4(number)) == Some(&1)), "read not once: {times:?}");
    assert!(times.values().all(|count| *count == 1), "{times:?}");
    assert!(next > 1000, "nobody came");
    assert_eq!(swept(&mut program, 500, |_| Ok(()))?.len(), usize::from(next));
    Ok(())
}
