//! Homes for the state of a source, each in the least program that charges it exactly: what the line table was chosen by.
//! Never shipped.
//!
//! All of them parse the same way, read the same clock, the same generation and the same limit, and charge by the same
//! arithmetic. What differs is where the word is, and what stands beside it. A line is 128 bytes, two lines of the cache
//! that are fetched together.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_NOEXIST, xdp_action},
    btf_maps::{Array, HashMap},
    helpers::bpf_ktime_get_ns,
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::gcra::Charge;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, Limit};

use crate::source_v4;

/// Words of a line.
const WORDS: usize = 16;

#[repr(C, align(8))]
struct Line([u64; WORDS]);

pub(crate) const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

/// Lines of all layouts: one is measured at a time.
#[btf_map]
static LINES: Array<Line, 1, MMAPABLE> = Array::new();

/// Words of a set: a head of four words, and seven entries of four.
const SET_WORDS: usize = 32;

#[repr(C, align(8))]
struct Set([u64; SET_WORDS]);

/// Sets of seven.
#[btf_map]
static LINES_SETS: Array<Set, 1, MMAPABLE> = Array::new();

/// As limiter's map of sources.
#[btf_map]
static LINES_HASH: HashMap<[u8; 4], Bucket, 1> = HashMap::new();

/// As limiter's limits.
#[btf_map]
pub(crate) static LINES_LIMITS: Array<Limit, 16> = Array::new();

/// The generation in force, how many lines there are, what found no room, and whether to count by source.
#[btf_map]
static LINES_CONTROL: Array<u64, 4> = Array::new();

/// The word of an entry that is being made or leaves.
const CLAIMED: u64 = u64::MAX;

#[inline(always)]
pub(crate) fn control(index: u32) -> u64 {
    // SAFETY: a word of the array.
    LINES_CONTROL.get_ptr(index).map_or(0, |word| unsafe { word.read_volatile() })
}

#[inline(always)]
unsafe fn exchange(word: *mut u64, current: u64, new: u64) -> bool {
    // SAFETY: the caller's.
    unsafe {
        atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
            word, current, new,
        )
        .1
    }
}

/// Charges a word: whether the packet passes.
#[inline(always)]
unsafe fn charge(cell: *mut u64, limit: &Limit, length: u64, now: Ticks) -> bool {
    let charge = Charge::new(limit, now, limit.units(length));
    // SAFETY: the caller's.
    let word = Word::from_raw(unsafe { cell.read_volatile() });
    match charge.apply(word.tat()) {
        // SAFETY: the caller's.
        Some(tat) => unsafe { exchange(cell, word.raw(), Word::new(tat, word.scale()).raw()) },
        None => false,
    }
}

/// The word of a source whose first packet is charged.
#[inline(always)]
fn fresh(limit: &Limit, length: u64, now: Ticks) -> u64 {
    let charge = Charge::new(limit, now, limit.units(length));
    Word::new(charge.apply(Ticks::ZERO).unwrap_or(Ticks::ZERO), false).raw()
}

#[inline(always)]
fn verdict(passes: bool) -> u32 {
    if passes { xdp_action::XDP_PASS } else { xdp_action::XDP_DROP }
}

#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn home_hash(ctx: XdpContext) -> u32 {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    let now = Ticks::from_nanos(unsafe { bpf_ktime_get_ns() });
    let length = (ctx.data_end() - ctx.data()) as u64;
    let Some(source) = source_v4(&ctx) else { return xdp_action::XDP_ABORTED };
    let generation = Generation::new(control(0));
    let Some(bucket) = LINES_HASH.get_ptr_mut(source) else {
        let slot = Slot::new(0);
        let Some(limit) = LINES_LIMITS.get(0) else { return xdp_action::XDP_ABORTED };
        let bucket = Bucket {
            word: fresh(limit, length, now),
            resolved: Resolved::new(generation, slot, Slot::NONE, false).raw(),
            passed: 1,
            dropped: 0,
        };
        let _ = LINES_HASH.insert(source, bucket, u64::from(BPF_NOEXIST));
        return xdp_action::XDP_PASS;
    };
    // SAFETY: a value that was looked up.
    let resolved = Resolved::from_raw(unsafe { (&raw const (*bucket).resolved).read_volatile() });
    if !resolved.generation().covers(generation) {
        return xdp_action::XDP_ABORTED;
    }
    let Some(limit) = LINES_LIMITS.get(resolved.slot().index()) else {
        return xdp_action::XDP_ABORTED;
    };
    // SAFETY: as above.
    unsafe {
        let passes = charge(&raw mut (*bucket).word, limit, length, now);
        let counter = if passes { &raw mut (*bucket).passed } else { &raw mut (*bucket).dropped };
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, 1);
        verdict(passes)
    }
}

