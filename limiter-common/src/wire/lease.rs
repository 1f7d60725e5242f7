//! A lease: units of a limit shared by several nodes, granted to this node ahead of need.

use bytemuck::{Pod, Zeroable};

use super::{MAX_BUDGETS, MAX_LIMITS, TableKey};
use crate::bucket::Slot;

/// [`MAX_LIMITS`], for counting leases.
const LEASES_OF_BUDGET: u32 = 4;

const _: () = assert!(LEASES_OF_BUDGET as usize == MAX_LIMITS);

/// Number of leases of budgets: one for each limit of each shared budget. They come first.
pub const BUDGET_LEASES: u32 = MAX_BUDGETS * LEASES_OF_BUDGET;

/// Number of leases of keys, and so the most keys with leases: each key has consecutive leases, as
/// many as its rule has limits up to the last one that nodes share.
pub const KEY_LEASES: u32 = 65_536;

/// Entries of `LEASES`: for budgets and for keys.
pub const MAX_LEASES: u32 = BUDGET_LEASES + KEY_LEASES;

/// The value of the map `LEASES`. Each word has only one writer, so no write of the daemon can lose
/// a charge of the program.
///
/// A packet of `units` passes while `now < expires` and `used + units <= granted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Lease {
    /// Total of units that `used` may reach. Written only by the daemon.
    pub granted: u64,
    /// The instant from which the lease no longer decides, in ticks; 0 if it never did. Written
    /// only by the daemon.
    pub expires: u64,
    /// Total of units charged to packets. Changed only by the program, by compare-and-exchange.
    pub used: u64,
    /// Total of units denied, by the lease or by the share. Changed only by the program, by atomic
    /// addition.
    pub denied: u64,
    /// Padding to a line of the processor's cache; zero.
    pub reserved: [u64; 4],
}

const _: () = assert!(size_of::<Lease>() == 64);

/// The index of the lease of the limit at `place`, in the budget with the index `budget`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn lease_of_budget(budget: u32, place: u32) -> u32 {
    budget * LEASES_OF_BUDGET + place
}

/// The leases of a key: the value of the map `LEASED`.
///
/// The program makes an entry when a key asks for leases ([`Ask`]); the daemon fills it in, and
/// removes it once the key needs none. A key with an entry does not ask again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct KeyLeases(u64);

crate::raw_word!(KeyLeases);

impl KeyLeases {
    /// A key that has asked, and has no leases yet.
    pub const ASKED: Self = Self(0);

    /// A key with leases on another node: it asks with its next packet here, because its share
    /// would come on top of them.
    pub const ELSEWHERE: Self = Self(1);

    /// Leases from index `first` on, for the limits of the record in a slot. `first` is at least
    /// [`BUDGET_LEASES`], so this equals neither constant.
    pub const fn new(slot: Slot, first: u32) -> Self {
        Self((slot.index() as u64) << 32 | first as u64)
    }

    /// The index of the lease for the limit at `place` of the record in `slot`; `None` if the
    /// leases belong to another record, or there are none yet.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn lease(self, slot: Slot, place: u32) -> Option<u32> {
        let first = (self.0 & 0xffff_ffff) as u32;
        if first < BUDGET_LEASES || (self.0 >> 32) as u32 != slot.index() {
            return None;
        }
        Some(first.wrapping_add(place))
    }
}

/// A key that asks for leases: an item of the ring `ASKS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Ask {
    /// Key that asks for a lease.
    pub key: TableKey,
    /// The slot of the record of the key.
    pub slot: u32,
    /// Padding; zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Ask>() == 64);

/// Size of the ring of asks in bytes: a power of two, and whole pages on every machine. It holds
/// 4,096 asks; a key that finds it full asks again with a later packet.
pub const ASK_BYTES: u32 = 256 << 10;
