//! Every algorithm behind one interface, over the words of a [`limiter_common::wire::KeyedBucket`].
//!
//! A shared word is 63 bits of an algorithm's state over one *scale bit*, as
//! [`limiter_common::bucket::Word`] is for the source table. The caller says which scale bit its
//! limit has; a word with the other one is the state of another limit, and nothing is stored then
//! ([`Peek::Moved`], [`Charged::Moved`]). Because the bit is part of the compared word, a charge
//! that was computed under one limit cannot be stored under the next.
//!
//! A packet that meets several limits is asked everywhere first and then charged everywhere; where
//! a charge fails after all, those before it are taken back with [`undo`]. That is exact:
//!
//! * A charge is taken back only if nobody has charged the same word since, and then the word is
//!   what it was, byte for byte. Otherwise it stays: the source has a little less, never more.
//! * Charges raise a word and taking one back lowers it to where it was: the values of a word are a
//!   stack, so one that is equal to what a charge stored holds that charge on top.
//! * A word that was converted to another limit meanwhile has the other scale bit, and stays.
//! * What another CPU decided in between, it decided with the charge in place: strictly.
//! * A log's head stays where it is. The entry that was given back is skipped until the head comes
//!   round: one packet less, for at most one window.
//!
//! [`carry`] has the change of a limit.

pub mod carry;
mod decide;
mod exchange;
mod place;
pub mod plain;
mod share;

pub use carry::{
    Carried, Seed, carried, carried_tat, converted, goes_on, proportion, raised, resized, seed,
    seeded_at, used, used_at,
};
pub use exchange::{Unit, Units, exchange, owed};
pub use share::Share;

use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{Algorithm, LimitSpec};

use self::decide::{Decide, Decision, Visitor};
use self::place::LAST;
use crate::algorithm::{Words, leaky_bucket};
use crate::cell::Cell;
use crate::gcra;
use crate::register::variants;
use crate::rounds::MAX_TRIES;
use crate::rounds::Rounds;

/// The arrival of a packet: its time, its units, and the offset of the wall clock's windows.
///
/// A packet of no units conforms everywhere and is charged nowhere.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Time of arrival.
    pub now: Ticks,
    /// The offset of windows of [`limiter_common::wire::Algorithm::FixedWindow`].
    pub offset: WallOffset,
    /// Units that are charged. A log counts every frame as one.
    pub units: u64,
    /// True for a super-frame, which is not split: one of more units than a bucket ever has room
    /// for conforms where nothing is used.
    pub is_super_frame: bool,
}

/// The result of a look that charges nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Peek {
    /// A charge at once would pass.
    Conforming,
    /// The packet is over the limit.
    Over,
    /// A word has the other scale bit: the state belongs to another limit.
    Moved,
}

/// The result of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Charged {
    /// The packet conforms and is charged.
    Conforming,
    /// The packet is over the limit; nothing changed.
    Over,
    /// Other CPUs changed the state [`MAX_TRIES`] times in between; nothing changed.
    Contended,
    /// A word has the other scale bit: the state belongs to another limit. Nothing changed.
    Moved,
}

variants!(Peek: Conforming Over, else Moved; lost Moved);
variants!(Charged: Conforming Over Contended, else Moved; lost Moved);

/// The exchange that takes a charge back: the word at `index`, from `new` to `old`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undo {
    /// The index among all words of the bucket.
    pub index: u32,
    /// The word before the charge, with its scale bit.
    pub old: u64,
    /// The word after the charge, with its scale bit.
    pub new: u64,
}

/// Looks at a limit without charging the packet. Changes nothing.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn peek<W: Words>(spec: &LimitSpec, words: &W, scale: bool, arrival: &Arrival) -> Peek {
    if arrival.units == 0 {
        return Peek::Conforming;
    }
    decide::with(spec, words, scale, arrival, PeekVisitor)
}

struct PeekVisitor;

