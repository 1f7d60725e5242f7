//! The maps as the decision sees them.
//!
//! A [`Maps`] only provides data: look-ups, inserts, removals and counts of one entry. It decides
//! nothing, and calls nothing of this crate that decides. So a packet's way can be read downwards:
//! each method is a map of the kernel in the XDP program, and a collection in the host model.

use core::cell::Cell;

use limiter_common::bucket::{Generation, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
#[cfg(not(target_arch = "bpf"))]
use limiter_common::wire::HostLease;
use limiter_common::wire::{
    Action, Bucket, Control, EntryKind, FlowKey, KeyName, KeyedEntry, Limit, ListEntry, Moment,
    Record, Shape, Table, TableKey, TrieValue, Uncounted,
};

use crate::algorithm::Words;
use crate::ban::Entry;
use crate::cell::{Cell as SharedWord, SourceBucket};
use crate::entries::{AdmissionCells, EntryTableWords};
use crate::line::{Line, Lines};
use crate::outcome::Insert;
use crate::register::OutParameter;
use crate::stored::StoredIn;
use crate::table::KeyCell;

/// The maps, as the decision sees them.
pub trait Maps: Sized {
    /// True if a frame may be a super-frame: [`FrameSize::is_super_frame`].
    const SUPER_FRAMES: bool;

    /// True if a packet can wait until it conforms.
    const DELAYS: bool;

    /// The bucket of a source in a hash map, in place.
    type Hashed: SourceBucket;

    /// A line of sources in place.
    type Line: Line;

    /// The bucket of a key, or a budget, in place.
    type Keyed: Keyed;

    /// A bucket of the tables of sources, kept from the check to the charge.
    type Kept: Kept<StoredIn<Self>>;

    /// A lease in place.
    type Lease: Lease;

    /// A source on record for a ban, in place.
    type Ban: Entry;

    /// A word of `CONTROL`.
    fn control(&self, word: Control) -> u64;

    /// The present time, for a packet whose arrival time may be up to [`crate::clock::SLACK`]
    /// early. Charges use this.
    fn now(&self, recent: Ticks) -> Ticks;

    /// The word of `CHANGES` for a generation ([`Moment::index`]).
    fn moment(&self, generation: u32) -> Moment;

    /// The part of a subprogram's answer that does not fit into a register. Only the XDP program
    /// has it; on the host a subprogram is an ordinary call.
    fn out_parameter(&self) -> Option<&OutParameter>;

    /// The list entry of exactly this source.
    fn listed(&self, source: &Source) -> Option<&ListEntry>;

    /// The list entry of the longest prefix that contains a source.
    fn listed_prefix(&self, source: &Source) -> Option<&ListEntry>;

    /// The record of a source in `BANS`.
    fn ban(&self, source: &Source) -> Option<Self::Ban>;

    /// Makes a zeroed record if there is none.
    fn insert_ban(&self, source: &Source) -> Insert;

    /// The slot of the longest prefix that contains a source or a compact key, in the rules of a
    /// generation.
    fn source_rule(&self, generation: Generation, bucket_key: &BucketKey) -> Option<Slot>;

    /// The limit in a slot.
    fn limit(&self, slot: Slot) -> Option<&Limit>;

    /// The lines of a family; `None` if sources are in hash maps. That is the same for all
    /// families, and does not change while the maps exist.
    fn lines(&self, kind: EntryKind) -> Option<Lines>;

    /// A line of a family.
    fn line(&self, kind: EntryKind, index: u32) -> Option<Self::Line>;

    /// The bucket of a key in a hash map.
    fn source_bucket(&self, bucket_key: &BucketKey) -> Option<Self::Hashed>;

    /// The bucket of a compact key in a hash map, by its word in memory.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn compact_bucket(&self, word: &Cell<u64>) -> Option<Self::Hashed> {
        self.source_bucket(&BucketKey::compact(word.get()))
    }

    /// Makes a bucket in a hash map if there is none.
    fn insert(&self, bucket_key: &BucketKey, bucket: &Bucket) -> Insert;

    /// Removes the bucket of a key from a hash map.
    fn remove(&self, bucket_key: &BucketKey);

    /// Drops of this CPU that are not in a bucket yet; `None` if each is counted at once.
    fn uncounted(&self) -> Option<&Cell<Uncounted>>;

    /// The bucket shared by sources without their own, by an index below
    /// [`limiter_common::wire::AGGREGATES`].
    fn aggregate(&self, index: u32) -> Option<impl SharedWord>;

    /// Two cells of [`crate::entries::fingerprint`], by an index below
    /// [`limiter_common::wire::FINGERPRINTS`].
    fn fingerprints(&self, index: u32) -> Option<impl SharedWord>;

    /// The settings of an entry table.
    fn entry_table(&self, kind: EntryKind) -> Option<impl EntryTableWords>;

    /// The budget of new entries of this CPU.
    fn admission(&self, kind: EntryKind) -> Option<&AdmissionCells>;

    /// The state of a slot of its eviction ring.
    fn ring_slot(&self, kind: EntryKind, index: u32) -> Option<impl SharedWord>;

    /// Copies the key from a ring slot of [`EntryKind::Keyed`], which another CPU may be writing,
    /// to `key`.
    fn ring_key(&self, index: u32, key: &KeyCell);

    /// Writes a key into a ring slot of [`EntryKind::Keyed`] that this CPU has claimed.
    fn set_ring_key(&self, index: u32, key: &KeyCell);

    /// A table of a rule set.
    fn table(&self, generation: Generation, index: u32) -> Option<&Table>;

    /// A shape of a table.
    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Option<&Shape>;

    /// The rule with the longest source prefix among those that match the rest of the key;
    /// [`TrieValue::default`] if there is none.
    fn table_rule(&self, generation: Generation, key: &Cell<TableKey>) -> TrieValue;

    /// The record in a slot.
    fn record(&self, slot: Slot) -> Option<&Record>;

    /// An action. Index 0 is a plain drop.
    fn action(&self, index: u32) -> Option<&Action>;

    /// The name of a key; unused if buckets are looked up by their keys.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn key_name(&self, _key: &TableKey) -> KeyName {
        KeyName::default()
    }

    /// The bucket of a key.
    fn keyed(&self, key: &KeyCell) -> Option<Self::Keyed>;

    /// Makes a bucket of a key if there is none: zeros except for `resolved`. `made` is memory for
    /// its value.
    fn insert_keyed(&self, key: &KeyCell, made: &Cell<KeyedEntry>, resolved: u64) -> Insert;

    /// Removes the bucket of a key.
    fn remove_keyed(&self, key: &KeyCell);

    /// A shared budget; from index [`limiter_common::wire::MAX_BUDGETS`] on, the overflow bucket of
    /// keys without a bucket, by the number of their rule.
    fn budget(&self, index: u32) -> Option<Self::Keyed>;

    /// A lease, by [`limiter_common::wire::lease_of_budget`] or
    /// [`limiter_common::wire::KeyLeases`].
    fn lease(&self, index: u32) -> Option<Self::Lease>;

    /// The word with the leases of a key, a [`limiter_common::wire::KeyLeases`]; `None` if it has
    /// none and did not ask.
    fn leased(&self, key: &KeyCell) -> Option<impl SharedWord>;

    /// Makes the entry of a key that has asked for leases, if there is none.
    fn insert_leased(&self, key: &KeyCell) -> Insert;

    /// Removes the entry of a key's leases.
    fn remove_leased(&self, key: &KeyCell);

    /// Tells the daemon that a key asks for leases for the limits of the record in a slot; false if
    /// there is no space.
    fn ask(&self, key: &KeyCell, slot: Slot) -> bool;

    /// When the last packet of a flow passed.
    fn flow(&self, flow: &FlowKey) -> Option<Ticks>;

    /// Remembers that a packet of a flow passed at `now`.
    fn set_flow(&self, flow: &FlowKey, now: Ticks);

    /// Counts a frame under a rule, or undoes that if `add` is false.
    fn count_rule(&self, rule: u32, reason: Reason, size: FrameSize, add: bool);
}

