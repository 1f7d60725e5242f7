//! The program that gives each frame its source and sends it when it is due, as instructions.

use anyhow::{Context as _, Result, ensure};

use super::generator::Regular;
use super::sources::{Family, SPREAD, Sources};
use crate::bpf::Words;

/// Groups of regular sources at most.
pub(super) const GROUPS: usize = 4;

/// The words that the program keeps.
pub(super) const WORDS: usize = 4 + 2 * GROUPS;
/// The word with the number of frames sent.
pub(super) const SENT: usize = 0;
/// The word with the time at which the next frame is due, in parts of a nanosecond: [`FRACTION`].
const DUE: usize = 1;
/// The word with the state of the random numbers.
const RANDOM: usize = 2;
/// The word with the number of runs.
const RUNS: usize = 3;

/// The word with the number of frames that a group sent. The next one is for when it is due again.
pub(super) const fn group(number: usize) -> usize {
    4 + 2 * number
}

/// Without a rate the clock, which costs as much as the rest, is read every so many runs.
const CLOCK_EVERY: i32 = 16;

/// Times are in 1/256 ns, so that the period of ten million frames a second is exact to 0.3 %.
const FRACTION: u32 = 8;

/// Behind Ethernet, IPv4 and UDP headers.
const PAYLOAD_V4: i16 = 42;

/// What a stall may leave to be made up for, in nanoseconds: that much of the load, at most, comes
/// in one burst. It must be longer than sending a batch takes.
const SLACK: i32 = 50_000;

/// What the program is made for.
#[derive(Clone, Debug)]
pub(super) struct Plan<'a> {
    pub(super) sources: Sources,
    pub(super) regular: &'a [Regular],
    pub(super) family: Family,
    /// Frames sent at most.
    pub(super) frames: u64,
    /// Frames a second; as fast as possible without.
    pub(super) per_second: Option<u32>,
    /// Out of which interface, by its index.
    pub(super) interface: u32,
    /// Sum of the 16-bit words that the checksum is over, with zero for the word that changes.
    pub(super) sum: u32,
}

/// Opcodes of `linux/bpf.h`, as far as they are used here.
mod op {
    pub(super) const MOV_IMM: u8 = 0xb7;
    pub(super) const MOV: u8 = 0xbf;
    pub(super) const MOV32: u8 = 0xbc;
    pub(super) const LOAD_IMM64: u8 = 0x18;
    pub(super) const LOAD_WORD: u8 = 0x61;
    pub(super) const LOAD_DOUBLE: u8 = 0x79;
    pub(super) const STORE_DOUBLE: u8 = 0x7b;
    pub(super) const STORE_WORD: u8 = 0x63;
    pub(super) const STORE_HALF: u8 = 0x6b;
    pub(super) const ADD: u8 = 0x0f;
    pub(super) const ADD_IMM: u8 = 0x07;
    pub(super) const SUB_IMM: u8 = 0x17;
    pub(super) const MUL: u8 = 0x2f;
    pub(super) const SHL: u8 = 0x6f;
    pub(super) const SHL_IMM: u8 = 0x67;
    pub(super) const SHR_IMM: u8 = 0x77;
    pub(super) const AND_IMM: u8 = 0x57;
    pub(super) const OR_IMM: u8 = 0x47;
    pub(super) const XOR_IMM: u8 = 0xa7;
    pub(super) const TO_BIG_ENDIAN: u8 = 0xdc;
    pub(super) const MOD_IMM: u8 = 0x97;
    pub(super) const JUMP: u8 = 0x05;
    pub(super) const JUMP_GREATER: u8 = 0x2d;
    pub(super) const JUMP_GREATER_OR_EQUAL: u8 = 0x3d;
    pub(super) const JUMP_NOT_IMM: u8 = 0x55;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;
}

const HELPER_KTIME_GET_NS: i32 = 5;
const HELPER_REDIRECT: i32 = 23;
const XDP_DROP: i32 = 1;

/// Bits between the sources of a group: each IPv4 one is in a /24 of its own.
const REGULAR_APART: i32 = 8;

/// Marks the second argument of [`op::LOAD_IMM64`] as a map whose value's address is meant.
const MAP_VALUE: u8 = 2;

/// A place in the program, by its number, which jumps may name before it is reached.
#[derive(Clone, Copy)]
struct Label(usize);

