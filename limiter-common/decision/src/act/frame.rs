//! Changes of a frame.

use crate::packet::Facts;

/// A frame that may be changed. Offsets count from the Ethernet header.
pub trait FrameMut {
    /// The address of the context, by which it is passed to a subprogram.
    #[cfg(target_arch = "bpf")]
    fn address(&self) -> *mut u8;

    /// The `N` bytes at `offset`, `None` when the frame ends before them.
    fn load<const N: usize>(&self, offset: u32) -> Option<[u8; N]>;

    /// Overwrites the bytes at `offset`; false when the frame ends before them.
    fn store<const N: usize>(&self, offset: u32, bytes: &[u8; N]) -> bool;

    /// Cuts the frame from `of` to `length` bytes.
    fn cut(&self, length: u32, of: u32) -> bool;

    /// True if this host has an established TCP connection with the addresses and ports of the
    /// packet. Called only if [`super::may_belong`] says that there could be one.
    fn is_established(&self, facts: &Facts) -> bool;
}
