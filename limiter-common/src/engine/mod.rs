//! The decision for one packet: parse, ask the lists, charge every bucket that it falls under.
//!
//! [`gate`] says which way it goes on. With the source table alone and nothing but drops over its
//! limits, that is one look-up in a bucket map: [`plain_source`]. Everything else goes through
//! [`crate::table::drive`].

pub mod source;

use crate::bucket::Generation;
use crate::outcome::Packed;
use crate::packet::{self, Bytes, Packet};
use crate::source::Source;
use crate::time::Ticks;
use crate::verdict::Reason;
use crate::wire::{Listed, RuleSetHeader};
use crate::world::Maps;

pub use source::{Change, arrival};

/// A packet on its way into the source table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// Whose it is.
    pub source: Source,
    /// The rule set that judges it.
    pub generation: Generation,
    /// Its length in bytes.
    pub length: u64,
    /// When it came.
    pub now: Ticks,
    /// Whether the action of a limit that it is over is still to be asked.
    pub deferred: bool,
}

impl Arriving {
    const DEFERRED: u64 = 1 << 8;
    const GENERATION: u32 = 16;

    /// The same packet at another time.
    #[inline(always)]
    #[must_use]
    pub const fn at(&self, now: Ticks) -> Self {
        Self { now, ..*self }
    }

    /// All but the address, the length and the time, for a register: `generation:25 | deferred:1 |
    /// version:8`, from bit 16, 8 and 0.
    #[inline(always)]
    pub const fn kind(&self) -> u64 {
        let deferred = if self.deferred { Self::DEFERRED } else { 0 };
        let (_, version) = self.source.to_word();
        (self.generation.get() as u64) << Self::GENERATION | deferred | version as u64
    }

    /// Takes the four registers: the address, [`Arriving::kind`], the length and the time.
    #[inline(always)]
    pub const fn of_registers([address, kind, length, now]: [u64; 4]) -> Self {
        Self {
            source: Source::from_word(address, (kind & 0xff) as u32),
            generation: Generation::new(kind >> Self::GENERATION),
            length,
            now: Ticks::new(now),
            deferred: kind & Self::DEFERRED != 0,
        }
    }
}

/// Where a packet goes on behind [`gate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nowhere: it is judged, and no rule was asked.
    Done(Reason),
    /// To the source table alone, of a rule set that has nothing else: [`plain_source`].
    Sources(Arriving),
    /// To the tables: [`crate::table::begin_packet`], and then [`crate::table::drive`].
    Tables {
        /// The rule set that judges it.
        generation: Generation,
        /// What there is in it.
        header: RuleSetHeader,
        /// When it came.
        now: Ticks,
    },
}

/// The source table alone: over a limit is a drop.
#[inline(always)]
pub fn plain_source<M: Maps>(maps: &M, arriving: &Arriving) -> Packed {
    source::judge(maps, &Arriving { deferred: false, ..*arriving }).0
}

/// Everything before the source table and the tables, of a frame of `length` bytes (of which
/// `frame` may show only the beginning). `now` may be up to [`crate::clock::SLACK`] before: an
/// entry of a list ends that much later.
#[inline(always)]
pub fn gate<M: Maps>(maps: &M, frame: &impl Bytes, length: u64, now: Ticks) -> Next {
    if maps.brake() {
        return Next::Done(Reason::Brake);
    }
    if now.is_past_range() {
        return Next::Done(Reason::Untracked);
    }
    let source = match packet::parse(frame) {
        Packet::Exempt(reason) => return Next::Done(reason),
        Packet::From(source) => source,
    };
    match maps.listed(&source, now) {
        Some(Listed::Allow | Listed::Management) => return Next::Done(Reason::Allowed),
        Some(Listed::Deny) => return Next::Done(Reason::Denied),
        None => {}
    }
    if maps.banned(&source, now) {
        return Next::Done(Reason::Banned);
    }
    let mut generation = maps.generation();
    let mut header = maps.header(generation);
    if header.is_on_trial() && maps.trial_ended(now) {
        // The generation after it has the buffers of the one before it, where nothing was written
        // since.
        generation = generation.next();
        header = maps.header(generation);
    }
    if header.drops_martians() && source.is_martian() {
        return Next::Done(Reason::Martian);
    }
    if header.is_plain() {
        return Next::Sources(Arriving { source, generation, length, now, deferred: false });
    }
    Next::Tables { generation, header, now: maps.exact(now) }
}
