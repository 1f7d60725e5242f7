//! The two words of a bucket, and how they change together without a lock.
//!
//! *Word* holds the theoretical arrival time and one *scale bit*. *Resolved* holds the limit under
//! which the source is charged, the previous limit, the generation in which they were looked up,
//! and its own scale bit. The scale bits agree except while the TAT must still be converted to a
//! changed limit. A CPU that finds them different converts first. Because the bit is part of the
//! compared word, the conversion happens exactly once, and a charge computed under the old limit
//! cannot be stored after it.

use crate::time::{MAX_TICKS, Ticks};

/// Upper bound of limit slots, for which [`Resolved`] has bits.
pub const MAX_SLOTS: u32 = 1 << 19;

/// Theoretical arrival time (63 bits) and scale bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(u64);

crate::raw_word!(Word);

impl Word {
    /// The word of a bucket that is being removed: no charge can be stored in it any more. No
    /// charge produces it, because it would be the last instant of the clock.
    pub const GONE: Self = Self::new(Ticks::new(MAX_TICKS), true);

    /// True if the bucket is being removed.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_gone(self) -> bool {
        self.0 == Self::GONE.0
    }

    /// Packs time and scale bit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn new(tat: Ticks, scale: bool) -> Self {
        Self(tat.get() << 1 | scale as u64)
    }

    /// The theoretical arrival time.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn tat(self) -> Ticks {
        Ticks::new_within(self.0 >> 1)
    }

    /// The scale bit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn scale(self) -> bool {
        self.0 & 1 != 0
    }
}

/// The word of a bucket before and after a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The word before the charge.
    pub old: u64,
    /// The word after the charge.
    pub new: u64,
}

impl Change {
    /// Nothing was charged. Not an `Option`: the compiler leaves the payload of a `None`
    /// uninitialised, and the verifier does not allow reading it without `CAP_PERFMON`.
    pub const NONE: Self = Self { old: 0, new: 0 };
}

/// Index of a [`crate::wire::Limit`], under [`MAX_SLOTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(u32);

impl Slot {
    /// No slot: the last index, which the daemon never hands out.
    pub const NONE: Self = Self(MAX_SLOTS - 1);

    /// Makes a slot of an index; one that does not fit becomes [`Slot::NONE`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn new(index: u32) -> Self {
        if index < MAX_SLOTS { Self(index) } else { Self::NONE }
    }

    /// The index into the `LIMITS` array.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn index(self) -> u32 {
        self.0
    }
}

const GENERATION_BITS: u32 = 25;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
const SLOT_BITS: u32 = MAX_SLOTS.trailing_zeros();
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// The most generations by which a bucket may be ahead of a packet and still count as newer.
const NEWER_WINDOW: u32 = 1 << 10;

/// The number of a rule set, cut to 25 bits. Comparisons wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// Takes the low bits of a full generation number.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[expect(clippy::cast_possible_truncation, reason = "masked before the cast")]
    pub const fn new(number: u64) -> Self {
        Self((number & GENERATION_MASK as u64) as u32)
    }

    /// The low bits of the number.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Generation of the next rule set.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1) & GENERATION_MASK)
    }

    /// The index of the trie, of two, that belongs to this generation.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn buffer(self) -> u32 {
        self.0 & 1
    }

    /// True if a limit that was resolved under `self` still holds for a packet that sees `current`:
    /// the same generation, or a newer one that another CPU saw first.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn covers(self, current: Self) -> bool {
        self.0.wrapping_sub(current.0) & GENERATION_MASK < NEWER_WINDOW
    }

    /// True if a slot filled in generation `since` already meant the same limit under `self`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn knows(self, since: u32) -> bool {
        self.0.wrapping_sub(since) & GENERATION_MASK < 1 << (GENERATION_BITS - 1)
    }
}

/// The limit of a source: `generation:25 | scale:1 | slot:19 | previous:19`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved(u64);

crate::raw_word!(Resolved);

impl Resolved {
    /// Packs the four parts.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn new(generation: Generation, slot: Slot, previous: Slot, scale: bool) -> Self {
        Self(
            (generation.0 as u64) << (2 * SLOT_BITS + 1)
                | (scale as u64) << (2 * SLOT_BITS)
                | (slot.0 as u64) << SLOT_BITS
                | previous.0 as u64,
        )
    }

    /// The generation in which the source's rule was looked up.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn generation(self) -> Generation {
        Generation::new(self.0 >> (2 * SLOT_BITS + 1))
    }

    /// The scale bit of [`Word`] once it is converted to this limit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn scale(self) -> bool {
        self.0 >> (2 * SLOT_BITS) & 1 != 0
    }

    /// The limit in force.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn slot(self) -> Slot {
        Slot((self.0 >> SLOT_BITS & SLOT_MASK) as u32)
    }

    /// The previous limit; [`Slot::NONE`] if there was none, or its slot now means something else.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn previous(self) -> Slot {
        Slot((self.0 & SLOT_MASK) as u32)
    }

    /// True while a packet converts the bucket of a table. The words of a new map are zero.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_converting(self) -> bool {
        self.raw() != 0 && self.previous().index() != Slot::NONE.index()
    }

    /// True if there was a previous limit and its slot, filled in generation `since`, still means
    /// it.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn knows_previous(self, since: u32) -> bool {
        self.previous().0 != Slot::NONE.0 && self.generation().knows(since)
    }
}
