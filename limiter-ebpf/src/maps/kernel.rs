//! The maps of the kernel, as the decision sees them: look-ups, inserts, removals and counts.

use core::cell::Cell;
use core::ptr::NonNull;

use aya_ebpf::bindings::{BPF_NOEXIST, BPF_RB_NO_WAKEUP};
use aya_ebpf::btf_maps::lpm_trie::Key;
use limiter_common::bucket::{Generation, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Action, Ask, Bucket, Control, EntryKind, FlowKey, InterfaceCounters, KeyLeases, KeyName,
    KeyedEntry, Limit, ListEntry, MAX_SHAPES, MAX_TABLES, Moment, Record, Shape, TRIE_FIXED_BITS,
    Table, TableKey, TrieValue, Uncounted,
};
use limiter_decision::cell::Cell as SharedWord;
use limiter_decision::entries::{AdmissionCells, EntryTableWords};
use limiter_decision::line::Lines;
use limiter_decision::maps::Maps;
use limiter_decision::outcome::Insert;
use limiter_decision::register::OutParameter;
use limiter_decision::table::KeyCell;

use super::atomic::{MapKeyed, MapLease, MapWord, acquire_fence};
use super::bans::{MapBan, begun};
use super::definitions::{
    ACTIONS, ADMISSION, AGGREGATES, ASKS, BANS, BUDGETS, CHANGES, CONTROL, FINGERPRINTS, FLOWS,
    FRAMES_KEYED, INTERFACE_STATS, KEYED, Kernel, LEASED, LEASES, LIMITS, LISTED, LISTED_PREFIXES,
    REASONS, RECORDS, RULE_STATS, RULES, SHAPES, SPACES, TABLE_RULES, TABLES, UNCOUNTED,
};
use super::entries::MapEntryTable;
use super::scratch;
use crate::call::call;
use crate::context::Frame;
use crate::hook::{self, SUPER_FRAMES};
use crate::source_store::MapKept;
use crate::source_store::hashed::{self, MapBucket};
use crate::source_store::lines::{self, MapLine};

impl Kernel {
    #[inline(always)]
    pub(crate) fn count_reason(reason: Reason, size: FrameSize) {
        if let Some(tally) = REASONS.get_ptr_mut(reason.index()) {
            // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
            unsafe { (*tally).add(size.at_hook(SUPER_FRAMES)) };
        }
    }

    /// Counts a frame under the interface by which it came in or goes out.
    #[inline(always)]
    pub(crate) fn count_interface(index: u32, reason: Reason, size: FrameSize) {
        if let Some(counters) =
            INTERFACE_STATS.get_ptr_mut(InterfaceCounters::place(index, hook::direction()))
        {
            // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
            unsafe { (*counters).add(reason, size.at_hook(SUPER_FRAMES)) };
        }
    }
}

/// The clock: the kernel's, or that of tests.
pub(crate) trait Clock {
    /// The time at the beginning of a packet: now, or slightly earlier
    /// ([`limiter_decision::clock`]).
    fn recent<const LAYER_3: bool>(&self, frame: &Frame<LAYER_3>) -> Ticks;

    /// [`Maps::now`].
    fn read(&self, recent: Ticks) -> Ticks;
}

/// `EEXIST`: another CPU inserted first.
const EEXIST: i32 = -17;

/// Copies words one by one. For a copy of all at once, the compiler calls a function that compares
/// the addresses, which the verifier rejects.
///
/// # Safety
///
/// Both must be valid for so many words.
#[inline(always)]
unsafe fn copy<const N: usize>(to: *mut u64, from: *const u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { to.cast::<[u64; N]>().write_volatile(from.cast::<[u64; N]>().read_volatile()) };
}

#[inline(always)]
pub(crate) fn copy_key(entry: NonNull<KeyedEntry>, key: NonNull<TableKey>) {
    // SAFETY: whole values: one in the map, whose key is written once, before anybody can find it,
    // and this CPU's own.
    unsafe { copy::<7>(key.as_ptr().cast(), (&raw const (*entry.as_ptr()).key).cast()) };
}

