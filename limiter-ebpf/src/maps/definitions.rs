//! Every map of the program, except those of the store of sources, of the clock and of events: who
//! writes it, who reads it, and what evicts from it. The sizes here are defaults; the daemon sets
//! them at load time. Names and layouts: `limiter_common::wire`.

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC},
    btf_maps::{
        Array, ArrayOfMaps, CpuMap, DevMap, HashMap, LpmTrie, LruHashMap, PerCpuArray,
        ProgramArray, RingBuf,
    },
    macros::btf_map,
};
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    AGGREGATES as AGGREGATE_COUNT, ASK_BYTES, Action, Ban, Control, EntryKind, EntryTable,
    FINGERPRINTS as FINGERPRINT_COUNT, FlowKey, InterfaceCounters, KEY_LEASES, KeyName,
    KeyedBucket, KeyedEntry, KeyedRingSlot, Lease, Limit, ListEntry, MAX_ACTIONS, MAX_BUDGETS,
    MAX_LEASES, MAX_SHAPES, MAX_TABLES, Record, RuleCounters, Shape, Table, TableKey, Tally,
    Uncounted,
};
use limiter_decision::entries::AdmissionCells;
use limiter_decision::table::Scratch;

/// The maps of the kernel, as the decision asks for them.
pub(crate) struct Kernel;

/// Generation, bypass, ABI number. Written by the daemon, read for every packet.
#[btf_map]
pub(super) static CONTROL: Array<u64, { Control::COUNT as usize }> = Array::new();

/// Limits by slot. Written by the daemon before a generation that refers to them.
#[btf_map]
pub(super) static LIMITS: Array<Limit, 16_384> = Array::new();

/// Times at which rule sets came into force: [`Moment`]. Written by the daemon, read after a limit
/// has changed.
#[btf_map]
pub(super) static CHANGES: Array<u64, { limiter_common::wire::CHANGES as usize }> = Array::new();

/// Prefix to slot, one trie for even and one for odd generations. Filled by the daemon, replaced as
/// a whole, read for sources without a bucket and after a change.
#[btf_map]
pub(super) static RULES: ArrayOfMaps<LpmTrie<[u8; 16], u32, 16_384>, 2> = ArrayOfMaps::new();

/// Allowed and denied sources. Written by the daemon, read for every packet while there are any.
/// The daemon removes expired entries.
#[btf_map]
pub(super) static LISTED: HashMap<[u8; 16], ListEntry, 1_048_576, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// Allowed and denied prefixes. Written and read like `LISTED`.
#[btf_map]
pub(super) static LISTED_PREFIXES: LpmTrie<[u8; 16], ListEntry, 65_536> = LpmTrie::new();

/// Packets and bytes by reason. Written here, summed by the daemon.
#[btf_map]
pub(super) static REASONS: PerCpuArray<Tally, { Reason::COUNT }> = PerCpuArray::new();

/// Packets and bytes by rule number. Written here, summed by the daemon.
#[btf_map]
pub(super) static RULE_STATS: PerCpuArray<RuleCounters, 16_384> = PerCpuArray::new();

/// Packets and bytes by interface. Written here, summed by the daemon, which resets the counters of
/// an interface before attaching to it.
#[btf_map]
pub(super) static INTERFACE_STATS: PerCpuArray<
    InterfaceCounters,
    { InterfaceCounters::PLACES as usize },
> = PerCpuArray::new();

/// Tables of even and of odd generations. Written by the daemon, like `RULES`.
#[btf_map]
pub(super) static TABLES: Array<Table, { 2 * MAX_TABLES as usize }> = Array::new();

/// Shapes of tables. Written by the daemon, like `RULES`.
#[btf_map]
pub(super) static SHAPES: Array<Shape, { (2 * MAX_TABLES * MAX_SHAPES) as usize }> = Array::new();

/// Keys of tables to slots of records, one trie for even and one for odd generations. Written by
/// the daemon, like `RULES`.
#[btf_map]
pub(super) static TABLE_RULES: ArrayOfMaps<LpmTrie<TableKey, u64, 16_384>, 2> = ArrayOfMaps::new();

