//! The frame under the program's pointer: the only pointer arithmetic.

use core::mem::MaybeUninit;

use limiter_common::header::Direction;
use limiter_decision::act::FrameMut;
use limiter_decision::packet::{Bytes, Extension, Facts, extension};

use super::socket::is_established;
use crate::call::call;
use crate::hook::{self, Context};

/// Loads some bytes of a packet at an offset that is known at compile time.
#[cfg(target_arch = "bpf")]
macro_rules! load {
    ($width:literal, $start:expr, $offset:expr, $type:ty) => {{
        const { assert!(N <= 47, "no more words are read") };
        let word: $type;
        core::arch::asm!(
            concat!("{word} = *(", $width, " *)({start} + {offset})"),
            word = out(reg) word,
            start = in(reg) $start,
            offset = const $offset,
            options(pure, readonly, nostack, preserves_flags),
        );
        word
    }};
}

/// A frame, including all fragments of a multi-buffer frame. With `LAYER_3`, it begins with its IP
/// header.
pub(crate) struct Frame<const LAYER_3: bool>(*mut Context);

impl<const LAYER_3: bool> Frame<LAYER_3> {
    #[inline(always)]
    pub(crate) const fn new(ctx: *mut Context) -> Self {
        Self(ctx)
    }

    /// The pointer that the kernel passed.
    #[inline(always)]
    pub(crate) const fn context(&self) -> *mut Context {
        self.0
    }

    /// The index of the interface by which the frame came in or goes out.
    #[inline(always)]
    pub(crate) fn interface(&self) -> u32 {
        hook::interface(self.0)
    }
}

impl<const LAYER_3: bool> Bytes for Frame<LAYER_3> {
    const LAYER_3: bool = LAYER_3;

    #[inline(always)]
    fn is_out(&self) -> bool {
        hook::direction() == Direction::Out
    }

    #[inline(always)]
    fn tag(&self) -> Option<u16> {
        hook::tag(self.0)
    }

    /// Reads with the helper, which accepts any offset: adding a register to a packet pointer needs
    /// `CAP_PERFMON`.
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if N == 0 {
            return if offset as u64 <= hook::length(self.0) { Some([0; N]) } else { None };
        }
        load(self.context(), low_32(offset))
    }

    /// Reads in place. Bytes that are not in the linear part may still be in a fragment: some
    /// drivers leave the linear part empty.
    #[inline(always)]
    fn read_at<const OFFSET: usize, const N: usize>(&self) -> Option<[u8; N]> {
        self.in_place::<OFFSET, N>().or_else(|| self.read(OFFSET))
    }

    #[inline(always)]
    fn in_place<const OFFSET: usize, const N: usize>(&self) -> Option<[u8; N]> {
        let start = hook::data(self.0);
        if start + OFFSET + N > hook::data_end(self.0) {
            return None;
        }
        // SAFETY: the comparison above is the proof that the verifier needs.
        Some(unsafe { bytes_at::<OFFSET, N>(start) })
    }

    /// Reads it in a subprogram, about whose answer the verifier knows nothing: so all rounds of
    /// the walk look the same to it.
    #[inline(always)]
    fn extension(&self, number: u8, offset: usize) -> Option<Extension> {
        call!(extension_at(; self, number, low_32(offset)))
    }
}

/// The extension header with a number at an offset.
#[inline(always)]
pub(crate) fn extension_at<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    number: u8,
    offset: u32,
) -> Option<Extension> {
    extension(frame, number, offset as usize)
}

impl<const LAYER_3: bool> FrameMut for Frame<LAYER_3> {
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    fn address(&self) -> *mut u8 {
        self.context().cast()
    }

    #[inline(always)]
    fn load<const N: usize>(&self, offset: u32) -> Option<[u8; N]> {
        load(self.context(), offset)
    }

    #[inline(always)]
    fn store<const N: usize>(&self, offset: u32, bytes: &[u8; N]) -> bool {
        // SAFETY: the N bytes exist.
        unsafe { hook::store(self.context(), offset, bytes.as_ptr(), short::<N>()) }
    }