/// Instructions so far, where labels are, and the jumps that are to be filled in.
#[derive(Default)]
struct Code {
    instructions: Vec<u64>,
    labels: Vec<usize>,
    jumps: Vec<(usize, Label)>,
}

impl Code {
    fn add(&mut self, opcode: u8, to: u8, from: u8, offset: i16, value: i32) {
        self.instructions.push(
            u64::from(opcode)
                | u64::from(to) << 8
                | u64::from(from) << 12
                | u64::from(offset.cast_unsigned()) << 16
                | u64::from(value.cast_unsigned()) << 32,
        );
    }

    /// A calculation with a constant.
    fn constant(&mut self, opcode: u8, to: u8, value: i32) {
        self.add(opcode, to, 0, 0, value);
    }

    /// A calculation with a register.
    fn register(&mut self, opcode: u8, to: u8, from: u8) {
        self.add(opcode, to, from, 0, 0);
    }

    fn load64(&mut self, to: u8, value: u64) {
        self.add(op::LOAD_IMM64, to, 0, 0, low(value).cast_signed());
        self.add(0, 0, 0, 0, low(value >> 32).cast_signed());
    }

    fn load_map_value(&mut self, to: u8, map: i32) {
        self.add(op::LOAD_IMM64, to, MAP_VALUE, 0, map);
        self.add(0, 0, 0, 0, 0);
    }

    fn label(&mut self) -> Label {
        self.labels.push(0);
        Label(self.labels.len() - 1)
    }

