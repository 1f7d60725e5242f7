//! The home of the buckets of sources that any limit may have: hash maps of the kernel, with a
//! frame for each entry.

use core::hint::black_box;
use core::ptr::NonNull;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    btf_maps::{Array, HashMap},
    macros::btf_map,
};
use limiter_common::cell::Cell;
use limiter_common::outcome::Insert;
use limiter_common::register::Register;
use limiter_common::room::clock::Claim;
use limiter_common::room::{
    self, AdmissionCells, Frames, Leave, SpaceWords, Spaces, reserve as reserve_v4,
    reserve as reserve_v6, source,
};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, Lane};

use self::meter::MapMeter;
use crate::step::{define_steps, step};
use crate::world::atomic::MapWord;
use crate::world::kernel::inserted;
use crate::world::room::admission;
use crate::world::{Home, Kernel, apart};

#[path = "hashed_meter.rs"]
mod meter;

/// The steps of this home.
macro_rules! own_steps {
    ($made:ident) => {
        $made! {
            reserve_v4 = limiter_common::room::reserve, (frames_v4) (word);
            reserve_v6 = limiter_common::room::reserve, (frames_v6) (word);
            leave_source = crate::home::hashed::leave_source, () (word half word word);
            make = crate::home::hashed::make, () (source word word word);
        }
    };
}

limiter_common::hashed_steps!(define_steps);
own_steps!(define_steps);

/// The steps of this home as BPF functions.
#[cfg(target_arch = "bpf")]
mod call {
    use limiter_common::declare_steps;

    own_steps!(declare_steps);
}

/// Buckets of IPv4 sources. Written here; read by the daemon. What may leave: [`room`].
#[btf_map]
static SOURCES_V4: HashMap<[u8; 4], Bucket, 262_144> = HashMap::new();

/// Buckets of IPv6 /64s. As above.
#[btf_map]
static SOURCES_V6: HashMap<[u8; 8], Bucket, 262_144> = HashMap::new();

/// The sources of `SOURCES_V4`: [`source::name`].
#[btf_map]
static FRAMES_V4: Array<u64, 262_144> = Array::new();

/// The sources of `SOURCES_V6`.
#[btf_map]
static FRAMES_V6: Array<u64, 262_144> = Array::new();

/// What one of two does with the key of a source in the map of its family. The two end differently,
/// so that the compiler does not make one call of them with a map in a variable. The kernel calls a
/// map that it knows without asking it what it is: a known source over its limit costs 1.3 times
/// the least program instead of 1.4. The key is a word of the stack that is written whole, whatever
/// the family: where the processor guesses the family wrong, eight bytes are read, and the verifier
/// grants no read of what was not written.
#[inline(always)]
fn by_family<R>(
    source: &Source,
    v4: impl FnOnce(&[u8; 4]) -> R,
    v6: impl FnOnce(&[u8; 8]) -> R,
) -> R {
    let (word, version) = source.to_word();
    let word = black_box(word).to_ne_bytes();
    if version == 4 {
        // SAFETY: the first half of eight bytes.
        let done = v4(unsafe { &*(&raw const word).cast() });
        apart::<4>();
        done
    } else {
        let done = v6(&word);
        apart::<6>();
        done
    }
}

#[inline(always)]
fn found(source: &Source) -> Option<MapMeter> {
    let bucket =
        by_family(source, |key| SOURCES_V4.get_ptr_mut(key), |key| SOURCES_V6.get_ptr_mut(key));
    bucket.and_then(NonNull::new).map(MapMeter::new)
}

/// The frames of the sources of a family.
pub(crate) struct SourceFrames<const VERSION: u32>;

impl<const VERSION: u32> Spaces for SourceFrames<VERSION> {
    #[inline(always)]
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        Kernel.space(lane)
    }

    #[inline(always)]
    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        admission(lane)
    }
}

impl<const VERSION: u32> Frames for SourceFrames<VERSION> {
    const LANE: Lane = if VERSION == 4 { Lane::V4 } else { Lane::V6 };