/// The state of one key or budget, in place.
pub trait Keyed: Words + Clone {
    /// The address, by which it is passed to a subprogram.
    #[cfg(target_arch = "bpf")]
    fn address(&self) -> *mut u8;

    /// The first word.
    fn first(&self) -> impl SharedWord;

    /// The second word.
    fn second(&self) -> impl SharedWord;

    /// The word with the record: [`limiter_common::bucket::Resolved`].
    fn resolved(&self) -> impl SharedWord;

    /// Counts packets that passed or were dropped. The complement undoes that.
    fn count(&self, passed: bool, packets: u64);

    /// Notes the time of a packet.
    fn touch(&self, now: Ticks);

    /// The time of the last packet, in ticks.
    fn used(&self) -> u64;

    /// Number of counted packets.
    fn packets(&self) -> u64;
}

/// A bucket of the tables of sources that is kept from the check to the charge: a pointer, in the
/// XDP program.
pub trait Kept<S> {
    /// Keeps a bucket.
    fn of(bucket: S) -> Self;

    /// The bucket of a bucket key. Reads its limit before anything else.
    fn bucket(self, bucket_key: &BucketKey) -> Option<S>;
}

/// [`Kept`] on the host.
#[cfg(not(target_arch = "bpf"))]
#[derive(Debug)]
pub struct KeptBucket<S>(S);

#[cfg(not(target_arch = "bpf"))]
impl<S> Kept<S> for KeptBucket<S> {
    fn of(bucket: S) -> Self {
        Self(bucket)
    }

    fn bucket(self, _bucket_key: &BucketKey) -> Option<S> {
        Some(self.0)
    }
}

/// A lease ([`limiter_common::wire::Lease`]), in place.
pub trait Lease {
    /// Total of units that may be used.
    fn granted(&self) -> u64;

    /// The instant from which the lease no longer decides.
    fn expires(&self) -> Ticks;

    /// The word with the total of charged units.
    fn used(&self) -> impl SharedWord;

    /// Adds denied units.
    fn deny(&self, units: u64);
}

#[cfg(not(target_arch = "bpf"))]
impl<L: core::ops::Deref<Target = HostLease>> Lease for L {
    fn granted(&self) -> u64 {
        HostLease::granted(self)
    }

    fn expires(&self) -> Ticks {
        HostLease::expires(self)
    }

    fn used(&self) -> impl SharedWord {
        HostLease::used(self)
    }

    fn deny(&self, units: u64) {
        HostLease::deny(self, units);
    }
}
