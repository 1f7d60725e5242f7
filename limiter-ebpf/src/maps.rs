//! Every map of the program: who writes it, who reads it, what evicts from it. Sizes given here are
//! defaults; the daemon sets them at load time. Names and layouts: `limiter_common::wire`.

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST},
    btf_maps::{Array, ArrayOfMaps, HashMap, LpmTrie, LruHashMap, PerCpuArray, lpm_trie::Key},
    macros::btf_map,
};
use core::ptr::NonNull;
use limiter_common::bucket::{Generation, Slot};
use limiter_common::engine::{Insert, Maps};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Bucket, Control, LISTS_EXACT, LISTS_PREFIXES, Limit, ListEntry, Listed, RuleCounters, Tally,
};

use crate::atomic::MapMeter;

/// Generation, brake, ABI number. Written by the daemon, read for every packet.
#[btf_map]
static CONTROL: Array<u64, { Control::COUNT as usize }> = Array::new();

/// Limits by slot. Written by the daemon before a generation that refers to them.
#[btf_map]
static LIMITS: Array<Limit, 16_384> = Array::new();

/// Prefix to slot, one trie for even and one for odd generations. Filled by the daemon, replaced
/// whole, read for sources without a bucket and after a change.
#[btf_map]
static RULES: ArrayOfMaps<LpmTrie<[u8; 16], u32, 16_384>, 2> = ArrayOfMaps::new();

/// Allowed and denied sources. Written by the daemon, read for every packet while there are any;
/// the daemon removes what has expired.
#[btf_map]
static LISTED: HashMap<[u8; 16], ListEntry, 1_048_576, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// Allowed and denied prefixes. As above.
#[btf_map]
static LISTED_PREFIXES: LpmTrie<[u8; 16], ListEntry, 65_536> = LpmTrie::new();

/// Buckets of IPv4 sources. Written here; read by the daemon; the least recently used leave.
#[btf_map]
static SOURCES_V4: LruHashMap<[u8; 4], Bucket, 262_144> = LruHashMap::new();

/// Buckets of IPv6 /64s. As above.
#[btf_map]
static SOURCES_V6: LruHashMap<[u8; 8], Bucket, 262_144> = LruHashMap::new();

/// Packets and bytes by reason. Written here, summed by the daemon.
#[btf_map]
static REASONS: PerCpuArray<Tally, { Reason::COUNT }> = PerCpuArray::new();

/// Packets and bytes by rule number. Written here, summed by the daemon.
#[btf_map]
static RULE_STATS: PerCpuArray<RuleCounters, 16_384> = PerCpuArray::new();

/// `EEXIST`: another CPU inserted first.
const EEXIST: i32 = -17;

/// The maps, as the decision sees them.
pub(crate) struct KernelMaps;

impl Maps for KernelMaps {
    type Meter = MapMeter;

    #[inline(always)]
    fn brake(&self) -> bool {
        control(Control::Brake) != 0
    }

    #[inline(always)]
    fn listed(&self, source: &Source, now: Ticks) -> Option<Listed> {
        let lists = control(Control::Lists);
        if lists == 0 {
            return None;
        }
        let key = source.trie_key();
        if lists & LISTS_EXACT != 0
            // SAFETY: the program never writes to this map, and the kernel frees a removed entry only
            // after the program has run (RCU).
            && let Some(entry) = unsafe { LISTED.get(key) }
            && let Some(listed) = entry.at(now)
        {
            return Some(listed);
        }
        if lists & LISTS_PREFIXES != 0 {
            return LISTED_PREFIXES.get(&Key::new(128, key)).and_then(|entry| entry.at(now));
        }
        None
    }

    #[inline(always)]
    fn generation(&self) -> Generation {
        Generation::new(control(Control::Generation))
    }

    #[inline(always)]
    fn meter(&self, source: &Source) -> Option<MapMeter> {
        let bucket = match source {
            Source::V4(address) => SOURCES_V4.get_ptr_mut(address),
            Source::V6(prefix) => SOURCES_V6.get_ptr_mut(prefix),
        };
        bucket.and_then(NonNull::new).map(MapMeter::new)
    }

    #[inline(always)]
    fn insert(&self, source: &Source, bucket: &Bucket) -> Insert {
        let flags = u64::from(BPF_NOEXIST);
        let result = match source {
            Source::V4(address) => SOURCES_V4.insert(address, bucket, flags),
            Source::V6(prefix) => SOURCES_V6.insert(prefix, bucket, flags),
        };
        match result {
            Ok(()) => Insert::Made,
            Err(EEXIST) => Insert::Exists,
            Err(_) => Insert::Refused,
        }
    }

    #[inline(always)]
    fn resolve(&self, generation: Generation, source: &Source) -> Option<Slot> {
        let trie = RULES.get(generation.buffer())?;
        let slot = trie.get(&Key::new(128, source.trie_key()))?;
        Some(Slot::new(*slot))
    }

    #[inline(always)]
    fn limit(&self, slot: Slot) -> Option<&Limit> {
        LIMITS.get(slot.index())
    }
}

#[inline(always)]
fn control(word: Control) -> u64 {
    match CONTROL.get_ptr(word.index()) {
        // SAFETY: a value of the array, alive as long as the program; the daemon may store to it
        // meanwhile, so the read is volatile.
        Some(value) => unsafe { value.read_volatile() },
        None => 0,
    }
}

/// Counts one frame.
#[inline(always)]
pub(crate) fn count(reason: Reason, rule: u32, length: u64) {
    if let Some(tally) = REASONS.get_ptr_mut(reason.index()) {
        // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
        unsafe { (*tally).add(length) };
    }
    if let Some(stats) = RULE_STATS.get_ptr_mut(rule) {
        // SAFETY: as above.
        unsafe { (*stats).add(reason, length) };
    }
}
