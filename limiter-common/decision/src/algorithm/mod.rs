//! The algorithms beside [`crate::gcra`]: pure decisions over 64-bit words, and the
//! compare-and-exchange loops that apply them.
//!
//! Every module has the same shape. The *decision* takes the limit, the word or words of one key,
//! the time and the units of the packet, and returns what to store, or nothing when the packet is
//! over the limit: an over-limit packet changes no state and needs no write. The *charge* runs the
//! decision against shared [`Cell`]s.
//!
//! | module | words | what it holds |
//! |---|---|---|
//! | [`leaky_bucket`] | 1 | even spacing, up to a backlog in time |
//! | [`fixed_window`] | 1 | a count in each aligned window |
//! | [`sliding_counter`] | 2 | this window and a share of the last one |
//! | [`sliding_slots`] | 2, 4 or 8 | the counts of the last slots |
//! | [`sliding_log`] | 1 + N | any N packets, exactly |
//! | [`two_rate`] | 2 | green, yellow, red |
//! | [`soft`] | those of two limits | over is marked up to a ceiling |
//!
//! All words of zero are a key that was never seen. No word uses its highest bit: what keeps the
//! words may shift them by one and put a mark beside the state, as [`limiter_common::bucket::Word`]
//! does.

pub mod fixed_window;
pub mod leaky_bucket;
pub mod sliding_counter;
pub mod sliding_log;
pub mod sliding_slots;
pub mod soft;
pub mod two_rate;

use crate::cell::Cell;
use crate::rounds::MAX_TRIES;
use crate::rounds::Rounds;

/// The result of charging a packet to one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charged {
    /// The packet conforms and is charged.
    Conforming,
    /// The packet is over the limit; nothing changed.
    Over,
    /// Other CPUs changed the state [`MAX_TRIES`] times in between; nothing changed.
    Contended,
}

/// The words of one key, in place.
pub trait Words {
    /// The type of one word.
    type Cell: Cell;

    /// The word at `index`, `None` past the end.
    fn cell(&self, index: u32) -> Option<Self::Cell>;
}

impl<'words, T, const N: usize> Words for &'words [T; N]
where
    &'words T: Cell,
{
    type Cell = &'words T;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn cell(&self, index: u32) -> Option<Self::Cell> {
        self.get(index as usize)
    }
}

/// Charges a packet to a state of one word. `decide` is one of the decisions of this module.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge(cell: &impl Cell, decide: impl Fn(u64) -> Option<u64>) -> Charged {
    let mut word = cell.load();
    let mut rounds = Rounds::new();
    while rounds.more(MAX_TRIES) {
        let Some(next) = decide(word) else {
            return Charged::Over;
        };
        if cell.compare_exchange(word, next) {
            return Charged::Conforming;
        }
        word = cell.load();
    }
    Charged::Contended
}

/// One word of several to be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The index of the word.
    pub index: u32,
    /// The word before the exchange.
    pub old: u64,
    /// The word after the exchange.
    pub new: u64,
}

/// Charges a packet to a state of up to `N` words, of which it changes one. Missing words read as
/// zero.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn charge_one_of<const N: usize>(
    words: &impl Words,
    decide: impl Fn(&[u64; N]) -> Option<Change>,
) -> Charged {
    let mut rounds = Rounds::new();
    while rounds.more(MAX_TRIES) {
        // Written element by element, because clearing an array at once is a call of memset, which
        // the verifier rejects.
        let mut next = 0;
        let copy = core::array::from_fn(|_| {
            let index = next;
            next += 1;
            words.cell(index).map_or(0, |cell| cell.load())
        });
        let Some(Change { index, old, new }) = decide(&copy) else {
            return Charged::Over;
        };
        let Some(cell) = words.cell(index) else {
            return Charged::Over;
        };
        if cell.compare_exchange(old, new) {
            return Charged::Conforming;
        }
    }
    Charged::Contended
}