/// True if an entry belongs to a key. A subprogram, because few names need it. Compares word by
/// word, because the compiler turns a comparison of the whole into one of addresses, which the
/// verifier rejects.
#[inline(always)]
pub(crate) fn is_of(entry: NonNull<KeyedEntry>, key: NonNull<TableKey>) -> bool {
    let words = |key: *const TableKey| -> [u64; 7] {
        // SAFETY: a whole key: in the map, where it is written once, before anybody can find it, or
        // this CPU's own.
        unsafe { key.cast::<[u64; 7]>().read_volatile() }
    };
    // SAFETY: only the address of a field is computed, of a whole value.
    let one = words(unsafe { &raw const (*entry.as_ptr()).key });
    let other = words(key.as_ptr());
    let first = one[0] ^ other[0] | one[1] ^ other[1] | one[2] ^ other[2] | one[3] ^ other[3];
    first | one[4] ^ other[4] | one[5] ^ other[5] | one[6] ^ other[6] == 0
}

#[inline(always)]
fn name(key: &KeyCell) -> &KeyName {
    // SAFETY: this CPU's own key, which nothing changes during the look-up.
    unsafe { &*key.name().as_ptr() }
}

#[inline(always)]
pub(crate) fn inserted(result: Result<(), i32>) -> Insert {
    match result {
        Ok(()) => Insert::Made,
        Err(EEXIST) => Insert::Exists,
        Err(_) => Insert::Refused,
    }
}

impl Maps for Kernel {
    const SUPER_FRAMES: bool = SUPER_FRAMES;
    const DELAYS: bool = hook::DELAYS;

    type Hashed = MapBucket;
    type Line = MapLine;
    type Keyed = MapKeyed;
    type Kept = MapKept;
    type Lease = MapLease;
    type Ban = MapBan;

    #[inline(always)]
    fn control(&self, word: Control) -> u64 {
        match CONTROL.get_ptr(word.index()) {
            Some(value) => {
                // SAFETY: a value of the array, alive as long as the program; the daemon may store
                // to it meanwhile, so the read is volatile.
                let value = unsafe { value.read_volatile() };
                // Read the number before anything that the daemon wrote ahead of it.
                if matches!(word, Control::Generation) {
                    acquire_fence();
                }
                value
            }
            None => 0,
        }
    }

    #[inline(always)]
    fn now(&self, recent: Ticks) -> Ticks {
        self.read(recent)
    }

    #[inline(always)]
    fn moment(&self, generation: u32) -> Moment {
        let word = CHANGES.get_ptr(Moment::index(generation));
        // SAFETY: a value of the array, alive as long as the program; the daemon may store to it
        // meanwhile, so the read is volatile.
        Moment::from_raw(word.map_or(0, |word| unsafe { word.read_volatile() }))
    }

    #[inline(always)]
    fn out_parameter(&self) -> Option<&OutParameter> {
        scratch().map(|scratch| &scratch.out_parameter)
    }

    #[inline(always)]
    fn listed(&self, source: &Source) -> Option<&ListEntry> {
        // SAFETY: the program never writes to this map, and the kernel frees a removed entry only
        // after the program has run (RCU).
        unsafe { LISTED.get(source.trie_key()) }
    }

    #[inline(always)]
    fn listed_prefix(&self, source: &Source) -> Option<&ListEntry> {
        LISTED_PREFIXES.get(&Key::new(128, source.trie_key()))
    }

    #[inline(always)]
    fn ban(&self, source: &Source) -> Option<MapBan> {
        BANS.get_ptr_mut(source.trie_key()).and_then(NonNull::new).map(MapBan::new)
    }

    #[inline(always)]
    fn insert_ban(&self, source: &Source) -> Insert {
        inserted(BANS.insert(source.trie_key(), begun(), u64::from(BPF_NOEXIST)))
    }

    #[inline(always)]
    fn source_rule(&self, generation: Generation, bucket_key: &BucketKey) -> Option<Slot> {
        let key = Key::new(128, bucket_key.trie_key());
        let slot = RULES.get(generation.buffer()).and_then(|trie| trie.get(&key));
        slot.map(|slot| Slot::new(*slot))
    }

