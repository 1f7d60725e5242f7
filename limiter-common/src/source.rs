//! The source of a packet, whose bucket is charged.

/// The masked source address: an IPv4 address, or the first 64 bits of an IPv6 address (a host can
/// use every address of its /64, so a bucket for each address would limit nobody).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A /32, in network order.
    V4([u8; 4]),
    /// A /64, in network order.
    V6([u8; 8]),
}

/// Length of the prefix of IPv4-mapped IPv6 addresses.
pub const MAPPED_BITS: u32 = 96;

/// The second half of an IPv4-mapped IPv6 address with zeros for the address, in memory order.
pub const MAPPED: u64 = u64::from_ne_bytes([0, 0, 0xff, 0xff, 0, 0, 0, 0]);

/// Longest IPv6 prefix that a source distinguishes.
pub const V6_BITS: u32 = 64;

impl Source {
    /// The bytes in one word, in memory order, and the IP version: 4 or 6.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn to_word(self) -> (u64, u32) {
        match self {
            Self::V4([a, b, c, d]) => (u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]), 4),
            Self::V6(prefix) => (u64::from_ne_bytes(prefix), 6),
        }
    }

    /// Restores the result of [`Source::to_word`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn from_word(word: u64, version: u32) -> Self {
        let [a, b, c, d, ..] = word.to_ne_bytes();
        if version == 4 { Self::V4([a, b, c, d]) } else { Self::V6(word.to_ne_bytes()) }
    }

    /// True if no host can have the address, so that it must be forged: IPv4 "this network" (0/8),
    /// loopback (127/8), multicast (224/4) and reserved (240/4), all from RFC 6890; IPv6 `::/64`,
    /// which contains the loopback, the IPv4-mapped and the IPv4-compatible addresses, and
    /// multicast (`ff00::/8`). Not `0.0.0.0`, from which hosts without an address ask for one (RFC
    /// 2131).
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_martian(self) -> bool {
        match self {
            Self::V4([a, b, c, d]) => {
                let this_network = a == 0 && b | c | d != 0;
                this_network || a == 127 || a >= 224
            }
            Self::V6(prefix) => {
                let prefix = u64::from_be_bytes(prefix);
                prefix == 0 || prefix >> 56 == 0xff
            }
        }
    }

    /// [`Source::trie_key`] as two words in memory order.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn trie_words(self) -> (u64, u64) {
        match self {
            Self::V4([a, b, c, d]) => (0, u64::from_ne_bytes([0, 0, 0xff, 0xff, a, b, c, d])),
            Self::V6(prefix) => (u64::from_ne_bytes(prefix), 0),
        }
    }

    /// The address in the rule trie: IPv4 as IPv4-mapped IPv6 (RFC 4291, 2.5.5.2), IPv6 with a zero
    /// host part.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[expect(
        clippy::many_single_char_names,
        reason = "the bytes of an address have no better names"
    )]
    pub const fn trie_key(self) -> [u8; 16] {
        // In two words, because the compiler makes a loop of byte operations, which the verifier
        // rejects.
        let (high, low) = self.trie_words();
        let [a, b, c, d, e, f, g, h] = high.to_ne_bytes();
        let [i, j, k, l, m, n, o, p] = low.to_ne_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn martians_are_the_sources_that_no_host_has() {
        for (source, martian) in [
            ([0, 0, 0, 0], false),
            ([0, 0, 0, 1], true),
            ([0, 255, 255, 255], true),
            ([1, 0, 0, 0], false),
            ([10, 0, 0, 1], false),
            ([126, 255, 255, 255], false),
            ([127, 0, 0, 1], true),
            ([128, 0, 0, 0], false),
            ([223, 255, 255, 255], false),
            ([224, 0, 0, 1], true),
            ([240, 0, 0, 1], true),
            ([255, 255, 255, 255], true),
        ] {
            assert_eq!(Source::V4(source).is_martian(), martian, "{source:?}");
        }
        for (prefix, martian) in [
            ([0; 8], true),
            ([0, 0, 0, 0, 0, 0, 0, 1], false),
            ([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0], false),
            ([0xfe, 0x80, 0, 0, 0, 0, 0, 0], false),
            ([0xff, 2, 0, 0, 0, 0, 0, 0], true),
        ] {
            assert_eq!(Source::V6(prefix).is_martian(), martian, "{prefix:?}");
        }
    }
}
