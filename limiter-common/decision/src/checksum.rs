//! The Internet checksum (RFC 1071): the complement of the one's complement sum of 16-bit words.
//!
//! The order of bytes does not matter to such a sum (RFC 1071, 2 (B)), nor whether two words are
//! added at once (2 (C)). So bytes are taken by eight, in the machine's order: in BPF, where every
//! value that does not fit the ten registers takes eight bytes of a stack of 512, that is a fourth
//! of the stack that single words would take.

/// A one's complement sum that is not folded yet: of words in the machine's order, two at a time.
///
/// Each addition is of less than 2^32, and there are at most 2^15: a packet of 64 kB has two for
/// every eight bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum(u64);

impl Sum {
    pub(crate) const ZERO: Self = Self(0);

    /// The sum with one word more, in host byte order.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn word(self, word: u16) -> Self {
        // Lossless; `u64::from` is not const.
        Self(self.0.wrapping_add(word.to_be() as u64))
    }

    /// The sum with the words of `bytes`, in network order. `N` is even and known when this is
    /// compiled, so the loops have no end that a verifier would have to find.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn bytes<const N: usize>(self, bytes: &[u8; N]) -> Self {
        const { assert!(N & 1 == 0, "half a word would be left over") };
        let mut sum = self.0;
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            let words = u64::from_ne_bytes(*eight);
            sum = sum.wrapping_add(words & 0xffff_ffff).wrapping_add(words >> 32);
        }
        let (twos, _) = rest.as_chunks::<2>();
        for two in twos {
            sum = sum.wrapping_add(u64::from(u16::from_ne_bytes(*two)));
        }
        Self(sum)
    }

    /// The checksum, in network order. 0xffff comes out of a sum of nothing but zeros only.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits")]
    pub(crate) const fn checksum(self) -> [u8; 2] {
        // The part above 32 bits counts the additions: below 2^15. So the first step leaves less
        // than 2^32 + 2^15, the second less than 2^17, and the third no carry.
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        (!(sum as u16)).to_ne_bytes()
    }
}
