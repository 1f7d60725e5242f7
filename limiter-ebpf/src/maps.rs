//! Every map of the program: who writes it, who reads it, what evicts from it. Sizes given here are
//! defaults; the daemon sets them at load time. Names and layouts: `limiter_common::wire`.

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST},
    btf_maps::{
        Array, ArrayOfMaps, CpuMap, DevMap, HashMap, LpmTrie, LruHashMap, PerCpuArray,
        lpm_trie::Key,
    },
    macros::btf_map,
};
use core::hint::black_box;
use core::ptr::NonNull;
use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::cell::Cell;
use limiter_common::change::Changes;
use limiter_common::clock::SLACK;
use limiter_common::engine::{Change, Insert, Maps, Outcome, Packed};
use limiter_common::gcra::Charge;
use limiter_common::meter::Unit;
use limiter_common::source::Source;
use limiter_common::table::flow::FlowKey;
use limiter_common::table::{Scratch, Tables};
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Action, Ban, Bucket, Control, KeyedBucket, LISTS_EXACT, LISTS_PREFIXES, Limit, ListEntry,
    Listed, MAX_ACTIONS, MAX_BUDGETS, MAX_SHAPES, MAX_TABLES, Moment, Record, RuleCounters,
    RuleSetHeader, Shape, Table, TableKey, Tally,
};

use crate::act::MapBan;
use crate::clock;
use crate::home;
use crate::room;
use crate::sources;
use crate::uncounted;

/// Generation, brake, ABI number. Written by the daemon, read for every packet.
#[btf_map]
static CONTROL: Array<u64, { Control::COUNT as usize }> = Array::new();

/// Limits by slot. Written by the daemon before a generation that refers to them.
#[btf_map]
static LIMITS: Array<Limit, 16_384> = Array::new();

/// When rule sets came into force: [`Moment`]. Written by the daemon, read when a limit changed.
#[btf_map]
static CHANGES: Array<u64, { limiter_common::wire::CHANGES as usize }> = Array::new();

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

/// Packets and bytes by reason. Written here, summed by the daemon.
#[btf_map]
static REASONS: PerCpuArray<Tally, { Reason::COUNT }> = PerCpuArray::new();

/// Packets and bytes by rule number. Written here, summed by the daemon.
#[btf_map]
pub(crate) static RULE_STATS: PerCpuArray<RuleCounters, 16_384> = PerCpuArray::new();

/// Tables of even and of odd generations. Written by the daemon, as `RULES` is.
#[btf_map]
pub(crate) static TABLES: Array<Table, { 2 * MAX_TABLES as usize }> = Array::new();

/// Shapes of tables. As above.
#[btf_map]
pub(crate) static SHAPES: Array<Shape, { (2 * MAX_TABLES * MAX_SHAPES) as usize }> = Array::new();

/// Keys of tables to slots of records, one trie for even and one for odd generations. As `RULES`.
#[btf_map]
pub(crate) static TABLE_RULES: ArrayOfMaps<LpmTrie<TableKey, u64, 16_384>, 2> = ArrayOfMaps::new();

/// Records by slot. As `LIMITS`.
#[btf_map]
pub(crate) static RECORDS: Array<Record, 16_384> = Array::new();

/// Buckets of tables. Written here; read by the daemon. What may leave: [`crate::room`].
#[btf_map]
pub(crate) static KEYED: HashMap<TableKey, KeyedBucket, 65_536> = HashMap::new();

/// Shared budgets, begun by the daemon, and behind them what keys without a bucket share, by rule number.
/// Written here; none ever leaves.
#[btf_map]
pub(crate) static BUDGETS: Array<KeyedBucket, { MAX_BUDGETS as usize + 16_384 }> = Array::new();

/// What happens over a limit. Written by the daemon before a generation that refers to them.
#[btf_map]
pub(crate) static ACTIONS: Array<Action, { MAX_ACTIONS as usize }> = Array::new();

/// Sources that were over a limit with a ban. Written here and by the daemon; the least recently
/// used leave.
#[btf_map]
static BANS: LruHashMap<[u8; 16], Ban, 65_536> = LruHashMap::new();

