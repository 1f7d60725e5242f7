//! The words of a bucket of a table.
//!
//! Such a bucket is passed to functions that the verifier checks separately. There it is plain
//! memory, and adding a register to a pointer to plain memory needs `CAP_PERFMON`. So each word has
//! its own instruction, which contains its place. In assembly, because the compiler would merge all
//! of them into one instruction again.

#[cfg(target_arch = "bpf")]
use core::arch::asm;
#[cfg(not(target_arch = "bpf"))]
use core::intrinsics::{AtomicOrdering, atomic_cxchg};
use core::mem::offset_of;

use limiter_common::wire::{KeyedBucket, WORDS};

use super::atomic::MapKeyed;

const FIRST: usize = offset_of!(KeyedBucket, words);

const _: () = assert!(WORDS == 32);

/// Evaluates one of 32 macros, by index.
macro_rules! by_index {
    ($index:expr, $word:ident) => {
        match $index & 31 {
            0 => $word!(0),
            1 => $word!(1),
            2 => $word!(2),
            3 => $word!(3),
            4 => $word!(4),
            5 => $word!(5),
            6 => $word!(6),
            7 => $word!(7),
            8 => $word!(8),
            9 => $word!(9),
            10 => $word!(10),
            11 => $word!(11),
            12 => $word!(12),
            13 => $word!(13),
            14 => $word!(14),
            15 => $word!(15),
            16 => $word!(16),
            17 => $word!(17),
            18 => $word!(18),
            19 => $word!(19),
            20 => $word!(20),
            21 => $word!(21),
            22 => $word!(22),
            23 => $word!(23),
            24 => $word!(24),
            25 => $word!(25),
            26 => $word!(26),
            27 => $word!(27),
            28 => $word!(28),
            29 => $word!(29),
            30 => $word!(30),
            _ => $word!(31),
        }
    };
}

#[inline(always)]
pub(crate) fn load_word(bucket: &MapKeyed, index: u32) -> u64 {
    if index as usize >= WORDS {
        return 0;
    }
    let bucket = bucket.as_ptr();
    let value: u64;
    #[cfg(target_arch = "bpf")]
    macro_rules! load {
        ($number:literal) => {
            // SAFETY: a word of a whole value of a map, alive for this run of the program.
            unsafe {
                asm!("{value} = *(u64 *)({bucket} + {place})", value = out(reg) value,
                    bucket = in(reg) bucket, place = const FIRST + 8 * $number,
                    options(nostack, readonly));
            }
        };
    }
    // For lints and editors on the build machine.
    #[cfg(not(target_arch = "bpf"))]
    macro_rules! load {
        ($number:literal) => {
            // SAFETY: as in the other one.
            value = unsafe { bucket.byte_add(FIRST + 8 * $number).cast::<u64>().read_volatile() }
        };
    }
    by_index!(index, load);
    value
}

/// Stores `new` if the word is `current`. Returns whether it did.
#[inline(always)]
pub(crate) fn exchange_word(bucket: &MapKeyed, index: u32, current: u64, new: u64) -> bool {
    if index as usize >= WORDS {
        return false;
    }
    let bucket = bucket.as_ptr();
    let found: u64;
    #[cfg(target_arch = "bpf")]
    macro_rules! exchange {
        ($number:literal) => {
            // SAFETY: as above; values of maps are aligned to 8 bytes.
            unsafe {
                asm!("r0 = cmpxchg_64({bucket} + {place}, r0, {new})", inout("r0") current => found,
                    bucket = in(reg) bucket, new = in(reg) new, place = const FIRST + 8 * $number,
                    options(nostack));
            }
        };
    }
    #[cfg(not(target_arch = "bpf"))]
    macro_rules! exchange {
        ($number:literal) => {
            // SAFETY: as in the other one.
            (found, _) = unsafe {
                atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
                    bucket.byte_add(FIRST + 8 * $number).cast(),
                    current,
                    new,
                )
            }
        };
    }
    by_index!(index, exchange);
    found == current
}
