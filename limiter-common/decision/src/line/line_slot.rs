//! The line slot of a source: the way that holds its entry.

use limiter_common::bucket::Word;
use limiter_common::bucket_key::BucketKey;

use super::lock::unlock;
use super::place::way;
use super::{Entry, Head, Line, LineBucket, Lines, Place, take_lock};
use crate::call::call;
use crate::cell::Cell as _;
use crate::maps::Maps;
use crate::register::Register;

/// A way of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSlot {
    /// Index among the lines of the family.
    pub line: u32,
    /// Place in the line, from 0.
    pub way: u32,
}

/// The register value for no line slot.
const NOWHERE: u64 = u64::MAX;

impl Register for Option<LineSlot> {
    const LOST: Self = None;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Some(LineSlot { line, way }) => u64::from(line) << 8 | u64::from(way),
            None => NOWHERE,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        if register == NOWHERE {
            return None;
        }
        Some(LineSlot { line: (register >> 8 & 0xffff_ffff) as u32, way: (register & 0xff) as u32 })
    }
}

/// The entry with a name, and its way.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn find<L: Line>(line: &L, start: u32, name: u64) -> Option<(u32, L::Entry)> {
    let mut step = 0;
    while step <= L::LAST {
        let way = way(start, step, L::LAST);
        if let Some(entry) = line.entry(way)
            && entry.name().load() == name
        {
            return Some((way, entry));
        }
        step += 1;
    }
    None
}

/// The lines of a source; `None` if its family is in a hash map, or it cannot have an entry.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn place_of<W: Maps>(maps: &W, bucket_key: &BucketKey) -> Option<Place> {
    Some(Place::of(bucket_key.name()?, maps.lines(bucket_key.kind())?))
}

/// True if an entry, whose name has been read, is being made or removed. Otherwise its limit, read
/// after this, is no older than the name, because making an entry stores the name first and the
/// word last.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn is_being_made(entry: &impl Entry) -> bool {
    entry.name().acquire_fence();
    Word::from_raw(entry.word().load_acquire()).is_gone()
}

/// The bucket of a source, and its line slot. Also `None` while it is being made: a packet that
/// then asks for the lock waits for that.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn in_line_slot<W: Maps>(
    maps: &W,
    bucket_key: &BucketKey,
    lines: Lines,
) -> Option<(LineSlot, LineBucket<W::Line>)> {
    let family = bucket_key.kind();
    let name = bucket_key.name()?;
    let place = Place::of(name, lines);
    let line = place.first();
    let (line_slot, entry) =
        if let Some((way, entry)) = find(&maps.line(family, line)?, place.start(), name) {
            (LineSlot { line, way }, entry)
        } else {
            let line_slot = call!(elsewhere(maps; bucket_key))?;
            (line_slot, maps.line(family, line_slot.line)?.entry(line_slot.way)?)
        };
    if is_being_made(&entry) {
        return None;
    }
    Some((line_slot, LineBucket::new(entry, name)))
}

/// The bucket of a source in the line slot where it was found. If that belongs to another source
/// now, no exchange succeeds.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn bucket_in<W: Maps>(
    maps: &W,
    bucket_key: &BucketKey,
    LineSlot { line, way }: LineSlot,
) -> Option<LineBucket<W::Line>> {
    let entry = maps.line(bucket_key.kind(), line)?.entry(way)?;
    Some(LineBucket::resume(entry, bucket_key.name()?))
}

/// The bucket of a source, found like [`in_line_slot`] does, entirely in a subprogram.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn bucket_again<W: Maps>(maps: &W, bucket_key: &BucketKey) -> Option<LineBucket<W::Line>> {
    let LineSlot { line, way } = call!(line_slot(maps; bucket_key))?;
    let entry = maps.line(bucket_key.kind(), line)?.entry(way)?;
    if is_being_made(&entry) {
        return None;
    }
    Some(LineBucket::new(entry, bucket_key.name()?))
}

/// The line slot of a source outside its first line.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn elsewhere<W: Maps>(maps: &W, bucket_key: &BucketKey) -> Option<LineSlot> {
    let (kind, name, place) = (bucket_key.kind(), bucket_key.name()?, place_of(maps, bucket_key)?);
    let line = place.second();
    if !place.is_one()
        && let Some((way, _)) = find(&maps.line(kind, line)?, place.start(), name)
    {
        return Some(LineSlot { line, way });
    }
    let first = maps.line(kind, place.first())?;
    if first.head(Head::Spilled).load() == 0 {
        return None;
    }
    let line = place.overflow()?;
    let (way, _) = find(&maps.line(kind, line)?, place.start(), name)?;
    Some(LineSlot { line, way })
}

/// The line slot of a source.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn line_slot<W: Maps>(maps: &W, bucket_key: &BucketKey) -> Option<LineSlot> {
    let (kind, name, place) = (bucket_key.kind(), bucket_key.name()?, place_of(maps, bucket_key)?);
    let line = place.first();
    match find(&maps.line(kind, line)?, place.start(), name) {
        Some((way, _)) => Some(LineSlot { line, way }),
        None => elsewhere(maps, bucket_key),
    }
}

/// Points the bucket of a source, in its line slot, to another limit, if it still has the one in
/// `seen`. Holds the lock, so that the way is not given away meanwhile.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn repoint<W: Maps>(
    maps: &W,
    bucket_key: &BucketKey,
    line_slot: Option<LineSlot>,
    seen: u64,
    new: u64,
) {
    let (Some(LineSlot { line, way }), Some(name)) = (line_slot, bucket_key.name()) else {
        return;
    };
    let Some(line) = maps.line(bucket_key.kind(), line) else {
        return;
    };
    if !call!(take_lock(; &line)) {
        return;
    }
    if let Some(entry) = line.entry(way)
        && entry.name().load() == name
    {
        entry.resolved().compare_exchange(seen, new);
    }
    unlock(&line);
}
