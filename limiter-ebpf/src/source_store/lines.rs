//! Stores the buckets of sources in lines of an array: [`limiter_decision::line`].
//!
//! A bucket in a line is passed to a subprogram as its entry and the name of its source.

use core::ptr::{NonNull, null_mut};

use aya_ebpf::{Global, bindings::BPF_F_MMAPABLE, btf_maps::Array, macros::btf_map};
use limiter_common::wire::{EntryKind, LineEntry};
use limiter_decision::line::Lines;

pub(crate) use self::words::{MapEntry, MapLine};

mod words;

/// Number of lines per family; 0 if sources have their buckets in hash maps.
#[unsafe(no_mangle)]
static SOURCE_LINES: Global<u32> = Global::new(0);

/// Number of lines of compact keys.
#[unsafe(no_mangle)]
static NARROW_LINES: Global<u32> = Global::new(0);

/// The seed of the hash that maps bucket keys to lines.
#[unsafe(no_mangle)]
static LINE_SEED: Global<u64> = Global::new(0);

const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

/// Buckets of IPv4 sources, then of IPv6 /64s, then of compact keys
/// ([`limiter_common::bucket_key::BucketKey`]): lines of eight values, of which the first is the
/// line's head. Written here; read by the daemon, which maps it. Eviction policy:
/// [`limiter_decision::line`]. The kernel allocates mappable maps on their own pages, so lines are
/// aligned to their size. An entry is a map value, not its line: without `CAP_PERFMON` the verifier
/// accepts any index, but walks far more once a number was added to a pointer into a value. For the
/// same reason all kinds are in one map.
#[btf_map]
static LINES: Array<LineEntry, 8, MMAPABLE> = Array::new();

/// An entry of a line, or its head.
#[inline(always)]
fn entry_at(line: &MapLine, way: u32) -> Option<NonNull<LineEntry>> {
    let index = line.index.wrapping_mul(8).wrapping_add(way & 7);
    // A nullable pointer instead of an `Option`: for `None` the compiler may put the pointer into a
    // register that was never written, which the verifier does not allow to be read.
    NonNull::new(LINES.get_ptr_mut(index).unwrap_or(null_mut()))
}

/// True if sources have their buckets in lines. The verifier knows the value, and removes the code
/// for the other one.
#[inline(always)]
pub(crate) fn are_used() -> bool {
    SOURCE_LINES.load() != 0
}

/// The lines of a kind; `None` if sources have their buckets in hash maps.
#[inline(always)]
pub(crate) fn all(kind: EntryKind) -> Option<Lines> {
    let own = SOURCE_LINES.load();
    if own == 0 {
        return None;
    }
    // Calculated instead of selected: the verifier knows both numbers, and would walk on with each.
    let is_compact = kind.index() >> 1;
    let more = NARROW_LINES.load().wrapping_sub(own);
    Some(Lines { count: own.wrapping_add(more.wrapping_mul(is_compact)), seed: LINE_SEED.load() })
}

#[inline(always)]
pub(crate) fn line(kind: EntryKind, index: u32) -> MapLine {
    MapLine { index: SOURCE_LINES.load().wrapping_mul(kind.index()).wrapping_add(index) }
}