/// Records by slot. Written by the daemon, like `LIMITS`.
#[btf_map]
pub(super) static RECORDS: Array<Record, 16_384> = Array::new();

/// Buckets of tables. Written here; read by the daemon. Eviction policy:
/// [`limiter_decision::entries`].
#[btf_map]
pub(super) static KEYED: HashMap<KeyName, KeyedEntry, 65_536> = HashMap::new();

/// Shared budgets, initialised by the daemon, and after them the overflow buckets of keys without a
/// bucket, by rule number. Written here; never evicted.
#[btf_map]
pub(super) static BUDGETS: Array<KeyedBucket, { MAX_BUDGETS as usize + 16_384 }> = Array::new();

/// Leases of limits that nodes share. The daemon writes the words that grant, in memory that it has
/// mapped; the others are written here.
#[btf_map]
pub(super) static LEASES: Array<Lease, { MAX_LEASES as usize }, { BPF_F_MMAPABLE as usize }> =
    Array::new();

/// Leases of keys: [`limiter_common::wire::KeyLeases`]. An entry is made here when a key asks, and
/// filled in and removed by the daemon.
#[btf_map]
pub(super) static LEASED: HashMap<
    TableKey,
    u64,
    { KEY_LEASES as usize },
    { BPF_F_NO_PREALLOC as usize },
> = HashMap::new();

/// Keys that ask for leases, not yet read by the daemon: [`limiter_common::wire::Ask`]. Untyped,
/// because libbpf does not make a ring of a type with a size.
#[btf_map]
pub(super) static ASKS: RingBuf<[u8; 0], { ASK_BYTES as usize }> = RingBuf::new();

/// Actions on packets over a limit. Written by the daemon before a generation that refers to them.
#[btf_map]
pub(super) static ACTIONS: Array<Action, { MAX_ACTIONS as usize }> = Array::new();

/// Sources that were over a limit with a ban. Written here and by the daemon; evicts the least
/// recently used.
#[btf_map]
pub(super) static BANS: LruHashMap<[u8; 16], Ban, 65_536> = LruHashMap::new();

/// Times at which the last packets of flows passed. Written here; evicts the least recently used.
#[btf_map]
pub(super) static FLOWS: LruHashMap<FlowKey, u64, 65_536> = LruHashMap::new();

/// Interfaces to which `ActionKind::Interface` redirects. Written by the daemon.
#[btf_map]
pub(crate) static INTERFACES: DevMap<64> = DevMap::new();

/// CPUs to which `ActionKind::Cpu` redirects. Written by the daemon.
#[btf_map]
pub(crate) static CPUS: CpuMap<1> = CpuMap::new();

/// The other XDP program that continues with the packets that pass, if there is one. Written by the
/// daemon.
#[btf_map]
pub(crate) static THEN: ProgramArray<1> = ProgramArray::new();

/// The current packet, per CPU.
#[btf_map]
pub(super) static SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();

/// Slots of the eviction ring of `KEYED`, with the names of its keys. Written and read here.
#[btf_map]
pub(super) static FRAMES_KEYED: Array<KeyedRingSlot, 65_536> = Array::new();

/// Settings and cursors of the tables of entries. Settings are written by the daemon that makes the
/// maps.
#[btf_map]
pub(super) static SPACES: Array<EntryTable, { EntryKind::COUNT }> = Array::new();

/// New entries by table. Written here, summed by the daemon.
#[btf_map]
pub(super) static ADMISSION: PerCpuArray<AdmissionCells, { EntryKind::COUNT }> = PerCpuArray::new();

/// Buckets shared by sources without their own. Written and read here.
#[btf_map]
pub(super) static AGGREGATES: Array<u64, { AGGREGATE_COUNT as usize }> = Array::new();

/// Fingerprints of sources and keys that found no entry:
/// [`limiter_decision::entries::fingerprint`]. Written and read here.
#[btf_map]
pub(super) static FINGERPRINTS: Array<u64, { FINGERPRINT_COUNT as usize }> = Array::new();

/// Drops that each CPU has not added to a bucket yet. Written here; read by the daemon.
#[btf_map]
pub(super) static UNCOUNTED: PerCpuArray<Uncounted, 1> = PerCpuArray::new();
