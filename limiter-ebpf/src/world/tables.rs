//! The maps of the tables, as the decision sees them.

use core::cell::Cell;
use core::ptr::NonNull;

use aya_ebpf::btf_maps::lpm_trie::Key;
use limiter_common::algorithm::window::WallOffset;
use limiter_common::bucket::{Generation, Slot};
use limiter_common::outcome::Insert;
use limiter_common::table::Scratch;
use limiter_common::table::flow::FlowKey;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Action, Control, KeyedBucket, MAX_SHAPES, MAX_TABLES, OwnBudget, Record, Shape,
    TRIE_FIXED_BITS, Table, TableKey, TrieValue, is_daemon_lost,
};
use limiter_common::world::Tables;

use super::atomic::MapKeyed;
use super::kernel::{Kernel, control, control_at};
use super::maps::{
    ACTIONS, BUDGETS, FLOWS, KEYED, RECORDS, RULE_STATS, SHAPES, TABLE_RULES, TABLES,
};
use super::room_keyed;

impl Tables for Kernel {
    type Keyed = MapKeyed;

    #[inline(always)]
    fn table(&self, generation: Generation, index: u32) -> Option<&Table> {
        TABLES.get(generation.buffer() * MAX_TABLES + index)
    }

    #[inline(always)]
    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Option<&Shape> {
        SHAPES.get((generation.buffer() * MAX_TABLES + table) * MAX_SHAPES + shape)
    }

    #[inline(always)]
    fn table_rule(&self, generation: Generation, key: &Cell<TableKey>) -> TrieValue {
        let found = TABLE_RULES
            .get(generation.buffer())
            .and_then(|trie| trie.get(&Key::new(TRIE_FIXED_BITS + 128, key.get())));
        TrieValue::from_raw(found.copied().unwrap_or(0))
    }

    #[inline(always)]
    fn record(&self, slot: Slot) -> Option<&Record> {
        RECORDS.get(slot.index())
    }

    #[inline(always)]
    fn daemon_lost(&self, now: Ticks) -> bool {
        is_daemon_lost(control(Control::DaemonLost), now)
    }

    #[inline(always)]
    fn own_budget(&self, generation: Generation, budget: OwnBudget) -> Option<Slot> {
        OwnBudget::slot(control_at(budget.index(generation)))
    }

    #[inline(always)]
    fn action(&self, index: u32) -> Option<&Action> {
        ACTIONS.get(index)
    }

    #[inline(always)]
    fn keyed(&self, key: &Cell<TableKey>) -> Option<MapKeyed> {
        // SAFETY: this CPU's own key, which nothing changes during the look-up.
        let key: &TableKey = unsafe { &*key.as_ptr() };
        KEYED.get_ptr_mut(key).and_then(NonNull::new).map(MapKeyed::new)
    }

    #[inline(always)]
    fn insert_keyed(
        &self,
        scratch: &Scratch,
        key: &Cell<TableKey>,
        made: &Cell<KeyedBucket>,
        resolved: u64,
    ) -> Insert {
        // SAFETY: this CPU's own copies, which nothing else changes during the insert.
        let (key, bucket): (&TableKey, &KeyedBucket) = unsafe {
            // Only this is ever written, so the rest is zero as the map was made.
            (*made.as_ptr()).resolved = resolved;
            (&*key.as_ptr(), &*made.as_ptr())
        };
        room_keyed::insert_keyed(scratch, key, bucket)
    }

    #[inline(always)]
    fn budget(&self, index: u32) -> Option<MapKeyed> {
        BUDGETS.get_ptr_mut(index).and_then(NonNull::new).map(MapKeyed::new)
    }

    #[inline(always)]
    fn flow(&self, flow: &FlowKey) -> Option<Ticks> {
        // SAFETY: read once; the kernel frees a removed entry only after the program has run (RCU).
        unsafe { FLOWS.get(flow) }.map(|seen| Ticks::new(*seen))
    }

    #[inline(always)]
    fn set_flow(&self, flow: &FlowKey, now: Ticks) {
        if let Some(seen) = FLOWS.get_ptr_mut(flow) {
            // SAFETY: as above; a store of one word, and any CPU's is as good.
            unsafe { seen.write_volatile(now.get()) };
        } else {
            // When there is no room, the flow stays new.
            let _ = FLOWS.insert(flow, now.get(), 0);
        }
    }

    #[inline(always)]
    fn wall_offset(&self) -> WallOffset {
        WallOffset::from_raw(control(Control::WallOffset))
    }

    #[inline(always)]
    fn count_rule(&self, rule: u32, reason: Reason, length: u64, add: bool) {
        if let Some(stats) = RULE_STATS.get_ptr_mut(rule) {
            // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
            let stats = unsafe { &mut *stats };
            if add {
                stats.add(reason, length);
            } else {
                stats.take_back(reason, length);
            }
        }
    }
}
