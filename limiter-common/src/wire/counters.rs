//! Counter layouts. Each is in a per-CPU array, so the program adds without atomics.

use core::cell::Cell;

use bytemuck::{Pod, Zeroable};

use crate::bucket_key::BucketKey;
use crate::frame_size::FrameSize;
use crate::header::Direction;
use crate::verdict::{Reason, Verdict};

/// Packets and bytes of one verdict reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tally {
    /// Packets. A super-frame ([`FrameSize`]) counts as the packets that it stands for.
    pub packets: u64,
    /// Bytes of those packets, from the Ethernet header, without the checksum.
    pub bytes: u64,
}

impl Tally {
    /// Adds a frame. Wraps after 2^64.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn add(&mut self, size: FrameSize) {
        self.packets = self.packets.wrapping_add(size.packets());
        self.bytes = self.bytes.wrapping_add(size.bytes());
    }

    /// Adds a frame if `condition` is 1, nothing if it is 0.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn add_if(&mut self, condition: u64, size: FrameSize) {
        let mask = condition.wrapping_neg();
        self.packets = self.packets.wrapping_add(size.packets() & mask);
        self.bytes = self.bytes.wrapping_add(size.bytes() & mask);
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn subtract(&mut self, other: Self) {
        self.packets = self.packets.wrapping_sub(other.packets);
        self.bytes = self.bytes.wrapping_sub(other.bytes);
    }

    /// Adds another tally, such as the next CPU's.
    pub fn merge(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// Packets and bytes of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RuleCounters {
    /// Frames that the rule let pass.
    pub passed: Tally,
    /// Frames that the rule dropped.
    pub dropped: Tally,
    /// Frames, of those that passed, that a rule in shadow mode would have dropped.
    pub shadowed: Tally,
    /// Frames, of those that passed, that were over a limit and were marked, delayed or redirected.
    pub marked: Tally,
}

impl RuleCounters {
    /// Adds a frame that left with `reason`.
    ///
    /// All four counters are written, with one frame or none: selecting one would need a pointer
    /// with an offset that depends on the path to it, which the verifier allows only with
    /// `CAP_PERFMON`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn add(&mut self, reason: Reason, size: FrameSize) {
        let passed = u64::from(matches!(reason.verdict(), Verdict::Pass));
        self.passed.add_if(passed, size);
        self.dropped.add_if(1 - passed, size);
        self.shadowed.add_if(u64::from(matches!(reason, Reason::Shadow)), size);
        let marked =
            matches!(reason, Reason::Marked | Reason::Class | Reason::Redirected | Reason::Delayed);
        self.marked.add_if(u64::from(marked), size);
    }

    /// Undoes [`RuleCounters::add`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn take_back(&mut self, reason: Reason, size: FrameSize) {
        let mut frame = Self::default();
        frame.add(reason, size);
        self.passed.subtract(frame.passed);
        self.dropped.subtract(frame.dropped);
        self.shadowed.subtract(frame.shadowed);
        self.marked.subtract(frame.marked);
    }

    /// Adds other counters, such as the next CPU's.
    pub fn merge(&mut self, other: Self) {
        self.shadowed.merge(other.shadowed);
        self.marked.merge(other.marked);
        self.passed.merge(other.passed);
        self.dropped.merge(other.dropped);
    }
}

/// Packets and bytes that came in by one interface, or went out by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct InterfaceCounters {
    /// Frames that passed.
    pub passed: Tally,
    /// Frames that were dropped.
    pub dropped: Tally,
}

impl InterfaceCounters {
    /// Places for counters of each direction: a power of two. Interfaces whose indices differ by a
    /// multiple of it share their counters.
    const EACH: u32 = 1024;

    /// Places for counters.
    pub const PLACES: u32 = 2 * Self::EACH;

    /// Place of an interface's counters for a direction, by its index.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn place(index: u32, direction: Direction) -> u32 {
        (index & (Self::EACH - 1)) | ((direction as u32) * Self::EACH)
    }

    /// Adds a frame that left with `reason`. Both counters are written, as in
    /// [`RuleCounters::add`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn add(&mut self, reason: Reason, size: FrameSize) {
        let passed = u64::from(matches!(reason.verdict(), Verdict::Pass));
        self.passed.add_if(passed, size);
        self.dropped.add_if(1 - passed, size);
    }

    /// Adds other counters, such as the next CPU's.
    pub fn merge(&mut self, other: Self) {
        self.passed.merge(other.passed);
        self.dropped.merge(other.dropped);
    }
}

