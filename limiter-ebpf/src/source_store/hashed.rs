//! Stores the buckets of sources in hash maps of the kernel, with a ring slot for each entry.

use core::cell;
use core::intrinsics::{AtomicOrdering, atomic_xadd};
use core::ptr::NonNull;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    btf_maps::{Array, HashMap},
    macros::btf_map,
};
use limiter_common::bucket_key::BucketKey;
use limiter_common::wire::{Bucket, EntryKind};
use limiter_decision::cell::{Cell, SourceBucket};
use limiter_decision::outcome::Insert;

use super::lines;
use crate::maps::atomic::MapWord;
use crate::maps::kernel::inserted;

/// Buckets of IPv4 sources. Written here; read by the daemon. Eviction policy:
/// [`limiter_decision::entries`].
#[btf_map]
static SOURCES_V4: HashMap<[u8; 4], Bucket, 262_144> = HashMap::new();

/// Buckets of IPv6 /64s. Written here; read by the daemon. Eviction policy:
/// [`limiter_decision::entries`].
#[btf_map]
static SOURCES_V6: HashMap<[u8; 8], Bucket, 262_144> = HashMap::new();

/// Buckets of compact keys ([`limiter_common::bucket_key::BucketKey::compact`]). Written here; read
/// by the daemon. Eviction policy: [`limiter_decision::entries`].
#[btf_map]
static NARROW: HashMap<[u8; 8], Bucket, 262_144> = HashMap::new();

/// The names of `NARROW`.
#[btf_map]
static FRAMES_NARROW: Array<u64, 262_144> = Array::new();

/// The sources of `SOURCES_V4`: [`limiter_common::bucket_key::BucketKey::name`].
#[btf_map]
static FRAMES_V4: Array<u64, 262_144> = Array::new();

/// The sources of `SOURCES_V6`.
#[btf_map]
static FRAMES_V6: Array<u64, 262_144> = Array::new();

/// Calls one of three closures with the bucket key in the form of its kind's map. They end
/// differently, so that the compiler does not merge them into one call with a variable map: the
/// kernel calls a known map directly, and a known source over its limit then costs 1.3 times the
/// smallest program instead of 1.4. The key is a stack word that is always written as a whole: if
/// the processor mispredicts the kind, it reads eight bytes, and the verifier does not allow
/// reading unwritten ones.
#[inline(always)]
fn by_kind<R>(
    bucket_key: &BucketKey,
    v4: impl FnOnce(&[u8; 4]) -> R,
    v6: impl FnOnce(&[u8; 8]) -> R,
    compact: impl FnOnce(&[u8; 8]) -> R,
) -> R {
    let word = unknown(bucket_key.word()).to_ne_bytes();
    match bucket_key.kind() {
        EntryKind::V4 => {
            // SAFETY: the first half of eight bytes.
            let done = v4(unsafe { &*(&raw const word).cast() });
            apart::<4>();
            done
        }
        EntryKind::V6 => {
            let done = v6(&word);
            apart::<6>();
            done
        }
        EntryKind::Compact | EntryKind::Keyed => {
            let done = compact(&word);
            apart::<1>();
            done
        }
    }
}

/// An instruction that is unique to each call, so that the compiler does not merge what precedes
/// it.
#[inline(always)]
fn apart<const NUMBER: u32>() {
    // SAFETY: it changes a register that a call has already clobbered.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!(
            "r1 = {number}",
            number = const NUMBER,
            out("r1") _,
            options(nomem, nostack)
        );
    }
}

#[inline(always)]
pub(crate) fn bucket(bucket_key: &BucketKey) -> Option<MapBucket> {
    let bucket = by_kind(
        bucket_key,
        |key| SOURCES_V4.get_ptr_mut(key),
        |key| SOURCES_V6.get_ptr_mut(key),
        |key| NARROW.get_ptr_mut(key),
    );
    bucket.and_then(NonNull::new).map(MapBucket::new)
}