/// The finaliser of `SplitMix64`.
#[inline(always)]
const fn scatter(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// What keeps the first word of an entry inside its line.
const fn mask<const HEAD: usize, const WAYS: usize, const SIZE: usize>() -> usize {
    let words = if HEAD + WAYS * SIZE <= WORDS / 2 { WORDS / 2 } else { WORDS };
    words - SIZE
}

/// `WAYS` entries of `SIZE` words behind `HEAD` words. In two words: name and limit, and the time; in four, the limit apart,
/// and counters.
#[inline(always)]
fn lines<const HEAD: usize, const WAYS: usize, const SIZE: usize>(ctx: &XdpContext) -> u32 {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    let now = Ticks::from_nanos(unsafe { bpf_ktime_get_ns() });
    let length = (ctx.data_end() - ctx.data()) as u64;
    let Some(source) = source_v4(ctx) else { return xdp_action::XDP_ABORTED };
    let source = u64::from(u32::from_ne_bytes(source));
    let generation = Generation::new(control(0));
    let hash = scatter(source);
    let index = (((hash >> 32) * control(1)) >> 32) as u32;
    let Some(line) = LINES.get_ptr_mut(index) else { return xdp_action::XDP_ABORTED };
    let mut line = line.cast::<u64>();
    if HEAD + WAYS * SIZE <= WORDS / 2 {
        // SAFETY: one half or the other.
        line = unsafe { line.add(if hash & 1 == 0 { 0 } else { WORDS / 2 }) };
    }
    let name = if SIZE == 4 { source | 1 << 32 } else { source };
    let mut found = WAYS;
    let mut way = 0;
    while way < WAYS {
        // SAFETY: inside the line.
        let at = unsafe { line.add(HEAD + way * SIZE).read_volatile() };
        let at = if SIZE == 4 { at } else { at & 0xffff_ffff };
        if at == name {
            found = way;
        }
        way += 1;
    }
    if found == WAYS {
        return make::<HEAD, WAYS, SIZE>(line, source, generation, length, now);
    }
    // SAFETY: the mask keeps it inside the line.
    unsafe {
        let entry = line.add((HEAD + found * SIZE) & mask::<HEAD, WAYS, SIZE>());
        let slot = if SIZE == 4 {
            let resolved = Resolved::from_raw(entry.add(2).read_volatile());
            if !resolved.generation().covers(generation) {
                return xdp_action::XDP_ABORTED;
            }
            resolved.slot().index()
        } else {
            let name = entry.read_volatile();
            if (name >> 51) as u32 != generation.get() & 0x1fff {
                return xdp_action::XDP_ABORTED;
            }
            (name >> 32) as u32 & 0x7_ffff
        };
        let Some(limit) = LINES_LIMITS.get(slot) else { return xdp_action::XDP_ABORTED };
        let passes = charge(entry.add(1), limit, length, now);
        if SIZE > 2 {
            let one = if passes { 1 } else { 1 << 32 };
            atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(entry.add(SIZE - 1), one);
        }
        verdict(passes)
    }
}

/// A source without an entry: takes the one that has drained for the longest.
#[inline(always)]
fn make<const HEAD: usize, const WAYS: usize, const SIZE: usize>(
    line: *mut u64,
    source: u64,
    generation: Generation,
    length: u64,
    now: Ticks,
) -> u32 {
    let Some(limit) = LINES_LIMITS.get(0) else { return xdp_action::XDP_ABORTED };
    // SAFETY: everything is inside the line.
    unsafe {
        if HEAD > 0 && !exchange(line, 0, 1) {
            return xdp_action::XDP_DROP;
        }
        let (mut victim, mut oldest) = (0, u64::MAX);
        let mut way = 0;
        while way < WAYS {
            let word = line.add(HEAD + way * SIZE + 1).read_volatile();
            if word < oldest {
                (victim, oldest) = (way, word);
            }
            way += 1;
        }
        let entry = line.add((HEAD + victim * SIZE) & mask::<HEAD, WAYS, SIZE>());
        let mut made = false;
        if Word::from_raw(oldest).tat() < now && exchange(entry.add(1), oldest, CLAIMED) {
            let slot = Slot::new(0);
            if SIZE == 4 {
                entry.write_volatile(source | 1 << 32);
                let resolved = Resolved::new(generation, slot, Slot::NONE, false);
                entry.add(2).write_volatile(resolved.raw());
            } else {
                entry.write_volatile(source | u64::from(generation.get() & 0x1fff) << 51);
            }
            if SIZE > 2 {
                entry.add(SIZE - 1).write_volatile(1);
            }
            made = exchange(entry.add(1), CLAIMED, fresh(limit, length, now));
        }
        if HEAD > 0 {
            exchange(line, 1, 0);
        }
        if !made && let Some(refused) = LINES_CONTROL.get_ptr_mut(2) {
            refused.write_volatile(refused.read_volatile() + 1);
        }
        verdict(made)
    }
}

/// 32 bytes an entry, as a bucket with its name: 4 a line.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn home_four(ctx: XdpContext) -> u32 {
    lines::<0, 4, 4>(&ctx)
}

