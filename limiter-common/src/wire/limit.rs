//! The compiled form of a limit.

use bytemuck::{Pod, Zeroable};

use crate::frame_size::FrameSize;
use crate::verdict::Reason;

/// Rule number of packets that match no rule.
pub const RULE_NONE: u32 = 0;

/// Rule number under which the daemon keeps the counts of rules that were removed. The program
/// never writes it.
pub const RULE_RETIRED: u32 = 1;

/// The unit that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Count {
    /// Frames.
    Packets = 0,
    /// Bytes of the frame, from the Ethernet header, without the checksum.
    Bytes = 1,
    /// Attempts to open a TCP connection: one for SYN without ACK, and for packets that cannot be
    /// distinguished from it (`limiter_decision::packet::Facts::opens_connection`); none for every
    /// other packet.
    Syns = 2,
    /// New flows: one for the first packet of addresses, protocol and ports that were not seen for
    /// a minute; none for every other packet.
    Flows = 3,
}

impl Count {
    /// The largest count of one frame: 1, or 2^17 - 1 bytes. The kernel's largest multi-buffer
    /// frame is under 2^17 bytes (`MAX_SKB_FRAGS` pages and the linear part).
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn max_units(self) -> u64 {
        match self {
            Self::Packets | Self::Syns | Self::Flows => 1,
            Self::Bytes => (1 << 17) - 1,
        }
    }

    /// The name in rule files and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::Syns => "syns",
            Self::Flows => "flows",
        }
    }

    /// Converts the number in a map.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Bytes,
            2 => Self::Syns,
            3 => Self::Flows,
            _ => Self::Packets,
        }
    }
}

/// The kind of a limit: what its slot does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A rate and a burst, see `limiter_decision::gcra`.
    Limited = 0,
    /// Packets always pass.
    Unlimited = 1,
    /// Like [`Kind::Limited`], but packets over the limit also pass, and are counted.
    Shadow = 2,
}

/// A limit, ready for the data path: the value of the `LIMITS` array.
///
/// Immutable while any generation in force refers to its slot: a changed limit gets another slot.
/// Only `ended` is written later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Limit {
    /// Ticks per unit, times 2^`shift`, rounded up. `increment * max_units < 2^62`.
    pub increment: u64,
    /// Largest debt in ticks: burst * increment / 2^shift, rounded down, at most 2^61.
    pub tolerance: u64,
    /// Rule number: the index of its counters.
    pub rule: u32,
    /// The generation in which the slot was filled: buckets resolved earlier meant another limit.
    pub since: u32,
    /// Fraction bits of `increment`, under 64.
    pub shift: u8,
    /// Charged unit: a [`Count`].
    pub count: u8,
    /// Kind of the limit: a [`Kind`].
    pub kind: u8,
    /// A [`super::Full`], [`Limit::LARGEST`] and [`Limit::CUT`].
    pub full: u8,
    /// The action on a packet over the limit: an index into `ACTIONS`.
    pub action: u16,
    /// The low bits of the generation in which it left force ([`ended_in`]); 0 while it is in
    /// force, or if that is unknown. Written once that generation is in force.
    pub ended: u16,
}

const _: () = assert!(size_of::<Limit>() == 32);

impl Limit {
    /// The bit of `full` of [`Limit::is_largest`].
    pub const LARGEST: u8 = 1 << 7;

    /// The bit of `full` of [`Limit::is_cut_on_trial`].
    pub const CUT: u8 = 1 << 6;

    /// True if the limit came into force on trial in place of a larger one. Then a source keeps its
    /// debt, even above the limit, so that it is still known if the trial is reverted.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_cut_on_trial(&self) -> bool {
        self.full & Self::CUT != 0
    }

    /// Sets or clears [`Limit::is_cut_on_trial`].
    #[must_use]
    pub const fn with_cut_on_trial(self, cut: bool) -> Self {
        let full = self.full & !Self::CUT;
        Self { full: if cut { full | Self::CUT } else { full }, ..self }
    }

    /// True if the rule never had a larger burst, and no change in between made it smaller: then a
    /// source owes everything that it was charged. A raise between two such limits of one rule
    /// grants the difference at once.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_largest(&self) -> bool {
        self.full & Self::LARGEST != 0
    }

    /// Sets or clears [`Limit::is_largest`].
    #[must_use]
    pub const fn with_largest(self, largest: bool) -> Self {
        let full = self.full & !Self::LARGEST;
        Self { full: if largest { full | Self::LARGEST } else { full }, ..self }
    }

    /// The unit that the limit counts.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn counts(&self) -> Count {
        Count::from_raw(self.count)
    }

    /// True if the limit passes everything.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_unlimited(&self) -> bool {
        self.kind == Kind::Unlimited as u8
    }

    /// The reason of a packet over this limit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn over(&self) -> Reason {
        if self.kind == Kind::Shadow as u8 { Reason::Shadow } else { Reason::OverLimit }
    }

    /// What to do with packets of sources that get no bucket.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn when_full(&self) -> super::Full {
        super::Full::from_raw(self.full & !(Self::LARGEST | Self::CUT))
    }

    /// The units of a frame. The source table only counts packets and bytes.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn units(&self, size: FrameSize) -> u64 {
        if self.count == Count::Bytes as u8 { size.bytes() } else { size.packets() }
    }

    /// The largest count that is charged in full; see [`Count::max_units`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn max_units(&self) -> u64 {
        self.counts().max_units()
    }
}

/// The two limits of a marker, or of a soft limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TwoRate {
    /// CIR and CBS.
    pub committed: Limit,
    /// PIR and PBS of RFC 2698, EIR and EBS of RFC 4115.
    pub upper: Limit,
}

/// The value of [`Limit::ended`] for a limit that leaves force in a generation. One in 65,536 reads
/// as unknown.
#[expect(clippy::cast_possible_truncation, reason = "only the low bits are compared")]
pub const fn ended_in(generation: u64) -> u16 {
    generation as u16
}