    #[inline(always)]
    fn limit(&self, slot: Slot) -> Option<&Limit> {
        LIMITS.get(slot.index())
    }

    #[inline(always)]
    fn lines(&self, kind: EntryKind) -> Option<Lines> {
        lines::all(kind)
    }

    #[inline(always)]
    fn line(&self, kind: EntryKind, index: u32) -> Option<MapLine> {
        Some(lines::line(kind, index))
    }

    #[inline(always)]
    fn source_bucket(&self, bucket_key: &BucketKey) -> Option<MapBucket> {
        hashed::bucket(bucket_key)
    }

    #[inline(always)]
    fn compact_bucket(&self, word: &Cell<u64>) -> Option<MapBucket> {
        hashed::compact_bucket(word)
    }

    #[inline(always)]
    fn insert(&self, bucket_key: &BucketKey, bucket: &Bucket) -> Insert {
        hashed::insert(bucket_key, bucket)
    }

    #[inline(always)]
    fn remove(&self, bucket_key: &BucketKey) {
        hashed::remove(bucket_key);
    }

    #[inline(always)]
    fn uncounted(&self) -> Option<&Cell<Uncounted>> {
        // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU,
        // and a cell has the layout of its value.
        UNCOUNTED.get_ptr_mut(0).map(|uncounted| unsafe { &*uncounted.cast() })
    }

    #[inline(always)]
    fn aggregate(&self, index: u32) -> Option<impl SharedWord> {
        AGGREGATES.get_ptr_mut(index).and_then(NonNull::new).map(MapWord::new)
    }

    #[inline(always)]
    fn fingerprints(&self, index: u32) -> Option<impl SharedWord> {
        FINGERPRINTS.get_ptr_mut(index).and_then(NonNull::new).map(MapWord::new)
    }

    #[inline(always)]
    fn entry_table(&self, kind: EntryKind) -> Option<impl EntryTableWords> {
        SPACES.get_ptr_mut(kind.index()).and_then(NonNull::new).map(MapEntryTable::new)
    }

    #[inline(always)]
    fn admission(&self, kind: EntryKind) -> Option<&AdmissionCells> {
        // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU,
        // and every field is a cell.
        ADMISSION.get_ptr_mut(kind.index()).map(|cells| unsafe { &*cells })
    }

    #[inline(always)]
    fn ring_slot(&self, kind: EntryKind, index: u32) -> Option<impl SharedWord> {
        if !matches!(kind, EntryKind::Keyed) {
            return hashed::ring_slot(kind, index);
        }
        let slot = FRAMES_KEYED.get_ptr_mut(index).and_then(NonNull::new)?;
        // SAFETY: a field of a whole value, so it is not null.
        Some(MapWord::new(unsafe { NonNull::new_unchecked(&raw mut (*slot.as_ptr()).state) }))
    }

    #[inline(always)]
    fn ring_key(&self, index: u32, key: &KeyCell) {
        let Some(slot) = FRAMES_KEYED.get_ptr(index) else {
            return;
        };
        // SAFETY: a whole value of the array; other CPUs may write to it meanwhile.
        unsafe { copy::<2>(key.name().as_ptr().cast(), (&raw const (*slot).name).cast()) };
        let entry = KEYED.get_ptr_mut(name(key)).and_then(NonNull::new);
        if let (Some(entry), Some(mine)) = (entry, NonNull::new(key.key().as_ptr())) {
            call!(copy_key(; entry, mine));
        }
    }

    #[inline(always)]
    fn set_ring_key(&self, index: u32, key: &KeyCell) {
        if let Some(slot) = FRAMES_KEYED.get_ptr_mut(index) {
            // SAFETY: a whole value of the array, and this CPU has taken the slot.
            unsafe { copy::<2>((&raw mut (*slot).name).cast(), key.name().as_ptr().cast()) };
        }
    }

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
    fn action(&self, index: u32) -> Option<&Action> {
        ACTIONS.get(index)
    }

