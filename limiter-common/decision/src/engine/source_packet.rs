//! A packet for the source table, and its outcome there, in the form in which they are passed to
//! subprograms.

use core::hint::black_box;

use limiter_common::bucket::{Change, Generation};
use limiter_common::bucket_key::BucketKey;
use limiter_common::frame_size::FrameSize;
use limiter_common::time::Ticks;
use limiter_common::wire::EntryKind;

use crate::maps::Maps;
use crate::outcome::Packed;
use crate::register::{OutParameter, Register};

/// A packet for the source table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePacket {
    /// Key of the bucket to which it is charged.
    pub bucket_key: BucketKey,
    /// The rule set by which it is judged.
    pub generation: Generation,
    /// The size of the frame.
    pub size: FrameSize,
    /// Time of arrival, or up to [`crate::clock::SLACK`] before.
    pub now: Ticks,
    /// True if the action of an exceeded limit is carried out later.
    pub deferred: bool,
}

/// Fields without their own register: `generation:25 | deferred:1 | kind:8`, from bit 16, 8 and 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rest {
    generation: Generation,
    deferred: bool,
    kind: EntryKind,
}

impl Rest {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn raw(self) -> u64 {
        let Self { generation, deferred, kind } = self;
        u64::from(generation.get()) << 16 | u64::from(deferred) << 8 | u64::from(kind.index())
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn from_raw(raw: u64) -> Self {
        Self {
            generation: Generation::new(raw >> 16),
            deferred: raw >> 8 & 1 != 0,
            kind: EntryKind::of_number((raw & 3) as u32),
        }
    }
}

impl SourcePacket {
    /// Copy of the packet at another time.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub const fn at(&self, now: Ticks) -> Self {
        Self { now, ..*self }
    }

    /// Four registers: the word of the bucket key, the `Rest`, the size and the time.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn registers(&self) -> [u64; 4] {
        let Self { bucket_key, generation, size, now, deferred } = *self;
        let rest = Rest { generation, deferred, kind: bucket_key.kind() };
        [bucket_key.word(), rest.raw(), size.raw(), now.get()]
    }

    /// Restores the result of [`SourcePacket::registers`], at the hook of some maps.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn of_registers<W: Maps>([word, rest, size, now]: [u64; 4]) -> Self {
        let Rest { generation, deferred, kind } = Rest::from_raw(rest);
        let bucket_key = BucketKey::of_word(word, kind.index());
        let size = FrameSize::from_raw(size).at_hook(W::SUPER_FRAMES);
        let now = Ticks::new_within(now);
        Self { bucket_key, generation, size, now, deferred }
    }
}

/// Outcome of a packet, if known, and its change of the source's bucket.
pub type SourceCharge = (Option<Packed>, Change);

/// Makes a [`Register`] of an outcome with the packet's change, which is passed in the out
/// parameter.
macro_rules! with_change {
    ($outcome:ty, $lost:expr) => {
        impl Register for ($outcome, Change) {
            const LOST: Self = ($lost, Change::NONE);

            #[cfg_attr(target_arch = "bpf", inline(always))]
            fn to_register(self) -> u64 {
                self.0.to_register()
            }

            #[cfg_attr(target_arch = "bpf", inline(always))]
            fn of_register(register: u64) -> Self {
                (Register::of_register(register), Change::NONE)
            }

            #[cfg_attr(target_arch = "bpf", inline(always))]
            fn put_out_parameter<'a>(self, out: impl FnOnce() -> Option<&'a OutParameter>) {
                if let Some(OutParameter { words: [old, new] }) = out() {
                    old.set(self.1.old);
                    // The compiler would turn plain zeros in both into a call of memset, as in
                    // `Facts::clear`.
                    new.set(black_box(self.1.new));
                }
            }

            #[cfg_attr(target_arch = "bpf", inline(always))]
            fn with_out_parameter<'a>(
                self,
                out: impl FnOnce() -> Option<&'a OutParameter>,
            ) -> Self {
                match out() {
                    Some(OutParameter { words: [old, new] }) => {
                        (self.0, Change { old: old.get(), new: new.get() })
                    }
                    None => self,
                }
            }
        }
    };
}

with_change!(Packed, Packed::LOST);
with_change!(Option<Packed>, Some(Packed::LOST));