    /// The label is the next instruction.
    fn place(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = self.instructions.len();
        }
    }

    fn jump(&mut self, opcode: u8, left: u8, right: u8, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.add(opcode, left, right, 0, 0);
    }

    fn finish(mut self) -> Result<Vec<u64>> {
        for (at, label) in self.jumps {
            let target = self.labels.get(label.0).copied().unwrap_or(0);
            // None goes back.
            let offset = target.checked_sub(at + 1).context("a jump to a label without a place")?;
            if let Some(jump) = self.instructions.get_mut(at) {
                *jump |= u64::from(i16::try_from(offset)?.cast_unsigned()) << 16;
            }
        }
        Ok(self.instructions)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn low(value: u64) -> u32 {
    value as u32
}

#[expect(clippy::cast_possible_truncation, reason = "there are few words")]
#[expect(clippy::cast_possible_wrap, reason = "there are few words")]
const fn word(index: usize) -> i16 {
    (index * size_of::<u64>()) as i16
}

/// Where the changing word of the source stands, and the checksum that covers it.
pub(super) const fn places(family: Family) -> (usize, usize) {
    match family {
        // The last bytes of the address; the header's checksum.
        Family::V4 => (26, 24),
        // Bits 32 to 63 of the address; UDP's checksum.
        Family::V6 => (22 + 4, 14 + 40 + 6),
    }
}

/// The instructions. Registers that keep their meaning: 6 the context, 7 the words, 9 the time.
/// Where a frame is written, register 1 has its word of the source.
pub(super) fn code(plan: &Plan<'_>, words: &Words<WORDS>) -> Result<Vec<u64>> {
    let mut code = Code::default();
    let [flood, write_it, not_sent] = [code.label(), code.label(), code.label()];
    code.register(op::MOV, 6, 1);
    code.load_map_value(7, words.descriptor());
    if plan.per_second.is_none() && !plan.regular.is_empty() {
        code.add(op::LOAD_DOUBLE, 1, 7, word(RUNS), 0);
        code.constant(op::ADD_IMM, 1, 1);
        code.add(op::STORE_DOUBLE, 7, 1, word(RUNS), 0);
        code.constant(op::AND_IMM, 1, CLOCK_EVERY - 1);
        code.jump(op::JUMP_NOT_IMM, 1, 0, flood);
    }
    if plan.per_second.is_some() || !plan.regular.is_empty() {
        code.constant(op::CALL, 0, HELPER_KTIME_GET_NS);
        code.constant(op::SHL_IMM, 0, FRACTION.cast_signed());
        code.register(op::MOV, 9, 0);
    }
    for (regular, number) in plan.regular.iter().zip(0..) {
        turn(&mut code, *regular, number, plan.family, write_it)?;
    }
    code.place(flood);
    code.add(op::LOAD_DOUBLE, 8, 7, word(SENT), 0);
    code.load64(1, plan.frames);
    code.jump(op::JUMP_GREATER_OR_EQUAL, 8, 1, not_sent);
    if let Some(per_second) = plan.per_second {
        wait(&mut code, per_second, not_sent)?;
    }
    number(&mut code, plan.sources);
    spread(&mut code, plan.family);
    code.constant(op::ADD_IMM, 8, 1);
    code.add(op::STORE_DOUBLE, 7, 8, word(SENT), 0);
    code.place(write_it);
    write(&mut code, plan, not_sent)?;
    code.constant(op::MOV_IMM, 1, i32::try_from(plan.interface)?);
    code.constant(op::MOV_IMM, 2, 0);
    code.constant(op::CALL, 0, HELPER_REDIRECT);
    code.constant(op::EXIT, 0, 0);
    code.place(not_sent);
    code.constant(op::MOV_IMM, 0, XDP_DROP);
    code.constant(op::EXIT, 0, 0);
    code.finish()
}

fn period(per_second: u32) -> Result<u64> {
    (1_000_000_000u64 << FRACTION)
        .checked_div(per_second.into())
        .context("no frames a second send nothing")
}

/// A frame of the next source of a group, when it is due. What is late is not made up for.
fn turn(
    code: &mut Code,
    regular: Regular,
    number: usize,
    family: Family,
    write_it: Label,
) -> Result<()> {
    let Regular { first, count, per_second } = regular;
    ensure!(number < GROUPS, "at most {GROUPS} groups of regular sources");
    ensure!(count > 0, "a group without sources");
    let (sent, due) = (word(group(number)), word(group(number) + 1));
    let not_due = code.label();
    code.add(op::LOAD_DOUBLE, 1, 7, due, 0);
    code.jump(op::JUMP_GREATER, 1, 9, not_due);
    code.load64(2, period(per_second)?);
    code.register(op::ADD, 1, 2);
    code.add(op::JUMP_GREATER_OR_EQUAL, 1, 9, 1, 0);
    code.register(op::MOV, 1, 9);
    code.add(op::STORE_DOUBLE, 7, 1, due, 0);
    code.add(op::LOAD_DOUBLE, 1, 7, sent, 0);
    code.register(op::MOV, 2, 1);
    code.constant(op::ADD_IMM, 2, 1);
    code.add(op::STORE_DOUBLE, 7, 2, sent, 0);
    code.constant(op::MOD_IMM, 1, i32::try_from(count)?);
    code.constant(op::SHL_IMM, 1, REGULAR_APART);
    code.load64(2, first.into());
    code.register(op::ADD, 1, 2);
    if family == Family::V4 {
        stamp(code);
    }
    code.jump(op::JUMP, 0, 0, write_it);
    code.place(not_due);
    Ok(())
}

/// Writes the time into the payload, if there is room for it. There is no checksum over it in IPv4.
/// Leaves register 1 alone.
fn stamp(code: &mut Code) {
    let no_room = code.label();
    code.add(op::LOAD_WORD, 2, 6, 0, 0);
    code.add(op::LOAD_WORD, 3, 6, 4, 0);
    code.register(op::MOV, 4, 2);
    code.constant(op::ADD_IMM, 4, i32::from(PAYLOAD_V4) + 8);
    code.jump(op::JUMP_GREATER, 4, 3, no_room);
    code.register(op::MOV, 3, 9);
    code.constant(op::SHR_IMM, 3, FRACTION.cast_signed());
    code.add(op::STORE_DOUBLE, 2, 3, PAYLOAD_V4, 0);
    code.place(no_room);
}

/// Goes on when a frame is due. What is late by more than [`SLACK`] is not made up for.
fn wait(code: &mut Code, per_second: u32, not_sent: Label) -> Result<()> {
    code.register(op::MOV, 0, 9);
    code.add(op::LOAD_DOUBLE, 1, 7, word(DUE), 0);
    code.jump(op::JUMP_GREATER, 1, 0, not_sent);
    code.constant(op::SUB_IMM, 0, SLACK << FRACTION);
    code.add(op::JUMP_GREATER_OR_EQUAL, 1, 0, 1, 0);
    code.register(op::MOV, 1, 0);
    code.load64(2, period(per_second)?);
    code.register(op::ADD, 1, 2);
    code.add(op::STORE_DOUBLE, 7, 1, word(DUE), 0);
    Ok(())
}

/// Leaves the number of the frame's source in register 1.
fn number(code: &mut Code, sources: Sources) {
    match sources {
        Sources::One => code.constant(op::MOV_IMM, 1, 0),
        Sources::Uniform(count) => random(code, count),
        Sources::Zipf(octaves) => {
            random(code, octaves);
            // What the multiplication left below the octave says where in it: 2^octave - 1 and that
            // part of it.
            code.register(op::SHL, 2, 1);
            code.constant(op::SHR_IMM, 2, 32);
            code.constant(op::MOV_IMM, 3, 1);
            code.register(op::SHL, 3, 1);
            code.register(op::MOV, 1, 2);
            code.register(op::ADD, 1, 3);
            code.constant(op::SUB_IMM, 1, 1);
        }
        Sources::New(first) => {
            code.load64(1, first.into());
            code.register(op::ADD, 1, 8);
        }
    }
}

/// Leaves a random number under `count` in register 1, and in register 2 how far it was to the
/// next, of 2^32.
fn random(code: &mut Code, count: u32) {
    // Knuth's generator of 64 bits, of which the upper half is good.
    code.add(op::LOAD_DOUBLE, 1, 7, word(RANDOM), 0);
    code.load64(2, 6_364_136_223_846_793_005);
    code.register(op::MUL, 1, 2);
    code.load64(2, 1_442_695_040_888_963_407);
    code.register(op::ADD, 1, 2);
    code.add(op::STORE_DOUBLE, 7, 1, word(RANDOM), 0);
    code.constant(op::SHR_IMM, 1, 32);
    code.load64(2, count.into());
    code.register(op::MUL, 1, 2);
    // Cuts it to 32 bits.
    code.register(op::MOV32, 2, 1);
    code.constant(op::SHR_IMM, 1, 32);
}

/// Makes the number in register 1 a word of the source.
fn spread(code: &mut Code, family: Family) {
    code.load64(2, SPREAD.into());
    code.register(op::MUL, 1, 2);
    // Cuts it to 32 bits.
    code.register(op::MOV32, 1, 1);
    if family.mask() != u32::MAX {
        code.constant(op::AND_IMM, 1, family.mask().cast_signed());
        code.constant(op::OR_IMM, 1, family.base().cast_signed());
    }
}

/// Writes the word in register 1, and the checksum.
fn write(code: &mut Code, plan: &Plan<'_>, not_sent: Label) -> Result<()> {
    let (address, checksum) = places(plan.family);
    let end = i32::try_from(address.max(checksum) + 4)?;
    let (address, checksum) = (i16::try_from(address)?, i16::try_from(checksum)?);
    code.add(op::LOAD_WORD, 2, 6, 0, 0);
    code.add(op::LOAD_WORD, 3, 6, 4, 0);
    code.register(op::MOV, 4, 2);
    code.constant(op::ADD_IMM, 4, end);
    code.jump(op::JUMP_GREATER, 4, 3, not_sent);
    // One's complement sum of the upper half, the lower half and the rest of what it is over.
    code.register(op::MOV, 3, 1);
    code.constant(op::SHR_IMM, 3, 16);
    code.register(op::MOV, 4, 1);
    code.constant(op::AND_IMM, 4, 0xffff);
    code.register(op::ADD, 3, 4);
    code.constant(op::ADD_IMM, 3, plan.sum.cast_signed());
    for _ in 0..2 {
        code.register(op::MOV, 4, 3);
        code.constant(op::SHR_IMM, 4, 16);
        code.constant(op::AND_IMM, 3, 0xffff);
        code.register(op::ADD, 3, 4);
    }
    code.constant(op::XOR_IMM, 3, 0xffff);
    if plan.family == Family::V6 {
        // Zero would say that there is none, which UDP over IPv6 must have.
        code.add(op::JUMP_NOT_IMM, 3, 0, 1, 0);
        code.constant(op::MOV_IMM, 3, 0xffff);
    }
    code.constant(op::TO_BIG_ENDIAN, 3, 16);
    code.add(op::STORE_HALF, 2, 3, checksum, 0);
    code.constant(op::TO_BIG_ENDIAN, 1, 32);
    code.add(op::STORE_WORD, 2, 1, address, 0);
    Ok(())
}
