//! Tables in the kernel: what matches, what is charged, and what a change of the rules leaves.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

mod aggregates;
mod blocks;
mod changes;
mod charging;
mod descriptors;
mod limits;
mod names;
mod size;
mod windows;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{KeyedBucket, TableKey, field};
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::program::Program;
use limiter_tests::root::require_root;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_000 * SECOND;

/// The program with a rule file in force, at [`START`].
fn program(yaml: &str) -> Program {
    require_root();
    let mut program = Program::load(4096, 64).unwrap();
    program.apply_file(yaml).unwrap();
    at(&program, START);
    program
}

/// Puts a rule file with limits of a day in force as if there had been none before: a table that
/// was taken away begins new, and after another day every source has its burst again.
fn begin_anew(program: &mut Program, yaml: &str, days: u64) {
    program.apply_file("descriptors: []").unwrap();
    at(program, START + days * 86_400 * SECOND);
    program.apply_file(yaml).unwrap();
}

fn at(program: &Program, nanos: u64) {
    program.set_time(Ticks::from_nanos(nanos)).unwrap();
}

/// How many of `count` frames pass.
fn passed(program: &Program, frame: &[u8], count: usize) -> usize {
    (0..count).filter(|_| program.run(frame, 1).unwrap() == Verdict::Pass).count()
}

fn reason(program: &Program, frame: &[u8]) -> Reason {
    program.judge(frame).unwrap()
}

fn v4(last: u8) -> Frame {
    Frame::ipv4([192, 0, 2, last], [198, 51, 100, 1])
}

fn v6(subnet: u16, last: u8) -> Frame {
    let [high, low] = subnet.to_be_bytes();
    let mut from = [0x20, 1, 0xd, 0xb8, 0, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 0];
    from[15] = last;
    let mut to = [0; 16];
    (to[0], to[15]) = (0xfd, 1);
    Frame::ipv6(from, to)
}

fn tcp(flags: u8, destination: u16) -> Transport {
    Transport::Tcp { source: 40_000, destination, flags }
}

fn udp(destination: u16) -> Transport {
    Transport::Udp { source: 40_000, destination }
}

/// Both halves of an address as keys have them.
fn halves(address: [u8; 16]) -> [u64; 2] {
    let (high, low) = address.split_at(8);
    [high, low].map(|half| u64::from_ne_bytes(half.try_into().unwrap()))
}

fn mapped(address: [u8; 4]) -> [u64; 2] {
    halves(Source::V4(address).trie_key())
}

/// The number of the table with these keys.
fn table(program: &Program, fields: u32) -> u32 {
    let ids = &program.installed().tables.ids;
    let form = ids.iter().find(|(form, _)| form.fields & !field::CONDITIONS == fields);
    *form.unwrap().1
}

fn keyed(program: &Program, fields: u32, key: TableKey) -> Option<KeyedBucket> {
    program.keyed(&TableKey { table: table(program, fields), ..key }).unwrap()
}