    #[inline(always)]
    fn frame(&self, index: u32) -> Option<impl Cell> {
        let frame =
            if VERSION == 4 { FRAMES_V4.get_ptr_mut(index) } else { FRAMES_V6.get_ptr_mut(index) };
        frame.and_then(NonNull::new).map(MapWord::new)
    }

    #[inline(always)]
    fn give_up(&self, _index: u32, state: u64, leave: &Leave) -> bool {
        let Leave { now, keep } = *leave;
        step!(here leave_source(; state, Self::LANE, now, keep))
    }
}

/// [`Frames::give_up`] of a source.
#[inline(always)]
pub(crate) fn leave_source(state: u64, lane: Lane, now: Ticks, keep: Ticks) -> bool {
    let source = source::named(lane, state);
    let Some(meter) = found(&source) else {
        return true;
    };
    if !source::retire(&meter, meter.packets(), &Leave { now, keep }) {
        return false;
    }
    // It was there, and nobody else removes it.
    let _ = by_family(&source, |key| SOURCES_V4.remove(key), |key| SOURCES_V6.remove(key));
    true
}

/// A frame that is taken, and whether the first packet of its source was dropped.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    frame: u32,
    dropped: bool,
}

impl Register for Taken {
    #[inline(always)]
    fn to_register(self) -> u64 {
        u64::from(self.frame) << 32 | u64::from(self.dropped)
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        Self { frame: (register >> 32) as u32, dropped: register & 1 != 0 }
    }
}

/// Makes the bucket of a source, with these two words.
#[inline(always)]
pub(crate) fn make(source: &Source, taken: Taken, word: u64, resolved: u64) -> Insert {
    let Taken { frame, dropped } = taken;
    let dropped = u64::from(dropped);
    let bucket = Bucket { word, resolved, passed: 1 - dropped, dropped };
    let flags = u64::from(BPF_NOEXIST);
    let name = || source::name(source).unwrap_or(room::EMPTY);
    let make_v4 = |key: &[u8; 4]| {
        let made = inserted(SOURCES_V4.insert(key, bucket, flags));
        room::settle(&SourceFrames::<4>, frame, made, name)
    };
    let make_v6 = |key: &[u8; 8]| {
        let made = inserted(SOURCES_V6.insert(key, bucket, flags));
        room::settle(&SourceFrames::<6>, frame, made, name)
    };
    by_family(source, make_v4, make_v6)
}

impl Home for Kernel {
    type Bucket = Bucket;
    type Meter = MapMeter;

    #[inline(always)]
    fn find(&self, source: &Source) -> Option<MapMeter> {
        found(source)
    }

    #[inline(always)]
    fn at(&self, bucket: *mut Bucket, source: &Source) -> Option<MapMeter> {
        let (word, version) = source.to_word();
        asked(word);
        asked(u64::from(version));
        NonNull::new(bucket).map(MapMeter::new)
    }

    #[inline(always)]
    fn named(&self, bucket: *mut Bucket, name: u64) -> Option<MapMeter> {
        asked(name);
        NonNull::new(bucket).map(MapMeter::new)
    }

    #[inline(always)]
    fn count_drops(&self, meter: &MapMeter, packets: u64) {
        meter.count_drops(packets);
    }

    /// In two steps, one after the other: their callers share 512 bytes of stack with them.
    #[inline(always)]
    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
        if source::name(source).is_none() {
            return Insert::Refused;
        }
        let claim = match source {
            Source::V4(_) => step!(here reserve_v4(&SourceFrames::<4>; now)),
            Source::V6(_) => step!(here reserve_v6(&SourceFrames::<6>; now)),
        };
        let Some(Claim { index: frame, .. }) = claim else {
            return Insert::Refused;
        };
        let taken = Taken { frame, dropped: bucket.dropped & 1 != 0 };
        step!(here make(; source, taken, bucket.word, bucket.resolved))
    }
}

/// Asks for a register that a step has no use for: otherwise the compiler leaves it as it is, and
/// the verifier grants no call with a register that nothing was written to.
#[inline(always)]
fn asked(register: u64) {
    // SAFETY: it changes nothing.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{0} = {0}", inout(reg) register => _, options(nomem, nostack));
    }
    #[cfg(not(target_arch = "bpf"))]
    let _ = register;
}