/// 16 bytes: 7 a line.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn home_seven(ctx: XdpContext) -> u32 {
    lines::<2, 7, 2>(&ctx)
}

/// 16 bytes: 4 in half of a line, a line of the cache.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn home_half(ctx: XdpContext) -> u32 {
    lines::<0, 4, 2>(&ctx)
}

/// 32 bytes an entry, 7 in a set of 256 bytes. Each source begins at a way of its own, and stops where it is found.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn home_set(ctx: XdpContext) -> u32 {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    let now = Ticks::from_nanos(unsafe { bpf_ktime_get_ns() });
    let length = (ctx.data_end() - ctx.data()) as u64;
    let Some(source) = source_v4(&ctx) else { return xdp_action::XDP_ABORTED };
    let source = u64::from(u32::from_ne_bytes(source));
    let generation = Generation::new(control(0));
    let hash = scatter(source);
    let index = (((hash >> 32) * control(1)) >> 32) as u32;
    let Some(set) = LINES_SETS.get_ptr_mut(index) else { return xdp_action::XDP_ABORTED };
    let set = set.cast::<u64>();
    let start = (hash & 7) as usize;
    let name = source | 1 << 32;
    let mut entry = None;
    let mut step = 0;
    while step < 8 {
        // SAFETY: inside the set.
        unsafe {
            let at = set.add(((start ^ step) & 7) * 4);
            if at.read_volatile() == name {
                entry = Some(at);
                break;
            }
        }
        step += 1;
    }
    let Some(entry) = entry else {
        return make_in_set(set, start, name, generation, length, now);
    };
    // SAFETY: inside the set.
    unsafe {
        let resolved = Resolved::from_raw(entry.add(2).read_volatile());
        if !resolved.generation().covers(generation) {
            return xdp_action::XDP_ABORTED;
        }
        let Some(limit) = LINES_LIMITS.get(resolved.slot().index()) else {
            return xdp_action::XDP_ABORTED;
        };
        let passes = charge(entry.add(1), limit, length, now);
        let one = if passes { 1 } else { 1 << 32 };
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(entry.add(3), one);
        verdict(passes)
    }
}

/// A source without an entry: takes the first that has drained.
#[inline(always)]
fn make_in_set(
    set: *mut u64,
    start: usize,
    name: u64,
    generation: Generation,
    length: u64,
    now: Ticks,
) -> u32 {
    let Some(limit) = LINES_LIMITS.get(0) else { return xdp_action::XDP_ABORTED };
    // SAFETY: everything is inside the set.
    unsafe {
        // The first word of the head is never a name.
        if !exchange(set, 0, 1) {
            return xdp_action::XDP_DROP;
        }
        let mut made = false;
        let mut step = 0;
        while step < 8 {
            let way = (start ^ step) & 7;
            let entry = set.add(way * 4);
            let word = entry.add(1).read_volatile();
            if way != 0 && Word::from_raw(word).tat() < now && exchange(entry.add(1), word, CLAIMED)
            {
                entry.write_volatile(name);
                let resolved = Resolved::new(generation, Slot::new(0), Slot::NONE, false);
                entry.add(2).write_volatile(resolved.raw());
                entry.add(3).write_volatile(1);
                made = exchange(entry.add(1), CLAIMED, fresh(limit, length, now));
                break;
            }
            step += 1;
        }
        exchange(set, 1, 0);
        if !made && let Some(refused) = LINES_CONTROL.get_ptr_mut(2) {
            refused.write_volatile(refused.read_volatile() + 1);
        }
        verdict(made)
    }
}
