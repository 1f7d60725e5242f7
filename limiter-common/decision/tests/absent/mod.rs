//! Parts that the maps of a test do without: the methods of [`limiter_decision::maps::Maps`] that
//! they have nothing to say to, and types of which there are no values.

#![allow(
    unused_macros,
    unused_imports,
    clippy::allow_attributes,
    reason = "each binary of tests asks for some of them"
)]

use std::cell::Cell as Local;

use limiter_common::time::Ticks;
use limiter_common::wire::EntryTable;
use limiter_decision::algorithm::Words;
use limiter_decision::ban::Entry;
use limiter_decision::cell::Cell;
use limiter_decision::entries::{AdmissionCells, HostEntryTable};
use limiter_decision::maps::{Keyed, Lease};

/// No bucket of a key, no ban and no lease.
#[derive(Clone, Copy)]
pub(crate) enum Nothing {}

impl Cell for Nothing {
    fn load(&self) -> u64 {
        match *self {}
    }

    fn compare_exchange(&self, _current: u64, _new: u64) -> bool {
        match *self {}
    }
}

impl Words for Nothing {
    type Cell = Self;

    fn cell(&self, _index: u32) -> Option<Self> {
        match *self {}
    }
}

impl Keyed for Nothing {
    fn first(&self) -> impl Cell {
        *self
    }

    fn second(&self) -> impl Cell {
        *self
    }

    fn resolved(&self) -> impl Cell {
        *self
    }

    fn count(&self, _passed: bool, _packets: u64) {
        match *self {}
    }

    fn touch(&self, _now: Ticks) {
        match *self {}
    }

    fn used(&self) -> u64 {
        match *self {}
    }

    fn packets(&self) -> u64 {
        match *self {}
    }
}

impl Entry for Nothing {
    fn until(&self) -> impl Cell {
        *self
    }

    fn history(&self) -> impl Cell {
        *self
    }

    fn rule(&self) -> impl Cell {
        *self
    }
}

impl Lease for Nothing {
    fn granted(&self) -> u64 {
        match *self {}
    }

    fn expires(&self) -> Ticks {
        match *self {}
    }

    fn used(&self) -> impl Cell {
        *self
    }

    fn deny(&self, _units: u64) {
        match *self {}
    }
}

/// Room for any number of entries, of which none stays once it has drained.
pub(crate) fn unbounded() -> HostEntryTable {
    HostEntryTable::new(EntryTable { entries: 1, tolerance: 1, ..EntryTable::default() })
}

/// This thread's part of it.
pub(crate) fn admission() -> &'static AdmissionCells {
    thread_local! {
        static CELLS: &'static AdmissionCells = Box::leak(Box::default());
    }
    CELLS.with(|cells| *cells)
}

/// A word of this CPU's own, in the place of a ring slot: no test asks for one.
pub(crate) fn ring_slot() -> impl Cell {
    std::sync::atomic::AtomicU64::new(0)
}

/// For a cell that holds what is not asked for.
pub(crate) const fn none<T>() -> Option<&'static Local<T>> {
    None
}

/// Time is what the packet comes with, and there are no lists, no bans and no actions.
macro_rules! nothing_before {
    () => {
        fn now(&self, recent: limiter_common::time::Ticks) -> limiter_common::time::Ticks {
            recent
        }

        fn out_parameter(&self) -> Option<&limiter_decision::register::OutParameter> {
            None
        }

        fn listed(
            &self,
            _source: &limiter_common::source::Source,
        ) -> Option<&limiter_common::wire::ListEntry> {
            None
        }

        fn listed_prefix(
            &self,
            _source: &limiter_common::source::Source,
        ) -> Option<&limiter_common::wire::ListEntry> {
            None
        }

        fn ban(&self, _source: &limiter_common::source::Source) -> Option<$crate::absent::Nothing> {
            None
        }

        fn insert_ban(
            &self,
            _source: &limiter_common::source::Source,
        ) -> limiter_decision::outcome::Insert {
            limiter_decision::outcome::Insert::Refused
        }

        fn action(&self, _index: u32) -> Option<&limiter_common::wire::Action> {
            None
        }

        fn uncounted(&self) -> Option<&std::cell::Cell<limiter_common::wire::Uncounted>> {
            $crate::absent::none()
        }

        fn aggregate(&self, _index: u32) -> Option<impl limiter_decision::cell::Cell> {
            None::<$crate::absent::Nothing>
        }

        fn fingerprints(&self, _index: u32) -> Option<impl limiter_decision::cell::Cell> {
            None::<$crate::absent::Nothing>
        }

        fn ring_slot(
            &self,
            _kind: limiter_common::wire::EntryKind,
            _index: u32,
        ) -> Option<impl limiter_decision::cell::Cell> {
            Some($crate::absent::ring_slot())
        }

        fn ring_key(&self, _index: u32, _key: &limiter_decision::table::KeyCell) {}

        fn set_ring_key(&self, _index: u32, _key: &limiter_decision::table::KeyCell) {}

        fn flow(
            &self,
            _flow: &limiter_common::wire::FlowKey,
        ) -> Option<limiter_common::time::Ticks> {
            None
        }

        fn set_flow(
            &self,
            _flow: &limiter_common::wire::FlowKey,
            _now: limiter_common::time::Ticks,
        ) {
        }

        fn count_rule(
            &self,
            _rule: u32,
            _reason: limiter_common::verdict::Reason,
            _size: limiter_common::frame_size::FrameSize,
            _add: bool,
        ) {
        }
    };
}

