//! The size of a frame, as limits and counters count it.

/// Packets and bytes of a frame in one word: the packets minus one in the upper half, the bytes in
/// the lower.
///
/// A frame at XDP is one packet. At tc it may be a *super-frame*: a buffer that the kernel has
/// merged (GRO) or will split (GSO), which stands for several packets. It counts as these packets,
/// each with its own headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSize(u64);

crate::raw_word!(FrameSize);

impl FrameSize {
    const HALF: u32 = 32;
    const BYTES: u64 = (1 << Self::HALF) - 1;

    /// One packet of `length` bytes, below 2^32.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of_packet(length: u64) -> Self {
        Self(length & Self::BYTES)
    }

    /// A super-frame of `length` bytes that stands for `packets` packets, each with `headers` bytes
    /// of headers, which the super-frame contains once. Zero packets count as one. At most 2^16
    /// packets and 2^32 - 1 bytes are counted: no kernel has larger ones (`GSO_MAX_SEGS`,
    /// `GSO_MAX_SIZE`).
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of_super_frame(length: u64, packets: u32, headers: u64) -> Self {
        let more = (packets.saturating_sub(1) & 0xffff) as u64;
        let bytes = length.wrapping_add(more.wrapping_mul(headers & 0xffff));
        let bytes = if bytes > Self::BYTES { Self::BYTES } else { bytes };
        Self(more << Self::HALF | bytes)
    }

    /// The size of a frame at a hook with or without super-frames. Without them, the compiler then
    /// knows that it is one packet.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub const fn at_hook(self, has_super_frames: bool) -> Self {
        if has_super_frames { self } else { Self(self.0 & Self::BYTES) }
    }

    /// Packets, at least one.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn packets(self) -> u64 {
        (self.0 >> Self::HALF).wrapping_add(1)
    }

    /// Bytes of all packets, from their Ethernet headers on, without checksums.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn bytes(self) -> u64 {
        self.0 & Self::BYTES
    }

    /// True for a super-frame, which stands for more than one packet.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_super_frame(self) -> bool {
        self.0 >> Self::HALF != 0
    }
}

#[cfg(test)]
mod tests {
    use super::FrameSize;

    #[test]
    fn a_super_frame_counts_as_the_packets_that_it_becomes() {
        // As seen on Linux 6.18: 65,226 bytes, 45 segments of 66 bytes of headers.
        let size = FrameSize::of_super_frame(65_226, 45, 66);
        assert_eq!((size.packets(), size.bytes()), (45, 68_130));
        assert!(size.is_super_frame());
        // BIG TCP.
        let size = FrameSize::of_super_frame(198_442, 137, 66);
        assert_eq!((size.packets(), size.bytes()), (137, 198_442 + 136 * 66));
    }

    #[test]
    fn a_frame_of_one_packet_is_the_same_in_both_forms() {
        for length in [0, 60, 1_514, 131_071, u64::from(u32::MAX)] {
            for packets in [0, 1] {
                assert_eq!(
                    FrameSize::of_super_frame(length, packets, 66),
                    FrameSize::of_packet(length)
                );
            }
            let size = FrameSize::of_packet(length);
            assert_eq!((size.packets(), size.bytes()), (1, length));
            assert!(!size.is_super_frame());
        }
    }

    #[test]
    fn no_size_runs_into_the_packets() {
        let size = FrameSize::of_super_frame(u64::from(u32::MAX), u32::MAX, u64::MAX);
        assert!(size.packets() <= 1 << 16 && size.bytes() == u64::from(u32::MAX));
    }
}
