//! The insertion of an entry into the line table by the rules of [`crate::entries`]: new ones have
//! a budget, and while there are more than may be, those that were used lately stay.

use super::{LineBucket, LineInsert, Place, insert};
use crate::entries::admission::{full, is_flooded};
use crate::entries::source::{kind, name};
use crate::entries::{EntryTableWords as _, EvictionPolicy, bump};
use crate::outcome::Insert;
use crate::register::{Register, answer};
use crate::source::Source;
use crate::step::step;
use crate::time::Ticks;
use crate::wire::{Bucket, EntryKind};
use crate::world::World;

/// The line of a name, and the way at which the search begins; `None` if the sources of its family
/// are in a hash map.
#[inline(always)]
pub fn place<W: World>(maps: &W, kind: EntryKind, name: u64) -> Option<(W::Line, u32)> {
    let Place { line, start } = Place::of(name, &maps.lines(kind)?);
    Some((maps.line(kind, line)?, start))
}

/// The bucket of a source in its line; `None` if it has none there.
#[inline(always)]
pub fn bucket_of<W: World>(maps: &W, source: &Source) -> Option<LineBucket<W::Line>> {
    let family = kind(source);
    // Before anything else: with a hash map, nothing of this is in the program.
    maps.lines(family)?;
    let name = name(source)?;
    let (line, start) = place(maps, family, name)?;
    super::bucket(&line, start, name)
}

/// A first packet of a source of a family.
#[derive(Clone, Copy, Debug)]
pub struct FirstPacket {
    kind: EntryKind,
    dropped: bool,
}

impl Register for FirstPacket {
    #[inline(always)]
    fn to_register(self) -> u64 {
        self.kind.to_register() | u64::from(self.dropped) << 8
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        Self { kind: EntryKind::of_register(register & 0xff), dropped: register >> 8 & 1 != 0 }
    }
}

answer!(FirstPacket, Self { kind: EntryKind::V4, dropped: false });

/// Makes the entry of a source in its line, if that has room, and counts the result. In two steps,
/// one after the other: their callers share 512 bytes of stack with them.
#[inline(always)]
pub fn enter<W: World>(
    maps: &W,
    kind: EntryKind,
    name: u64,
    bucket: &Bucket,
    now: Ticks,
) -> Insert {
    let first = FirstPacket { kind, dropped: bucket.dropped & 1 != 0 };
    let made = step!(insert_line(maps; name, first, bucket.word, bucket.resolved, now));
    step!(count_insert(maps; kind, made, now))
}

/// [`insert`], with the two words of the bucket.
#[inline(always)]
pub fn insert_line<W: World>(
    maps: &W,
    name: u64,
    FirstPacket { kind, dropped }: FirstPacket,
    word: u64,
    resolved: u64,
    now: Ticks,
) -> LineInsert {
    let Some((line, start)) = place(maps, kind, name) else {
        return LineInsert::without(Insert::Refused);
    };
    let dropped = u64::from(dropped);
    let bucket = Bucket { word, resolved, passed: 1 - dropped, dropped };
    let [keep, least] = keep(maps, kind, now);
    insert(&line, start, name, &bucket, &EvictionPolicy { now, keep }, least)
}

/// Counts the result of an insert.
#[inline(always)]
pub fn count_insert<W: World>(maps: &W, kind: EntryKind, made: LineInsert, now: Ticks) -> Insert {
    let LineInsert { insert, evicted } = made;
    if matches!(insert, Insert::Refused) {
        full(maps, kind, now);
    }
    if matches!(insert, Insert::Made)
        && let Some(admission) = maps.admission(kind)
    {
        bump(&admission.made);
        if evicted {
            bump(&admission.evicted);
        }
    }
    insert
}

/// The time for which an entry stays that was used more than once, and the time where no other may
/// leave. Without a flood, the one that drained first leaves then, however lately that was.
#[inline(always)]
fn keep<W: World>(maps: &W, kind: EntryKind, now: Ticks) -> [Ticks; 2] {
    match maps.entry_table(kind) {
        Some(entry_table) if is_flooded(&entry_table, now) => {
            [entry_table.keep(), entry_table.keep()]
        }
        Some(entry_table) => [entry_table.keep(), Ticks::ZERO],
        None => [Ticks::ZERO; 2],
    }
}
