//! The bytes of a frame, and how far into it the parser looks.

use super::extension::{Extension, extension};

/// Extension headers that are walked. One more is [`limiter_common::header::Reach::TooDeep`].
pub const MAX_EXTENSIONS: u64 = 6;

/// The furthest that a transport header may start, in bytes from the frame's start. It is where
/// the first 2 kB end, which a driver keeps in one piece; further, the XDP program would see less
/// of a frame than there is.
pub const MAX_TRANSPORT_OFFSET: usize = 2047;

/// Read access to a frame. Offsets count from its first byte.
pub trait Bytes {
    /// True if the frame begins with its IP header and not with an Ethernet header, as the frames
    /// of tun and `WireGuard` interfaces do.
    const LAYER_3: bool = false;

    /// True for a frame on its way out of an interface. Its facts are those of the conversation:
    /// the other end is their source, and this end their destination
    /// ([`super::Facts::direction`]).
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn is_out(&self) -> bool {
        false
    }

    /// The VLAN tag (IEEE 802.1Q, control information) that the network card has taken off the
    /// frame, or will put on it. XDP does not see it; tc does.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn tag(&self) -> Option<u16> {
        None
    }

    /// The `N` bytes at `offset`, `None` when the frame ends before them.
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// The `N` bytes at an offset that is known at compile time. The XDP program reads these in
    /// place; without `CAP_PERFMON` it may do so at no other offset.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn read_at<const OFFSET: usize, const N: usize>(&self) -> Option<[u8; N]> {
        self.read(OFFSET)
    }

    /// The `N` bytes at an offset that is known at compile time, if they can be read in place.
    /// `None` says nothing of the frame: the XDP program sees only the linear part of it so.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn in_place<const OFFSET: usize, const N: usize>(&self) -> Option<[u8; N]> {
        self.read_at::<OFFSET, N>()
    }

    /// The extension header of a number at an offset, at most [`MAX_TRANSPORT_OFFSET`]. In the XDP
    /// program, this is a subprogram.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn extension(&self, number: u8, offset: usize) -> Option<Extension> {
        extension(self, number, offset)
    }
}

impl Bytes for &[u8] {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.get(offset..)?.first_chunk().copied()
    }
}

/// The bytes of a frame that begins with its IP header.
#[derive(Clone, Copy, Debug)]
pub struct Layer3<'a>(pub &'a [u8]);

impl Bytes for Layer3<'_> {
    const LAYER_3: bool = true;

    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.read(offset)
    }
}

/// A frame as tc has it: with its direction, and with the tag that is not among its bytes.
#[derive(Clone, Copy, Debug)]
pub struct TcFrame<B> {
    /// The bytes.
    pub bytes: B,
    /// [`Bytes::is_out`].
    pub is_out: bool,
    /// [`Bytes::tag`].
    pub tag: Option<u16>,
}

impl<B: Bytes> Bytes for TcFrame<B> {
    const LAYER_3: bool = B::LAYER_3;

    fn is_out(&self) -> bool {
        self.is_out
    }

    fn tag(&self) -> Option<u16> {
        self.tag
    }

    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes.read(offset)
    }
}

/// Every offset is at most `MAX_TRANSPORT_OFFSET`, and a header more.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[expect(clippy::cast_possible_truncation, reason = "offsets are far below 2^16")]
pub(super) const fn low_16(offset: usize) -> u16 {
    offset as u16
}