    #[inline(always)]
    fn cut(&self, length: u32, of: u32) -> bool {
        hook::cut(self.context(), length, of)
    }

    #[inline(always)]
    fn is_established(&self, facts: &Facts) -> bool {
        call!(is_established(facts; self))
    }
}

/// The `N` bytes at `OFFSET` behind an address, with the fewest possible loads. In assembly,
/// because the compiler assumes that the target has no unaligned loads, and reads byte by byte. The
/// verifier allows unaligned loads in a packet if the processor has them, and the program runs on
/// no other processors.
///
/// # Safety
///
/// The bytes must be those of a packet that was compared with its end.
#[cfg(target_arch = "bpf")]
#[inline(always)]
unsafe fn bytes_at<const OFFSET: usize, const N: usize>(start: usize) -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: the caller guarantees the loads; each chunk ends at N at the latest.
    unsafe {
        let to = bytes.as_mut_ptr();
        if N >= 8 {
            put(to, 0, load!("u64", start, OFFSET, u64).to_ne_bytes());
        }
        if N >= 16 {
            put(to, 8, load!("u64", start, OFFSET + 8, u64).to_ne_bytes());
        }
        if N >= 24 {
            put(to, 16, load!("u64", start, OFFSET + 16, u64).to_ne_bytes());
        }
        if N >= 32 {
            put(to, 24, load!("u64", start, OFFSET + 24, u64).to_ne_bytes());
        }
        if N >= 40 {
            put(to, 32, load!("u64", start, OFFSET + 32, u64).to_ne_bytes());
        }
        if N & 4 != 0 {
            let word = load!("u32", start, OFFSET + (N & !7), u64);
            put(to, N & !7, low_32(word as usize).to_ne_bytes());
        }
        if N & 2 != 0 {
            let word = load!("u16", start, OFFSET + (N & !3), u64);
            put(to, N & !3, [(word & 0xff) as u8, (word >> 8 & 0xff) as u8]);
        }
        if N & 1 != 0 {
            let word = load!("u8", start, OFFSET + (N & !1), u64);
            put(to, N & !1, [(word & 0xff) as u8]);
        }
    }
    bytes
}

/// Writes a chunk of [`bytes_at`].
///
/// # Safety
///
/// There must be space for it.
#[cfg(target_arch = "bpf")]
#[inline(always)]
unsafe fn put<const M: usize>(to: *mut u8, at: usize, chunk: [u8; M]) {
    // SAFETY: guaranteed by the caller; an array of bytes has no alignment.
    unsafe { to.add(at).cast::<[u8; M]>().write(chunk) };
}

/// The `N` bytes at `OFFSET` behind an address.
///
/// # Safety
///
/// The bytes must exist.
#[cfg(not(target_arch = "bpf"))]
unsafe fn bytes_at<const OFFSET: usize, const N: usize>(start: usize) -> [u8; N] {
    // SAFETY: guaranteed by the caller; an array of bytes has no alignment.
    unsafe { ((start + OFFSET) as *const [u8; N]).read() }
}

/// The `N` bytes at `offset`, at least one, anywhere in the frame.
#[inline(always)]
fn load<const N: usize>(ctx: *mut Context, offset: u32) -> Option<[u8; N]> {
    let mut buffer = Buffer(MaybeUninit::<[u8; N]>::uninit());
    // SAFETY: there is space for N bytes.
    let loaded = unsafe { hook::load(ctx, offset, buffer.0.as_mut_ptr().cast(), short::<N>()) };
    // SAFETY: without an error, the helper has written all of them.
    if loaded { Some(unsafe { buffer.0.assume_init() }) } else { None }
}

/// An aligned buffer, so that the bytes are read by words.
#[repr(align(8))]
struct Buffer<const N: usize>(MaybeUninit<[u8; N]>);

/// A small number of bytes as a helper takes it.
#[expect(clippy::cast_possible_truncation, reason = "headers are short")]
const fn short<const N: usize>() -> u32 {
    N as u32
}

/// An offset as a helper takes it.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "offsets are far below 2^32")]
const fn low_32(offset: usize) -> u32 {
    offset as u32
}