/// When a flow passed last. Written here; the least recently used leave.
#[btf_map]
pub(crate) static FLOWS: LruHashMap<FlowKey, u64, 65_536> = LruHashMap::new();

/// Where packets go with `ActionKind::Interface`. Written by the daemon.
#[btf_map]
static INTERFACES: DevMap<64> = DevMap::new();

/// Where [`limiter_common::wire::ActionKind::Cpu`] sends packets. As above.
#[btf_map]
static CPUS: CpuMap<1> = CpuMap::new();

/// The packet under way, by CPU.
#[btf_map]
static SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();

/// `EEXIST`: another CPU inserted first.
const EEXIST: i32 = -17;

/// The maps, as the decision sees them.
pub(crate) struct KernelMaps;

impl Changes for KernelMaps {
    #[inline(always)]
    fn moment(&self, generation: u32) -> Moment {
        let word = CHANGES.get_ptr(Moment::index(generation));
        // SAFETY: a value of the array, alive as long as the program; the daemon may store to it
        // meanwhile, so the read is volatile.
        Moment::from_raw(word.map_or(0, |word| unsafe { word.read_volatile() }))
    }

    #[inline(always)]
    fn exchange(&self, from: Unit, to: Unit, amount: u64, most: u64) -> u64 {
        let shifts = u32::from(from.shift) | u32::from(to.shift) << 8;
        limiter_exchange(from.size, to.size, shifts, amount, most)
    }

    #[inline(always)]
    fn proportion(&self, used: u64, before: u64, after: u64, is_rate: bool) -> u64 {
        limiter_proportion(used, before, after, u32::from(is_rate))
    }

    #[inline(always)]
    fn instant(&self, ended: u16, since: u32, seen: Generation, now: Ticks) -> Ticks {
        Ticks::new(limiter_instant(u32::from(ended), since, seen.get(), now.get()))
    }
}

/// [`limiter_common::meter::exchange`]; the shift of the first measure below that of the second.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_exchange(from: u64, to: u64, shifts: u32, amount: u64, most: u64) -> u64 {
    let from = Unit { size: from, shift: (shifts & 63) as u8 };
    let to = Unit { size: to, shift: (shifts >> 8 & 63) as u8 };
    limiter_common::meter::exchange(from, to, amount, most)
}

/// [`limiter_common::meter::proportion`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_proportion(used: u64, before: u64, after: u64, is_rate: u32) -> u64 {
    limiter_common::meter::proportion(used, before, after, is_rate != 0)
}

/// [`limiter_common::change::instant`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_instant(ended: u32, since: u32, seen: u32, now: u64) -> u64 {
    let (ended, seen) = ((ended & 0xffff) as u16, Generation::new(u64::from(seen)));
    limiter_common::change::instant(&KernelMaps, ended, since, seen, Ticks::new(now)).get()
}

impl Maps for KernelMaps {
    type Meter = home::Meter;

    #[inline(always)]
    fn brake(&self) -> bool {
        control(Control::Brake) != 0
    }

    #[inline(always)]
    fn exact(&self, recent: Ticks) -> Ticks {
        clock::exact(recent)
    }

    #[inline(always)]
    fn listed(&self, source: &Source, now: Ticks) -> Option<Listed> {
        if control(Control::Lists) == 0 {
            return None;
        }
        let (word, version) = source.to_word();
        match limiter_listed(word, version, now.get()) {
            1 => Some(Listed::Allow),
            2 => Some(Listed::Deny),
            3 => Some(Listed::Management),
            _ => None,
        }
    }

    #[inline(always)]
    fn generation(&self) -> Generation {
        Generation::new(control(Control::Generation))
    }

    #[inline(always)]
    fn header(&self, generation: Generation) -> RuleSetHeader {
        RuleSetHeader::from_raw(control(if generation.buffer() == 0 {
            Control::EvenRuleSet
        } else {
            Control::OddRuleSet
        }))
    }

    #[inline(always)]
    fn trial_ended(&self, now: Ticks) -> bool {
        limiter_trial_ended(now.get()) != 0
    }

    #[inline(always)]
    fn banned(&self, source: &Source, now: Ticks) -> bool {
        if control(Control::BansKept) == 0 {
            return false;
        }
        let (word, version) = source.to_word();
        limiter_banned(word, version, now.get()) != 0
    }

