//! The weight of reasons, which decides the reported one if several rules give reasons.

use limiter_common::verdict::Reason;

use crate::outcome::Packed;

/// The weight of a reason for passing: the more specific reason has the larger weight.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) const fn weight(reason: Reason) -> u32 {
    match reason {
        Reason::NoRule => 0,
        Reason::Unlimited => 1,
        Reason::Conforming => CONFORMING,
        Reason::Untracked | Reason::Aggregate => 3,
        Reason::Shadow => 4,
        Reason::Class => 5,
        // These change or delay the packet.
        Reason::Marked | Reason::Delayed => MARKED,
        _ => 7,
    }
}

/// [`weight`] by the number of the reason, from a table of four bits per reason instead of
/// branches.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) const fn weight_of(index: u32) -> u32 {
    let (low, high) = WEIGHTS;
    let half = if index < 16 { low } else { high };
    (half >> (index.wrapping_mul(4) & 63) & 15) as u32
}

const WEIGHTS: (u64, u64) = {
    let (mut low, mut high) = (0, 0);
    let mut index = 0;
    while index < 16 {
        low |= (weight(Reason::from_index(index)) as u64) << (4 * index);
        high |= (weight(Reason::from_index(16 + index)) as u64) << (4 * index);
        index += 1;
    }
    (low, high)
};

const _: () = assert!(Reason::COUNT <= 32);

pub(crate) const CONFORMING: u32 = 2;
pub(crate) const MARKED: u32 = 6;

/// The outcome of a packet that conforms in its tables, after `source` from the source table: the
/// more specific of both.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn passed(source: Packed) -> Packed {
    if CONFORMING > weight_of(source.reason_index()) {
        source.passed_as(Reason::Conforming.index(), 0)
    } else {
        source
    }
}
