//! The seat of a source: the way in which it has its entry.

use limiter_common::bucket::Word;
use limiter_common::owner::Owner;

use super::lock::unlock;
use super::place::way;
use super::{Entry, Head, Line, LineBucket, Lines, Place, take_lock};
use crate::cell::Cell as _;
use crate::register::Register;
use crate::step::step;
use crate::world::World;

/// A way of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Index of the line.
    pub line: u32,
    /// The way.
    pub way: u32,
}

/// The register of no seat.
const NOWHERE: u64 = u64::MAX;

impl Register for Option<Seat> {
    const LOST: Self = None;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Some(Seat { line, way }) => u64::from(line) << 8 | u64::from(way),
            None => NOWHERE,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        if register == NOWHERE {
            return None;
        }
        Some(Seat { line: (register >> 8 & 0xffff_ffff) as u32, way: (register & 0xff) as u32 })
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

/// The lines of a source; `None` if its family is in a hash map, or it can have no entry.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn place_of<W: World>(maps: &W, owner: &Owner) -> Option<Place> {
    Some(Place::of(owner.name()?, maps.lines(owner.kind())?))
}

/// True if an entry, whose name was read, is being made or left. Otherwise its limit, read after
/// this, is no older than the name: who makes an entry stores the name first and the word last.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn is_being_made(entry: &impl Entry) -> bool {
    entry.name().acquire_fence();
    Word::from_raw(entry.word().load_acquire()).is_gone()
}

/// The bucket of a source, and its seat. `None` as well while it is being made: a packet that then
/// asks for the lock waits for that.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn seated<W: World>(
    maps: &W,
    owner: &Owner,
    lines: Lines,
) -> Option<(Seat, LineBucket<W::Line>)> {
    let family = owner.kind();
    let name = owner.name()?;
    let place = Place::of(name, lines);
    let line = place.first();
    let (seat, entry) =
        if let Some((way, entry)) = find(&maps.line(family, line)?, place.start(), name) {
            (Seat { line, way }, entry)
        } else {
            let seat = step!(elsewhere(maps; owner))?;
            (seat, maps.line(family, seat.line)?.entry(seat.way)?)
        };
    if is_being_made(&entry) {
        return None;
    }
    Some((seat, LineBucket::new(entry, name)))
}

/// The bucket of a source in the seat where it was found. If that is another source's by now, no
/// exchange succeeds.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn bucket_in<W: World>(
    maps: &W,
    owner: &Owner,
    Seat { line, way }: Seat,
) -> Option<LineBucket<W::Line>> {
    let entry = maps.line(owner.kind(), line)?.entry(way)?;
    Some(LineBucket::resume(entry, owner.name()?))
}

/// The bucket of a source, as [`seated`] finds it, all of it in a step.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn bucket_again<W: World>(maps: &W, owner: &Owner) -> Option<LineBucket<W::Line>> {
    let Seat { line, way } = step!(seat(maps; owner))?;
    let entry = maps.line(owner.kind(), line)?.entry(way)?;
    if is_being_made(&entry) {
        return None;
    }
    Some(LineBucket::new(entry, owner.name()?))
}

/// The seat of a source that is not in its first line.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn elsewhere<W: World>(maps: &W, owner: &Owner) -> Option<Seat> {
    let (kind, name, place) = (owner.kind(), owner.name()?, place_of(maps, owner)?);
    let line = place.second();
    if !place.is_one()
        && let Some((way, _)) = find(&maps.line(kind, line)?, place.start(), name)
    {
        return Some(Seat { line, way });
    }
    let first = maps.line(kind, place.first())?;
    if first.head(Head::Spilled).load() == 0 {
        return None;
    }
    let line = place.overflow()?;
    let (way, _) = find(&maps.line(kind, line)?, place.start(), name)?;
    Some(Seat { line, way })
}

/// The seat of a source.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn seat<W: World>(maps: &W, owner: &Owner) -> Option<Seat> {
    let (kind, name, place) = (owner.kind(), owner.name()?, place_of(maps, owner)?);
    let line = place.first();
    match find(&maps.line(kind, line)?, place.start(), name) {
        Some((way, _)) => Some(Seat { line, way }),
        None => elsewhere(maps, owner),
    }
}

/// Points the bucket of a source, in its seat, at another limit, if it still has the one that was
/// seen: under the lock, so that the way goes to nobody meanwhile.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn repoint<W: World>(maps: &W, owner: &Owner, seat: Option<Seat>, seen: u64, new: u64) {
    let (Some(Seat { line, way }), Some(name)) = (seat, owner.name()) else {
        return;
    };
    let Some(line) = maps.line(owner.kind(), line) else {
        return;
    };
    if !step!(take_lock(; &line)) {
        return;
    }
    if let Some(entry) = line.entry(way)
        && entry.name().load() == name
    {
        entry.resolved().compare_exchange(seen, new);
    }
    unlock(&line);
}