/// Drops of one source that a CPU has not yet counted in its bucket.
///
/// With a flood from one source on several CPUs, they would wait for each other at the counter. So
/// a CPU that drops [`Uncounted::RUN`] packets of a source in a row counts further drops here. It
/// adds them to the bucket after every [`Uncounted::MOST`], and when it drops a packet of another
/// source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Uncounted {
    /// [`BucketKey::word`] of the key with these drops.
    bucket_key: u64,
    /// The number of its [`BucketKey::kind`].
    kind: u32,
    /// Consecutive drops that were counted in the bucket, up to [`Uncounted::RUN`].
    run: u32,
    /// Drops that were not counted there yet.
    dropped: u64,
}

impl Uncounted {
    /// Consecutive drops after which further ones are counted here. Adding them up takes a look-up,
    /// which is then a small part of the cost of so many packets.
    pub const RUN: u32 = 8;

    /// Drops that are added up at once, plus at most those of one super-frame.
    pub const MOST: u64 = 64;

    /// Counts a dropped frame of a source. Returns how many packets to add to its bucket now;
    /// `None` if the source differs from the last one: then call [`Uncounted::begin`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn again(place: &Cell<Self>, bucket_key: &BucketKey, packets: u64) -> Option<u64> {
        let (word, kind) = (bucket_key.word(), bucket_key.kind().index());
        let held = place.get();
        if held.bucket_key != word || held.kind != kind {
            return None;
        }
        if held.run < Self::RUN {
            place.set(Self { run: held.run.wrapping_add(1), ..held });
            return Some(packets);
        }
        let dropped = held.dropped.wrapping_add(packets);
        if dropped < Self::MOST {
            place.set(Self { dropped, ..held });
            return Some(0);
        }
        place.set(Self { dropped: 0, ..held });
        Some(dropped)
    }

    /// Begins a run of drops, whose first one is counted in the bucket.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn begin(bucket_key: &BucketKey) -> Self {
        let (word, kind) = (bucket_key.word(), bucket_key.kind().index());
        Self { bucket_key: word, kind, run: 1, dropped: 0 }
    }

    /// The source whose drops are held, and their number; 0 if there is nothing to add.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn held(&self) -> (BucketKey, u64) {
        (BucketKey::of_word(self.bucket_key, self.kind), self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::wire::EntryKind;

    /// The counters of two sources, and of one CPU.
    #[derive(Default)]
    struct Cpu {
        uncounted: Cell<Uncounted>,
        counted: [u64; 2],
    }

    fn bucket_keys() -> [BucketKey; 2] {
        [Source::V4([1, 2, 3, 4]), Source::V6([1, 2, 3, 4, 0, 0, 0, 0])].map(BucketKey::from)
    }

    impl Cpu {
        fn index(bucket_key: BucketKey) -> usize {
            usize::from(bucket_key.kind() == EntryKind::V6)
        }

        fn add(&mut self, bucket_key: BucketKey, packets: u64) {
            if let Some(counter) = self.counted.get_mut(Self::index(bucket_key)) {
                *counter += packets;
            }
        }

        fn drop(&mut self, bucket_key: BucketKey) {
            let packets = Uncounted::again(&self.uncounted, &bucket_key, 1).unwrap_or_else(|| {
                let (before, held) = self.uncounted.get().held();
                if held > 0 {
                    self.add(before, held);
                }
                self.uncounted.set(Uncounted::begin(&bucket_key));
                1
            });
            self.add(bucket_key, packets);
        }

        fn seen(&self) -> [u64; 2] {
            let (bucket_key, held) = self.uncounted.get().held();
            let mut seen = self.counted;
            if let Some(counter) = seen.get_mut(Self::index(bucket_key)) {
                *counter += held;
            }
            seen
        }
    }

    #[test]
    fn what_is_held_and_what_is_counted_are_all_drops() {
        let mut cpu = Cpu::default();
        let mut all = [0, 0];
        let mut random = 1_u64;
        for _ in 0..2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let which = usize::from(random >> 63 == 1);
            for _ in 0..(random >> 32) & 0xff {
                if let (Some(bucket_key), Some(count)) =
                    (bucket_keys().get(which), all.get_mut(which))
                {
                    cpu.drop(*bucket_key);
                    *count += 1;
                }
                assert_eq!(cpu.seen(), all);
                assert!(cpu.uncounted.get().held().1 < Uncounted::MOST);
            }
        }
    }

    #[test]
    fn a_long_row_is_seldom_counted_in_the_bucket() {
        let mut cpu = Cpu::default();
        for _ in 0..Uncounted::RUN {
            cpu.drop(Source::V4([1, 2, 3, 4]).into());
        }
        assert_eq!(cpu.counted, [8, 0]);
        for _ in 1..Uncounted::MOST {
            cpu.drop(Source::V4([1, 2, 3, 4]).into());
        }
        assert_eq!(cpu.counted, [8, 0]);
        cpu.drop(Source::V4([1, 2, 3, 4]).into());
        assert_eq!(cpu.counted, [72, 0]);
    }
}
