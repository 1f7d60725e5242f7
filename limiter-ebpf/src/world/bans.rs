//! Sources on record for a ban.

use core::hint::black_box;
use core::ptr::NonNull;

use aya_ebpf::bindings::BPF_NOEXIST;
use limiter_common::ban::{Bans, Entry};
use limiter_common::cell::Cell;
use limiter_common::outcome::Insert;
use limiter_common::source::Source;
use limiter_common::wire::Ban;

use super::atomic::MapWord;
use super::kernel::{Kernel, inserted};
use super::maps::BANS;

/// A source on record, inside the map.
pub(crate) struct MapBan(NonNull<Ban>);

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

impl Bans for Kernel {
    type Entry = MapBan;

    #[inline(always)]
    fn ban(&self, source: &Source) -> Option<MapBan> {
        BANS.get_ptr_mut(source.trie_key()).and_then(NonNull::new).map(MapBan)
    }

    #[inline(always)]
    fn insert_ban(&self, source: &Source) -> Insert {
        // Of plain zeros the compiler makes a call of memset, as in `Facts::clear`.
        let zero = black_box(0);
        let ban = Ban { until: zero, history: zero, rule: zero };
        inserted(BANS.insert(source.trie_key(), ban, u64::from(BPF_NOEXIST)))
    }
}
