//! A lease: units of a limit that several nodes share, granted to this node ahead of need.

use bytemuck::{Pod, Zeroable};

use super::{MAX_BUDGETS, MAX_LIMITS};

/// [`MAX_LIMITS`], as leases are counted.
const LEASES_OF_BUDGET: u32 = 4;

const _: () = assert!(LEASES_OF_BUDGET as usize == MAX_LIMITS);

/// Number of leases: one for each limit of each shared budget.
pub const MAX_LEASES: u32 = MAX_BUDGETS * LEASES_OF_BUDGET;

/// The value of the map `LEASES`. Each word has one writer, so no exchange of the daemon's can lose
/// a charge of the program's.
///
/// A packet of `units` passes while `now < expires` and `used + units <= granted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Lease {
    /// Total of units that `used` may reach. Written by the daemon alone.
    pub granted: u64,
    /// The instant from which the lease decides nothing, in ticks; 0: it never did. Written by the
    /// daemon alone.
    pub expires: u64,
    /// Total of units that packets were charged. Changed by the program alone, by
    /// compare-and-exchange.
    pub used: u64,
    /// Total of units that were refused, by the lease or by the share. Changed by the program
    /// alone, by atomic addition.
    pub denied: u64,
    /// Padding to a line of the processor's cache; zero.
    pub reserved: [u64; 4],
}

const _: () = assert!(size_of::<Lease>() == 64);

/// The index of the lease of the limit at `place`, in the budget with the index `budget`.
#[inline(always)]
pub const fn lease_of_budget(budget: u32, place: u32) -> u32 {
    budget * LEASES_OF_BUDGET + place
}
