//! The store of the buckets of sources that short limits may have: lines of an array,
//! [`limiter_decision::line`]. It has what `hashed` has in the program for hash maps.
//!
//! A bucket in a line crosses to a step as its entry, and the name of its source.

use core::cell::Cell;
use core::ptr::{NonNull, null_mut};

use aya_ebpf::{Global, bindings::BPF_F_MMAPABLE, btf_maps::Array, macros::btf_map};
use limiter_common::owner::Owner;
use limiter_common::wire::{Bucket, EntryKind, LineEntry};
use limiter_decision::line::{LineBucket, Lines};
use limiter_decision::outcome::Insert;

use self::words::MapEntry;
pub(crate) use self::words::MapLine;
use crate::define_steps::define_steps;
use crate::world::atomic::MapWord;
use crate::world::{Kernel, SourceStore};

mod words;

limiter_decision::line_steps!(define_steps);

/// Number of lines of a family.
#[unsafe(no_mangle)]
static SOURCE_LINES: Global<u32> = Global::new(0);

/// Number of lines of narrow keys.
#[unsafe(no_mangle)]
static NARROW_LINES: Global<u32> = Global::new(0);

/// The seed of the hash that gives owners their lines.
#[unsafe(no_mangle)]
static LINE_SEED: Global<u64> = Global::new(0);

const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

/// Buckets of IPv4 sources, then those of IPv6 /64s, then those of narrow keys
/// ([`limiter_common::owner::Owner`]): lines of eight, of which the first is the line's head.
/// Written here; read by the daemon, which maps it. What may leave: [`limiter_decision::line`]. The
/// kernel puts what can be mapped on pages of its own, so lines are aligned to their size. An entry
/// is a value of its own, and not its line: without `CAP_PERFMON` the verifier takes an index of
/// any number, but walks far more once a number was added to a pointer into a value. For that
/// reason all kinds are in one map, too.
#[btf_map]
static LINES: Array<LineEntry, 8, MMAPABLE> = Array::new();

/// An entry of a line, or its head.
#[inline(always)]
fn entry_at(line: &MapLine, way: u32) -> Option<NonNull<LineEntry>> {
    let index = line.index.wrapping_mul(8).wrapping_add(way & 7);
    // A pointer that may be null, and not an `Option` of one: the compiler may put the pointer of a
    // `None` into a register that was never written, which the verifier refuses to read.
    NonNull::new(LINES.get_ptr_mut(index).unwrap_or(null_mut()))
}

impl SourceStore for Kernel {
    type Bucket = LineEntry;
    type SourceBucket = LineBucket<MapLine>;
    type Line = MapLine;

    /// The bucket of a source; its limit is read before anything else.
    #[inline(always)]
    fn at(&self, bucket: *mut LineEntry, owner: &Owner) -> Option<LineBucket<MapLine>> {
        Some(LineBucket::resume(MapEntry(NonNull::new(bucket)?), owner.name()?))
    }

    #[inline(always)]
    fn named(&self, bucket: *mut LineEntry, name: u64) -> Option<LineBucket<MapLine>> {
        Some(LineBucket::resume(MapEntry(NonNull::new(bucket)?), name))
    }

    #[inline(always)]
    fn of_owner(&self, _owner: &Owner) -> Option<LineBucket<MapLine>> {
        None
    }

    #[inline(always)]
    fn of_word(&self, _word: &Cell<u64>) -> Option<LineBucket<MapLine>> {
        None
    }

    #[inline(always)]
    fn make(&self, _owner: &Owner, _bucket: &Bucket) -> Insert {
        Insert::Refused
    }

    #[inline(always)]
    fn take_away(&self, _owner: &Owner) {}

    #[inline(always)]
    fn source_ring_slot(&self, _kind: EntryKind, _index: u32) -> Option<MapWord> {
        None
    }

    #[inline(always)]
    fn all_lines(&self, kind: EntryKind) -> Option<Lines> {
        // Worked out and not chosen: the verifier knows both numbers, and would walk on with each.
        let is_narrow = kind.index() >> 1;
        let more = NARROW_LINES.load().wrapping_sub(SOURCE_LINES.load());
        let count = SOURCE_LINES.load().wrapping_add(more.wrapping_mul(is_narrow));
        Some(Lines { count, seed: LINE_SEED.load() })
    }

    #[inline(always)]
    fn line_at(&self, kind: EntryKind, index: u32) -> Option<MapLine> {
        Some(MapLine { index: SOURCE_LINES.load().wrapping_mul(kind.index()).wrapping_add(index) })
    }
}