    #[inline(always)]
    fn meter(&self, source: &Source) -> Option<home::Meter> {
        home::meter(source)
    }

    #[inline(always)]
    fn count_drop(&self, source: &Source, meter: &home::Meter) {
        let packets = uncounted::count(source);
        if packets != 0 {
            home::count_drops(meter, packets);
        }
    }

    #[inline(always)]
    fn count_source(&self, source: &Source, passed: bool) {
        sources::count(source, passed);
    }

    #[inline(always)]
    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
        home::insert(source, bucket, now)
    }

    #[inline(always)]
    fn aggregate(&self, index: u32) -> Option<impl Cell> {
        room::aggregate(index)
    }

    #[inline(always)]
    fn debt(&self, source: &Source, slot: Slot) -> Ticks {
        sources::debt(source, slot)
    }

    #[inline(always)]
    fn first(
        &self,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
        defer: bool,
    ) -> (Packed, Change) {
        sources::first(generation, source, length, now, defer)
    }

    #[inline(always)]
    fn without_bucket(
        &self,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
    ) -> Packed {
        sources::without_bucket(generation, source, length, now)
    }

    #[inline(always)]
    fn judge_aggregate(&self, source: &Source, slot: Slot, length: u64, now: Ticks) -> Reason {
        sources::judge_aggregate(source, slot, length, now)
    }

    #[inline(always)]
    fn resolve(&self, generation: Generation, source: &Source) -> Option<Slot> {
        let (word, version) = source.to_word();
        let slot = limiter_resolve(word, version, generation.buffer());
        if slot == 0 { None } else { Some(Slot::new((slot.wrapping_sub(1) & 0xffff_ffff) as u32)) }
    }

    #[inline(always)]
    fn limit(&self, slot: Slot) -> Option<&Limit> {
        limit(slot)
    }

    #[inline(always)]
    fn charge_again(
        &self,
        meter: &home::Meter,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
        stored: &mut Change,
    ) -> Packed {
        home::charge_again(meter, generation, source, length, now, stored)
    }

    #[inline(always)]
    fn re_resolve(&self, meter: &home::Meter, old: Resolved, generation: Generation, slot: Slot) {
        home::re_resolve(meter, old, generation, slot);
    }

    #[inline(always)]
    fn rescale(&self, meter: &home::Meter, resolved: Resolved, word: Word, now: Ticks) {
        home::rescale(meter, resolved, word, now);
    }

    #[inline(always)]
    fn charge_contended(
        &self,
        meter: &home::Meter,
        scale: bool,
        charge: &Charge,
        stored: &mut Change,
    ) -> Option<Reason> {
        home::charge_contended(meter, scale, charge, stored)
    }
}

/// [`Maps::limit`].
#[inline(always)]
pub(crate) fn limit<'a>(slot: Slot) -> Option<&'a Limit> {
    LIMITS.get(slot.index())
}

/// An instruction that no other call of this has, so that the compiler joins nothing before it.
#[inline(always)]
pub(crate) fn apart<const NUMBER: u32>() {
    // SAFETY: it changes a register that a call has used up.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("r1 = {number}", number = const NUMBER, out("r1") _, options(nomem, nostack));
    }
}

/// [`Maps::listed`], where there are lists: a [`Listed`], or 0. A function of its own, so that its keys
/// take no stack of the others.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_listed(source: u64, version: u32, now: u64) -> u64 {
    let key = Source::from_word(source, version).trie_key();
    let (lists, now) = (control(Control::Lists), Ticks::new(now));
    if lists & LISTS_EXACT != 0
        // SAFETY: the program never writes to this map, and the kernel frees a removed entry only
        // after the program has run (RCU).
        && let Some(entry) = unsafe { LISTED.get(key) }
        && let Some(listed) = entry.at(now)
    {
        return listed as u64;
    }
    if lists & LISTS_PREFIXES != 0
        && let Some(listed) =
            LISTED_PREFIXES.get(&Key::new(128, key)).and_then(|entry| entry.at(now))
    {
        return listed as u64;
    }
    0
}