/// There are no tables beside the source table.
macro_rules! no_tables {
    () => {
        fn table(
            &self,
            _generation: limiter_common::bucket::Generation,
            _index: u32,
        ) -> Option<&limiter_common::wire::Table> {
            None
        }

        fn shape(
            &self,
            _generation: limiter_common::bucket::Generation,
            _table: u32,
            _shape: u32,
        ) -> Option<&limiter_common::wire::Shape> {
            None
        }

        fn table_rule(
            &self,
            _generation: limiter_common::bucket::Generation,
            _key: &std::cell::Cell<limiter_common::wire::TableKey>,
        ) -> limiter_common::wire::TrieValue {
            limiter_common::wire::TrieValue::default()
        }

        fn record(
            &self,
            _slot: limiter_common::bucket::Slot,
        ) -> Option<&limiter_common::wire::Record> {
            None
        }

        fn keyed(
            &self,
            _key: &limiter_decision::table::KeyCell,
        ) -> Option<$crate::absent::Nothing> {
            None
        }

        fn insert_keyed(
            &self,
            _key: &limiter_decision::table::KeyCell,
            _made: &std::cell::Cell<limiter_common::wire::KeyedEntry>,
            _resolved: u64,
        ) -> limiter_decision::outcome::Insert {
            limiter_decision::outcome::Insert::Refused
        }

        fn remove_keyed(&self, _key: &limiter_decision::table::KeyCell) {}

        fn budget(&self, _index: u32) -> Option<$crate::absent::Nothing> {
            None
        }

        fn lease(&self, _index: u32) -> Option<$crate::absent::Nothing> {
            None
        }

        $crate::absent::no_key_leases!();
    };
}

/// No key has leases.
macro_rules! no_key_leases {
    () => {
        fn leased(
            &self,
            _key: &limiter_decision::table::KeyCell,
        ) -> Option<impl limiter_decision::cell::Cell> {
            None::<$crate::absent::Nothing>
        }

        fn insert_leased(
            &self,
            _key: &limiter_decision::table::KeyCell,
        ) -> limiter_decision::outcome::Insert {
            limiter_decision::outcome::Insert::Refused
        }

        fn remove_leased(&self, _key: &limiter_decision::table::KeyCell) {}

        fn ask(
            &self,
            _key: &limiter_decision::table::KeyCell,
            _slot: limiter_common::bucket::Slot,
        ) -> bool {
            false
        }
    };
}

/// Sources are not in lines.
macro_rules! no_lines {
    () => {
        fn lines(
            &self,
            _kind: limiter_common::wire::EntryKind,
        ) -> Option<limiter_decision::line::Lines> {
            None
        }

        fn line(&self, _kind: limiter_common::wire::EntryKind, _index: u32) -> Option<Self::Line> {
            None
        }
    };
}

/// Sources are not in a hash map.
macro_rules! no_map {
    () => {
        fn source_bucket(
            &self,
            _bucket_key: &limiter_common::bucket_key::BucketKey,
        ) -> Option<Self::Hashed> {
            None
        }

        fn insert(
            &self,
            _bucket_key: &limiter_common::bucket_key::BucketKey,
            _bucket: &limiter_common::wire::Bucket,
        ) -> limiter_decision::outcome::Insert {
            limiter_decision::outcome::Insert::Refused
        }

        fn remove(&self, _bucket_key: &limiter_common::bucket_key::BucketKey) {}
    };
}

/// There is room for every entry: `self.entry_table` is [`unbounded`].
macro_rules! room_for_all {
    () => {
        fn entry_table(
            &self,
            _kind: limiter_common::wire::EntryKind,
        ) -> Option<impl limiter_decision::entries::EntryTableWords> {
            Some(&self.entry_table)
        }

        fn admission(
            &self,
            _kind: limiter_common::wire::EntryKind,
        ) -> Option<&limiter_decision::entries::AdmissionCells> {
            Some($crate::absent::admission())
        }
    };
}

pub(crate) use {no_key_leases, no_lines, no_map, no_tables, nothing_before, room_for_all};