impl Visitor for PeekVisitor {
    type Outcome = Peek;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn visit(self, packet: &impl Decide) -> Peek {
        let mut ahead = None;
        let mut rounds = Rounds::new();
        while rounds.more(MAX_DECISIONS) {
            match packet.decide(ahead) {
                Decision::Moved => return Peek::Moved,
                Decision::Over => return Peek::Over,
                Decision::Pass(_) | Decision::PassAndMove(..) => return Peek::Conforming,
                Decision::Behind(head) => ahead = Some(head.new),
            }
        }
        // Packets are passing just now; the charge decides.
        Peek::Conforming
    }
}

/// Decisions in one [`peek`] at a log: its head is at most one entry behind, and one more may pass
/// between two reads.
const MAX_DECISIONS: u64 = 3;

/// Charges a packet. Writes `undo` when it returns [`Charged::Conforming`], and only then.
pub fn charge<W: Words>(
    spec: &LimitSpec,
    words: &W,
    scale: bool,
    arrival: &Arrival,
    undo: &mut Undo,
) -> Charged {
    repeat(|| attempt(spec, words, scale, arrival, undo))
}

/// Repeats [`attempt`] while another CPU is faster.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn repeat(mut attempt: impl FnMut() -> Charged) -> Charged {
    let mut rounds = Rounds::new();
    while rounds.more(MAX_TRIES) {
        let charged = attempt();
        if !matches!(charged, Charged::Contended) {
            return charged;
        }
    }
    Charged::Contended
}

/// Tries once to charge a packet: [`Charged::Contended`] when another CPU was faster.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn attempt<W: Words>(
    spec: &LimitSpec,
    words: &W,
    scale: bool,
    arrival: &Arrival,
    undo: &mut Undo,
) -> Charged {
    if arrival.units == 0 {
        *undo = Undo { index: NOWHERE, old: 0, new: 0 };
        return Charged::Conforming;
    }
    decide::with(spec, words, scale, arrival, ChargeVisitor { words, undo })
}

struct ChargeVisitor<'run, W> {
    words: &'run W,
    undo: &'run mut Undo,
}

impl<W: Words> Visitor for ChargeVisitor<'_, W> {
    type Outcome = Charged;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn visit(self, packet: &impl Decide) -> Charged {
        let Self { words, undo } = self;
        match packet.decide(None) {
            Decision::Moved => return Charged::Moved,
            Decision::Over => return Charged::Over,
            Decision::Behind(head) => {
                store(words, head.index, head.old, head.new);
            }
            Decision::Pass(change) => {
                if store(words, change.index, change.old, change.new) {
                    *undo = change;
                    return Charged::Conforming;
                }
            }
            Decision::PassAndMove(change, head) => {
                if store(words, change.index, change.old, change.new) {
                    *undo = change;
                    // A faster CPU may have moved it already.
                    store(words, head.index, head.old, head.new);
                    return Charged::Conforming;
                }
            }
        }
        Charged::Contended
    }
}

/// The index in the undo of a packet of no units.
const NOWHERE: u32 = LAST + 1;

/// The instant at which a packet that was charged to a limit at `now` conforms there: `now`, or
/// later where the limit lets packets wait ([`LimitSpec::longest_wait`]).
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn departure(spec: &LimitSpec, charge: &Undo, now: Ticks) -> Ticks {
    let (before, after) = (Ticks::new_within(charge.old >> 1), Ticks::new_within(charge.new >> 1));
    match spec.algorithm() {
        Algorithm::TokenBucket => gcra::departure(&spec.rate(), before, after, now),
        Algorithm::LeakyBucket => leaky_bucket::departure(&spec.rate(), before, now),
        _ => now,
    }
}

/// Takes a charge back if nobody has charged the word since; otherwise it stays charged, the safe
/// side. True if the charge was taken back.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn undo<W: Words>(words: &W, undo: &Undo) -> bool {
    undo.index == NOWHERE || store(words, undo.index, undo.new, undo.old)
}

/// Stores a word, if it still is what it was.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn store<W: Words>(words: &W, index: u32, current: u64, new: u64) -> bool {
    // The caller's words are all of a bucket, so a masked index needs no check.
    match words.cell(index & LAST) {
        Some(cell) => cell.compare_exchange(current, new),
        None => false,
    }
}