/// [`Maps::banned`], once there was a ban. As [`limiter_listed`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_banned(source: u64, version: u32, now: u64) -> u32 {
    let source = Source::from_word(source, version);
    // SAFETY: the word is read once; the kernel frees a removed entry only after the program
    // has run (RCU).
    let Some(ban) = (unsafe { BANS.get(source.trie_key()) }) else {
        return 0;
    };
    let (until, now) = (Ticks::new(ban.until), Ticks::new(now));
    u32::from(until > now.plus(SLACK) || until > now && until > clock::exact(now))
}

/// [`Maps::trial_ended`]. As [`limiter_listed`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_trial_ended(now: u64) -> u32 {
    u32::from(clock::exact(Ticks::new(now)).get() >= control(Control::TrialEnd))
}

/// [`Maps::resolve`] in a half of `RULES`: one more than the slot, 0 for none. As [`limiter_listed`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_resolve(source: u64, version: u32, half: u32) -> u64 {
    let key = Key::new(128, Source::from_word(source, version).trie_key());
    let slot = RULES.get(half).and_then(|trie| trie.get(&key));
    slot.map_or(0, |slot| u64::from(*slot) + 1)
}

#[inline(always)]
pub(crate) fn inserted(result: Result<(), i32>) -> Insert {
    match result {
        Ok(()) => Insert::Made,
        Err(EEXIST) => Insert::Exists,
        Err(_) => Insert::Refused,
    }
}

/// The packet under way on this CPU.
#[inline(always)]
pub(crate) fn scratch() -> Option<*mut Scratch> {
    SCRATCH.get_ptr_mut(0)
}

/// The bucket of a key in the scratch, or null. The pointer is never tested here: so the verifier
/// has one state for both.
#[inline(always)]
pub(crate) fn keyed_of_scratch(index: u32) -> *mut KeyedBucket {
    let Some(scratch) = scratch() else {
        return core::ptr::null_mut();
    };
    // SAFETY: this CPU's own copy; the key is read by the look-up alone.
    let Some(key) = (unsafe { (*scratch).key_ptr(index) }) else {
        return core::ptr::null_mut();
    };
    // SAFETY: as above.
    let key = unsafe { &*key };
    KEYED.get_ptr_mut(key).unwrap_or(core::ptr::null_mut())
}

#[inline(always)]
pub(crate) fn control(word: Control) -> u64 {
    control_at(word.index())
}

/// A word of the control map by its index.
#[inline(always)]
pub(crate) fn control_at(index: u32) -> u64 {
    match CONTROL.get_ptr(index) {
        // SAFETY: a value of the array, alive as long as the program; the daemon may store to it
        // meanwhile, so the read is volatile.
        Some(value) => unsafe { value.read_volatile() },
        None => 0,
    }
}

/// The record of a source that was over a limit with a ban.
#[inline(always)]
pub(crate) fn ban(source: &Source) -> Option<MapBan> {
    BANS.get_ptr_mut(source.trie_key()).and_then(NonNull::new).map(MapBan::new)
}

/// Makes one.
#[inline(always)]
pub(crate) fn insert_ban(source: &Source) -> Insert {
    // Of plain zeros the compiler makes a call of memset, as in `Facts::clear`.
    let zero = black_box(0);
    let ban = Ban { until: zero, history: zero, rule: zero };
    inserted(BANS.insert(source.trie_key(), ban, u64::from(BPF_NOEXIST)))
}

/// Sends the packet to an interface.
#[inline(always)]
pub(crate) fn to_interface(index: u32, flags: u64) -> u32 {
    INTERFACES.redirect(index, flags).unwrap_or_else(|other| other)
}

/// Sends the packet to a CPU.
#[inline(always)]
pub(crate) fn to_cpu(index: u32, flags: u64) -> u32 {
    CPUS.redirect(index, flags).unwrap_or_else(|other| other)
}

/// Counts one frame.
#[inline(always)]
pub(crate) fn count(outcome: &Outcome, length: u64) {
    if let Some(tally) = REASONS.get_ptr_mut(outcome.reason.index()) {
        // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
        unsafe { (*tally).add(length) };
    }
    KernelMaps.count_rule(outcome.rule, outcome.counted, length, true);
}
