//! Sources with a ban on record.

use core::hint::black_box;
use core::ptr::NonNull;

use limiter_common::wire::Ban;
use limiter_decision::ban::Entry;
use limiter_decision::cell::Cell;

use super::atomic::MapWord;

/// A source on record, inside the map.
pub(crate) struct MapBan(NonNull<Ban>);

impl MapBan {
    /// Wraps the result of a map look-up.
    #[inline(always)]
    pub(super) fn new(ban: NonNull<Ban>) -> Self {
        Self(ban)
    }
}

impl Entry for MapBan {
    #[inline(always)]
    fn until(&self) -> impl Cell {
        // SAFETY: a field of a whole value of a map, alive for this run of the program.
        unsafe { MapWord::new(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).until)) }
    }

    #[inline(always)]
    fn history(&self) -> impl Cell {
        // SAFETY: a field of a whole value of a map, alive for this run of the program.
        unsafe { MapWord::new(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).history)) }
    }

    #[inline(always)]
    fn rule(&self) -> impl Cell {
        // SAFETY: a field of a whole value of a map, alive for this run of the program.
        unsafe { MapWord::new(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).rule)) }
    }
}

/// The record of a source before its first strike.
#[inline(always)]
pub(super) fn begun() -> Ban {
    // The compiler would turn plain zeros into a call of memset, as in `Facts::clear`.
    let zero = black_box(0);
    Ban { until: zero, history: zero, rule: zero }
}
