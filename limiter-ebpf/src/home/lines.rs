//! The home of the buckets of sources that short limits may have: lines of an array,
//! [`limiter_common::line`]. It has what `hashed` has in the program for hash maps.
//!
//! A bucket in a line crosses to a step as its entry, and the name of its source.

use core::ptr::{NonNull, null_mut};

use aya_ebpf::{Global, bindings::BPF_F_MMAPABLE, btf_maps::Array, macros::btf_map};
use limiter_common::line::{self, Made, Place as Found, Tenant, settle};
use limiter_common::outcome::Insert;
use limiter_common::register::Register;
use limiter_common::room::Leave;
use limiter_common::room::admission::admit;
use limiter_common::room::source::{lane, name};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, Lane, LineEntry};

use self::words::MapEntry;
pub(crate) use self::words::MapLine;
use crate::step::{define_steps, step};
use crate::world::{Home, Kernel, apart};

#[path = "line_words.rs"]
mod words;

/// The steps of this home.
macro_rules! own_steps {
    ($made:ident) => {
        $made! {
            admit = limiter_common::room::admission::admit, (world) (half word);
            insert_line = crate::home::lines::insert_line, () (word half word word word);
            settle = limiter_common::line::settle, (world) (half half word);
        }
    };
}

limiter_common::line_steps!(define_steps);
own_steps!(define_steps);

/// The steps of this home as BPF functions.
#[cfg(target_arch = "bpf")]
mod call {
    use limiter_common::declare_steps;

    own_steps!(declare_steps);
}

/// Lines of a family.
#[unsafe(no_mangle)]
static SOURCE_LINES: Global<u32> = Global::new(0);

/// Where IPv4 sources have their lines.
#[unsafe(no_mangle)]
static SOURCE_SEED_V4: Global<u64> = Global::new(0);

/// Where IPv6 sources have their lines.
#[unsafe(no_mangle)]
static SOURCE_SEED_V6: Global<u64> = Global::new(0);

const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

/// Buckets of IPv4 sources: lines of eight, of which the first is the line's head. Written here;
/// read by the daemon, which maps it. What may leave: [`line::keep`]. The kernel puts what can be
/// mapped on pages of its own, so lines are aligned to their size. An entry is a value of its own,
/// and not its line: without `CAP_PERFMON` the verifier takes an index of any number, but walks far
/// more once a number was added to a pointer into a value.
#[btf_map]
static LINES_V4: Array<LineEntry, 8, MMAPABLE> = Array::new();

/// Buckets of IPv6 /64s. As above.
#[btf_map]
static LINES_V6: Array<LineEntry, 8, MMAPABLE> = Array::new();

/// The line of a name, and the way at which the search begins.
#[inline(always)]
fn line_of(name: u64, version: u32) -> (MapLine, u32) {
    let seed = if version == 4 { SOURCE_SEED_V4.load() } else { SOURCE_SEED_V6.load() };
    let Found { line: index, start } = Found::of(name, seed, SOURCE_LINES.load());
    (MapLine { index, version }, start)
}

/// An entry of a line, or its head.
#[inline(always)]
fn entry_at(line: &MapLine, way: u32) -> Option<NonNull<LineEntry>> {
    let index = line.index.wrapping_mul(8).wrapping_add(way & 7);
    // As in `by_family`: the kernel looks into an array that it knows without a call. A pointer
    // that may be null, and not an `Option` of one: the compiler may put the pointer of a `None`
    // into a register that was never written, which the verifier refuses to read.
    let entry = if line.version == 4 {
        let entry = LINES_V4.get_ptr_mut(index).unwrap_or(null_mut());
        apart::<4>();
        entry
    } else {
        let entry = LINES_V6.get_ptr_mut(index).unwrap_or(null_mut());
        apart::<6>();
        entry
    };
    NonNull::new(entry)
}

/// A first packet of a source of a family.
#[derive(Clone, Copy)]
pub(crate) struct First {
    lane: Lane,
    dropped: bool,
}

impl Register for First {
    #[inline(always)]
    fn to_register(self) -> u64 {
        self.lane.to_register() | u64::from(self.dropped) << 8
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        Self { lane: Lane::of_register(register & 0xff), dropped: register >> 8 & 1 != 0 }
    }
}

/// [`line::insert`], with these two words.
#[inline(always)]
pub(crate) fn insert_line(
    name: u64,
    First { lane, dropped }: First,
    word: u64,
    resolved: u64,
    now: Ticks,
) -> Made {
    let (line, start) = line_of(name, version(lane));
    let dropped = u64::from(dropped);
    let bucket = Bucket { word, resolved, passed: 1 - dropped, dropped };
    let [keep, least] = line::keep(&Kernel, lane, now);
    line::insert(&line, start, name, &bucket, &Leave { now, keep }, least)
}

#[inline(always)]
fn version(lane: Lane) -> u32 {
    if matches!(lane, Lane::V4) { 4 } else { 6 }
}

impl Home for Kernel {
    type Bucket = LineEntry;
    type Meter = Tenant<MapLine>;

    #[inline(always)]
    fn find(&self, source: &Source) -> Option<Tenant<MapLine>> {
        let name = name(source)?;
        let (line, start) = line_of(name, source.to_word().1);
        line::tenant(&line, start, name)
    }

    /// Its limit is read before anything else.
    #[inline(always)]
    fn at(&self, bucket: *mut LineEntry, source: &Source) -> Option<Tenant<MapLine>> {
        let name = name(source)?;
        let entry = MapEntry(NonNull::new(bucket)?);
        Some(Tenant::resume(line_of(name, source.to_word().1).0, entry, name))
    }

    #[inline(always)]
    fn named(&self, bucket: *mut LineEntry, name: u64) -> Option<Tenant<MapLine>> {
        let entry = MapEntry(NonNull::new(bucket)?);
        // Of the line it takes nothing but its lock, so any will do.
        Some(Tenant::resume(line_of(name, 4).0, entry, name))
    }

    #[inline(always)]
    fn count_drops(&self, meter: &Tenant<MapLine>, packets: u64) {
        meter.entry().count_drops((packets & 0xffff_ffff) as u32);
    }

    /// In three steps, one after the other: their callers share 512 bytes of stack with them.
    #[inline(always)]
    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
        let (Some(name), lane) = (name(source), lane(source)) else {
            return Insert::Refused;
        };
        if !step!(here admit(self; lane, now)) {
            return Insert::Refused;
        }
        let first = First { lane, dropped: bucket.dropped & 1 != 0 };
        let made = step!(here insert_line(; name, first, bucket.word, bucket.resolved, now));
        step!(here settle(self; lane, made, now))
    }
}
