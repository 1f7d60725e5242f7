//! A packet on its way into the source table, and what becomes of it there: what crosses to steps.

use core::hint::black_box;

use crate::bucket::{Change, Generation};
use crate::outcome::{Outcome, Packed};
use crate::register::{Answer, Aside, Register};
use crate::source::Source;
use crate::time::Ticks;
use crate::verdict::Reason;
use crate::world::World;

/// A packet on its way into the source table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// Source that it is charged to.
    pub source: Source,
    /// The rule set that judges it.
    pub generation: Generation,
    /// Length in bytes, of the whole frame.
    pub length: u64,
    /// When it came.
    pub now: Ticks,
    /// Whether the action of a limit that it is over is still to be asked.
    pub deferred: bool,
}

/// Register with what has none of its own: `generation:25 | deferred:1 | version:8`, from bit 16,
/// 8 and 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    generation: Generation,
    deferred: bool,
    version: u32,
}

impl Register for Kind {
    #[inline(always)]
    fn to_register(self) -> u64 {
        let Self { generation, deferred, version } = self;
        u64::from(generation.get()) << 16 | u64::from(deferred) << 8 | u64::from(version)
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        Self {
            generation: Generation::new(register >> 16),
            deferred: register >> 8 & 1 != 0,
            version: (register & 0xff) as u32,
        }
    }
}

impl Arriving {
    /// Copy of the packet at another time.
    #[inline(always)]
    #[must_use]
    pub const fn at(&self, now: Ticks) -> Self {
        Self { now, ..*self }
    }

    /// Four registers: the address, its `Kind`, the length and the time.
    #[inline(always)]
    pub fn registers(&self) -> [u64; 4] {
        let Self { source, generation, length, now, deferred } = *self;
        let (address, version) = source.to_word();
        [address, Kind { generation, deferred, version }.to_register(), length, now.get()]
    }

    /// Takes what [`Arriving::registers`] gave.
    #[inline(always)]
    pub fn of_registers([address, kind, length, now]: [u64; 4]) -> Self {
        let Kind { generation, deferred, version } = Register::of_register(kind);
        let source = Source::from_word(address, version);
        Self { source, generation, length, now: Ticks::new(now), deferred }
    }
}

/// Outcome of a packet, if that is known, and what the packet changed in the bucket of its source.
pub type Charged = (Option<Packed>, Change);

impl<W: World> Answer<W> for Charged {
    const LOST: Self = (Some(Outcome::without_rule(Reason::Contended).pack()), Change::NONE);

    #[inline(always)]
    fn to_register(self, world: &W) -> u64 {
        let (outcome, change) = self;
        if let Some(aside) = world.aside() {
            let [old, new] = &aside.words;
            old.set(change.old);
            // Of two plain zeros the compiler would make a call of memset, as in `Facts::clear`.
            new.set(black_box(change.new));
        }
        Register::to_register(outcome)
    }

    #[inline(always)]
    fn of_register(register: u64, world: &W) -> Self {
        let change = match world.aside() {
            Some(Aside { words: [old, new] }) => Change { old: old.get(), new: new.get() },
            None => Change::NONE,
        };
        (Register::of_register(register), change)
    }
}
