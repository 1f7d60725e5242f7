//! Everything that crosses the map boundary: layouts, indices, map names, the ABI number.
//!
//! All structures are `repr(C)` without padding ([`bytemuck::Pod`] proves it), and in host byte
//! order, except addresses, which are in network order.

mod action;
mod capture;
mod control;
mod counters;
mod entries;
mod event;
mod flow;
#[cfg(not(target_arch = "bpf"))]
mod host_lease;
mod key;
mod key_name;
mod lease;
mod limit;
mod line;
mod list;
mod moment;
mod range;
mod record;
mod table;

pub use action::{Action, ActionKind, Ban, Evidence, MARK_ECN, MAX_ACTIONS};
pub use capture::{
    CAPTURED_BYTES, CaptureBudget, CaptureFilter, CaptureFrame, CaptureRecord, LEVELS, MAX_SNAP,
};
pub use control::{
    ABI_VERSION, Control, LISTS_AUTHORS, LISTS_EXACT, LISTS_PREFIXES, MAX_MEMBERS, Member,
    OwnBudget, RuleSetHeader, constant, is_daemon_lost, map,
};
pub use counters::{InterfaceCounters, RuleCounters, Tally, Uncounted};
pub use entries::{
    AGGREGATES, Admission, EntryKind, EntryTable, FINGERPRINTS, Full, KEEP, TURNOVER,
};
pub use event::{EVENT_BYTES, Event, EventBudget};
pub use flow::FlowKey;
#[cfg(not(target_arch = "bpf"))]
pub use host_lease::HostLease;
pub use key::{FRAGMENT_SHIFT, FlagClass, TRIE_FIXED_BITS, TableKey, field};
pub use key_name::{KeyName, KeyedEntry, KeyedRingSlot};
pub use lease::{
    ASK_BYTES, Ask, BUDGET_LEASES, KEY_LEASES, KeyLeases, Lease, MAX_LEASES, lease_of_budget,
};
pub use limit::{Count, Kind, Limit, RULE_NONE, RULE_RETIRED, TwoRate, ended_in};
pub use line::{LINE_BYTES_PER_SOURCE, LINE_WAYS, Line, LineEntry, lines_for};
pub use list::{ListEntry, Listed};
pub use moment::{CHANGES, Moment};
pub use range::{MAX_RANGES, Range};
pub use record::{
    Algorithm, KeyedBucket, LimitSpec, MAX_BUDGETS, MAX_LIMITS, MAX_RECORDS, OnLoss, Record, Role,
    WORDS,
};
pub use table::{MAX_SHAPES, MAX_TABLES, Shape, Table, TrieValue};

use bytemuck::{Pod, Zeroable};

/// The state of one source: the value of the bucket maps.
///
/// `word` and `resolved` are only changed by compare-and-exchange (see [`crate::bucket`]), the
/// counters by atomic addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Bucket {
    /// Theoretical arrival time and scale bit: [`crate::bucket::Word`].
    pub word: u64,
    /// The limit to which the source was resolved: [`crate::bucket::Resolved`].
    pub resolved: u64,
    /// Packets of this source that passed since the entry was made.
    pub passed: u64,
    /// Packets of this source that were dropped since the entry was made.
    pub dropped: u64,
}

const _: () = assert!(size_of::<Bucket>() == 32);