/// The bucket of a compact key, by its word in memory.
#[inline(always)]
pub(crate) fn compact_bucket(word: &cell::Cell<u64>) -> Option<MapBucket> {
    // SAFETY: this CPU's own word, which nothing changes during the look-up.
    let key: &[u8; 8] = unsafe { &*word.as_ptr().cast() };
    NARROW.get_ptr_mut(key).and_then(NonNull::new).map(MapBucket::new)
}

/// Makes a bucket if there is none.
#[inline(always)]
pub(crate) fn insert(bucket_key: &BucketKey, bucket: &Bucket) -> Insert {
    if lines::are_used() {
        return Insert::Refused;
    }
    let flags = u64::from(BPF_NOEXIST);
    inserted(by_kind(
        bucket_key,
        |key| SOURCES_V4.insert(key, bucket, flags),
        |key| SOURCES_V6.insert(key, bucket, flags),
        |key| NARROW.insert(key, bucket, flags),
    ))
}

#[inline(always)]
pub(crate) fn remove(bucket_key: &BucketKey) {
    if lines::are_used() {
        return;
    }
    let _ = by_kind(
        bucket_key,
        |key| SOURCES_V4.remove(key),
        |key| SOURCES_V6.remove(key),
        |key| NARROW.remove(key),
    );
}

#[inline(always)]
pub(crate) fn ring_slot(kind: EntryKind, index: u32) -> Option<MapWord> {
    if lines::are_used() {
        return None;
    }
    let slot = match kind {
        EntryKind::V4 => FRAMES_V4.get_ptr_mut(index),
        EntryKind::V6 => FRAMES_V6.get_ptr_mut(index),
        EntryKind::Compact | EntryKind::Keyed => FRAMES_NARROW.get_ptr_mut(index),
    };
    slot.and_then(NonNull::new).map(MapWord::new)
}

#[derive(Clone, Copy)]
pub(crate) struct MapBucket(pub(super) NonNull<Bucket>);

impl MapBucket {
    /// Wraps the result of a map look-up.
    #[inline(always)]
    pub(crate) fn new(bucket: NonNull<Bucket>) -> Self {
        Self(bucket)
    }
}

impl SourceBucket for MapBucket {
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    fn address(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    fn name(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn word(&self) -> impl Cell {
        // SAFETY: `bucket` points to a whole value; this is the address of a field, so it is not
        // null.
        unsafe { MapWord::new(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).word)) }
    }

    #[inline(always)]
    fn resolved(&self) -> impl Cell {
        // SAFETY: as in `word`.
        unsafe { MapWord::new(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).resolved)) }
    }

    #[inline(always)]
    fn count_passed(&self, packets: u64) {
        // SAFETY: as in `MapWord::load`. The result must stay unused: with a used result LLVM 22
        // returns the addend instead of the old value (llvm/llvm-project#210280). The orderings
        // differ so that this and `count_dropped` stay two instructions: merged, they would add to
        // a pointer with an offset that depends on the path, which the verifier allows only with
        // CAP_PERFMON.
        unsafe {
            let counter = &raw mut (*self.0.as_ptr()).passed;
            atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, packets);
        }
    }

    #[inline(always)]
    fn count_dropped(&self, packets: u64) {
        // SAFETY: as in `count_passed`.
        unsafe {
            let counter = &raw mut (*self.0.as_ptr()).dropped;
            atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter, packets);
        }
    }

    #[inline(always)]
    fn packets(&self) -> u64 {
        // SAFETY: as in `MapWord::load`.
        unsafe {
            let bucket = self.0.as_ptr();
            let passed = (&raw const (*bucket).passed).read_volatile();
            passed.wrapping_add((&raw const (*bucket).dropped).read_volatile())
        }
    }
}

/// A word that is opaque to the compiler. In a register, because going through memory would take
/// stack.
#[inline(always)]
fn unknown(word: u64) -> u64 {
    #[cfg(target_arch = "bpf")]
    {
        let mut word = word;
        // SAFETY: it changes nothing.
        unsafe {
            core::arch::asm!("{0} = {0}", inout(reg) word, options(nomem, nostack));
        }
        word
    }
    #[cfg(not(target_arch = "bpf"))]
    word
}
