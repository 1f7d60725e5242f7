//! The store of the buckets of sources that short limits may have: lines of an array,
//! [`limiter_common::line`]. It has what `hashed` has in the program for hash maps.
//!
//! A bucket in a line crosses to a step as its entry, and the name of its source.

use core::ptr::{NonNull, null_mut};

use aya_ebpf::{Global, bindings::BPF_F_MMAPABLE, btf_maps::Array, macros::btf_map};
use limiter_common::entries::source::name;
use limiter_common::line::{LineBucket, Lines};
use limiter_common::outcome::Insert;
use limiter_common::source::Source;
use limiter_common::wire::{Bucket, EntryKind, LineEntry};

use self::words::MapEntry;
pub(crate) use self::words::MapLine;
use crate::step::define_steps;
use crate::world::atomic::MapWord;
use crate::world::verifier::apart;
use crate::world::{Kernel, SourceStore};

mod words;

limiter_common::line_steps!(define_steps);

/// Number of lines of a family.
#[unsafe(no_mangle)]
static SOURCE_LINES: Global<u32> = Global::new(0);

/// The seed of the hash that gives IPv4 sources their lines.
#[unsafe(no_mangle)]
static SOURCE_SEED_V4: Global<u64> = Global::new(0);

/// The seed of the hash that gives IPv6 sources their lines.
#[unsafe(no_mangle)]
static SOURCE_SEED_V6: Global<u64> = Global::new(0);

const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

/// Buckets of IPv4 sources: lines of eight, of which the first is the line's head. Written here;
/// read by the daemon, which maps it. What may leave: [`limiter_common::line`]. The kernel puts
/// what can be mapped on pages of its own, so lines are aligned to their size. An entry is a value
/// of its own, and not its line: without `CAP_PERFMON` the verifier takes an index of any number,
/// but walks far more once a number was added to a pointer into a value.
#[btf_map]
static LINES_V4: Array<LineEntry, 8, MMAPABLE> = Array::new();

/// Buckets of IPv6 /64s, as [`LINES_V4`].
#[btf_map]
static LINES_V6: Array<LineEntry, 8, MMAPABLE> = Array::new();

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

impl SourceStore for Kernel {
    type Bucket = LineEntry;
    type SourceBucket = LineBucket<MapLine>;
    type Line = MapLine;

    /// The bucket of a source; its limit is read before anything else.
    #[inline(always)]
    fn at(&self, bucket: *mut LineEntry, source: &Source) -> Option<LineBucket<MapLine>> {
        Some(LineBucket::resume(MapEntry(NonNull::new(bucket)?), name(source)?))
    }

    #[inline(always)]
    fn named(&self, bucket: *mut LineEntry, name: u64) -> Option<LineBucket<MapLine>> {
        Some(LineBucket::resume(MapEntry(NonNull::new(bucket)?), name))
    }

    #[inline(always)]
    fn of_source(&self, _source: &Source) -> Option<LineBucket<MapLine>> {
        None
    }

    #[inline(always)]
    fn make(&self, _source: &Source, _bucket: &Bucket) -> Insert {
        Insert::Refused
    }

    #[inline(always)]
    fn take_away(&self, _source: &Source) {}

    #[inline(always)]
    fn source_ring_slot(&self, _kind: EntryKind, _index: u32) -> Option<MapWord> {
        None
    }

    #[inline(always)]
    fn all_lines(&self, kind: EntryKind) -> Option<Lines> {
        let v4 = matches!(kind, EntryKind::V4);
        let seed = if v4 { SOURCE_SEED_V4.load() } else { SOURCE_SEED_V6.load() };
        Some(Lines { count: SOURCE_LINES.load(), seed })
    }

    #[inline(always)]
    fn line_at(&self, kind: EntryKind, index: u32) -> Option<MapLine> {
        Some(MapLine { index, version: if matches!(kind, EntryKind::V4) { 4 } else { 6 } })
    }
}