    #[inline(always)]
    fn key_name(&self, key: &TableKey) -> KeyName {
        // SAFETY: the seed is written once, by the daemon that makes the maps.
        key.name(|| SPACES.get(EntryKind::Keyed.index()).map_or(0, |settings| settings.seed))
    }

    #[inline(always)]
    fn keyed(&self, key: &KeyCell) -> Option<MapKeyed> {
        let entry = KEYED.get_ptr_mut(name(key)).and_then(NonNull::new)?;
        let mine = NonNull::new(key.key().as_ptr())?;
        if name(key).is_hashed() && !call!(is_of(; entry, mine)) {
            return None;
        }
        Some(MapKeyed::new(entry.cast()))
    }

    #[inline(always)]
    fn insert_keyed(&self, key: &KeyCell, made: &Cell<KeyedEntry>, resolved: u64) -> Insert {
        // SAFETY: this CPU's own copies, which nothing else changes during the insert.
        let entry: &KeyedEntry = unsafe {
            // Only these fields are ever written, so the rest is still zero.
            (*made.as_ptr()).bucket.resolved = resolved;
            copy::<7>((&raw mut (*made.as_ptr()).key).cast(), key.key().as_ptr().cast());
            &*made.as_ptr()
        };
        let made = inserted(KEYED.insert(name(key), entry, u64::from(BPF_NOEXIST)));
        // Another key has the same hash, so there is no space for this one.
        if matches!(made, Insert::Exists) && name(key).is_hashed() && self.keyed(key).is_none() {
            return Insert::Refused;
        }
        made
    }

    #[inline(always)]
    fn remove_keyed(&self, key: &KeyCell) {
        let _ = KEYED.remove(name(key));
    }

    #[inline(always)]
    fn budget(&self, index: u32) -> Option<MapKeyed> {
        BUDGETS.get_ptr_mut(index).and_then(NonNull::new).map(MapKeyed::new)
    }

    #[inline(always)]
    fn lease(&self, index: u32) -> Option<MapLease> {
        LEASES.get_ptr_mut(index).and_then(NonNull::new).map(MapLease::new)
    }

    #[inline(always)]
    fn leased(&self, key: &KeyCell) -> Option<impl SharedWord> {
        // SAFETY: this CPU's own key, which nothing changes during the look-up.
        let key: &TableKey = unsafe { &*key.key().as_ptr() };
        LEASED.get_ptr_mut(key).and_then(NonNull::new).map(MapWord::new)
    }

    #[inline(always)]
    fn insert_leased(&self, key: &KeyCell) -> Insert {
        // SAFETY: this CPU's own key, which nothing changes during the insert.
        let key: &TableKey = unsafe { &*key.key().as_ptr() };
        inserted(LEASED.insert(key, KeyLeases::ASKED.raw(), u64::from(BPF_NOEXIST)))
    }

    #[inline(always)]
    fn remove_leased(&self, key: &KeyCell) {
        // SAFETY: this CPU's own key, which nothing changes meanwhile.
        let key: &TableKey = unsafe { &*key.key().as_ptr() };
        let _ = LEASED.remove(key);
    }

    #[inline(always)]
    fn ask(&self, key: &KeyCell, slot: Slot) -> bool {
        let ask = Ask { key: key.get(), slot: slot.index(), reserved: 0 };
        // The daemon polls by itself, several times per sync period.
        ASKS.output_untyped::<Ask>(&ask, u64::from(BPF_RB_NO_WAKEUP)).is_ok()
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
            // If there is no space, the flow stays new.
            let _ = FLOWS.insert(flow, now.get(), 0);
        }
    }

    #[inline(always)]
    fn count_rule(&self, rule: u32, reason: Reason, size: FrameSize, add: bool) {
        let size = size.at_hook(SUPER_FRAMES);
        if let Some(stats) = RULE_STATS.get_ptr_mut(rule) {
            // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
            let stats = unsafe { &mut *stats };
            if add {
                stats.add(reason, size);
            } else {
                stats.take_back(reason, size);
            }
        }
    }
}
