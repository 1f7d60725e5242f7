//! The key of a bucket in the tables of sources: a source, or a compact key.

use crate::source::{MAPPED, Source};
use crate::wire::EntryKind;

/// The key of a bucket in the tables of sources.
///
/// A word and its kind, instead of an enum with an address in each variant: nearly all code needs
/// only the word, whatever its kind, and a branch for each kind costs the verifier and the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketKey {
    kind: EntryKind,
    /// In memory order: an IPv4 address and four zeros, an IPv6 /64, or a compact key.
    word: u64,
}

/// The state of an empty ring slot.
pub const EMPTY: u64 = 0;

/// The state of a ring slot for which an entry is being made. Other CPUs look elsewhere.
pub const BUSY: u64 = 1;

/// Bits in which a name differs from its word. No used bucket key has [`EMPTY`] or [`BUSY`] as its
/// name: the two IPv6 prefixes that would are in `::/7`, which the IETF keeps reserved (RFC 4291),
/// and get no entry; IPv4 addresses have other bits; and the tables whose compact keys would have
/// them have no compact keys ([`crate::compact::compact_number`]).
pub const NAME: u64 = u64::from_ne_bytes([0x00, 0xf1, 0x11, 0x17, 0xe2, 0xf3, 0x3b, 0x77]);

impl BucketKey {
    /// The compact key with these bytes in memory order: the number of its table, which is not 0,
    /// the destination port and the IPv4 source, of two, two and four bytes.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn compact(word: u64) -> Self {
        Self { kind: EntryKind::Compact, word }
    }

    /// The table that has the bucket.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn kind(self) -> EntryKind {
        self.kind
    }

    /// The bytes in memory order.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn word(self) -> u64 {
        self.word
    }

    /// Restores the result of [`BucketKey::word`] and the number of [`BucketKey::kind`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of_word(word: u64, kind: u32) -> Self {
        Self { kind: EntryKind::of_number(kind), word }
    }

    /// The name in ring slots and in entries of lines; `None` for the two bucket keys that cannot
    /// have an entry. It never equals [`EMPTY`] or [`BUSY`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn name(self) -> Option<u64> {
        match self.word ^ NAME {
            0 | 1 => None,
            name => Some(name),
        }
    }

    /// The bucket key with this name.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn named(kind: EntryKind, name: u64) -> Self {
        Self { kind, word: name ^ NAME }
    }

    /// The source; `None` for a compact key.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn source(self) -> Option<Source> {
        let [a, b, c, d, ..] = self.word.to_ne_bytes();
        match self.kind {
            EntryKind::V4 => Some(Source::V4([a, b, c, d])),
            EntryKind::V6 => Some(Source::V6(self.word.to_ne_bytes())),
            EntryKind::Compact | EntryKind::Keyed => None,
        }
    }

    /// The key in the trie of rules, as two words in memory order. For a source it is
    /// [`Source::trie_key`]. A compact key has its word in the place of an IPv4 address and the
    /// bytes before it: the first two of these eight bytes hold its table, and are zero for a
    /// source.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn trie_words(self) -> (u64, u64) {
        match self.kind {
            EntryKind::V4 => (0, MAPPED | self.word << 32),
            EntryKind::V6 => (self.word, 0),
            EntryKind::Compact | EntryKind::Keyed => (0, self.word),
        }
    }

    /// [`BucketKey::trie_words`] as bytes.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[expect(clippy::many_single_char_names, reason = "bytes have no better names")]
    pub const fn trie_key(self) -> [u8; 16] {
        // In two words, because the compiler makes a loop of byte operations, which the verifier
        // rejects.
        let (high, low) = self.trie_words();
        let [a, b, c, d, e, f, g, h] = high.to_ne_bytes();
        let [i, j, k, l, m, n, o, p] = low.to_ne_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }
}

impl From<Source> for BucketKey {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn from(source: Source) -> Self {
        match source {
            Source::V4([a, b, c, d]) => {
                Self { kind: EntryKind::V4, word: u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]) }
            }
            Source::V6(prefix) => Self { kind: EntryKind::V6, word: u64::from_ne_bytes(prefix) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::compact_number;

    fn bucket_keys() -> impl Iterator<Item = BucketKey> {
        let words = [0, 1, u64::MAX, NAME, NAME ^ 1, 0x0102_0304_0506_0708];
        let of = |word: u64| {
            let [a, b, c, d, ..] = word.to_ne_bytes();
            let sources = [Source::V4([a, b, c, d]), Source::V6(word.to_ne_bytes())];
            sources.map(BucketKey::from).into_iter().chain([BucketKey::compact(word)])
        };
        words.into_iter().flat_map(of)
    }

    #[test]
    fn a_bucket_key_is_what_its_words_say() {
        for bucket_key in bucket_keys() {
            assert_eq!(
                BucketKey::of_word(bucket_key.word(), bucket_key.kind().index()),
                bucket_key
            );
            assert_eq!(bucket_key.source().is_none(), bucket_key.kind() == EntryKind::Compact);
            if let Some(source) = bucket_key.source() {
                assert_eq!(BucketKey::from(source), bucket_key);
                assert_eq!(bucket_key.trie_key(), source.trie_key());
            }
        }
    }

    #[test]
    fn two_bucket_keys_have_one_name_only_if_their_kinds_differ() {
        let mut nameless = 0;
        for bucket_key in bucket_keys() {
            let Some(name) = bucket_key.name() else {
                nameless += 1;
                continue;
            };
            assert!(name != EMPTY && name != BUSY, "{bucket_key:?}");
            assert_eq!(BucketKey::named(bucket_key.kind(), name), bucket_key);
        }
        // Two prefixes of `::/7`, and compact keys with numbers that no table has.
        assert_eq!(nameless, 4);
        for word in [NAME, NAME ^ 1] {
            let [high, low, ..] = word.to_ne_bytes();
            assert_eq!(compact_number(u32::from_be_bytes([9, 9, high, low])), 0);
            assert_ne!(compact_number(u32::from_be_bytes([9, 9, high, low + 1])), 0);
        }
    }

    #[test]
    fn no_source_has_the_prefix_of_a_compact_key() {
        for bucket_key in bucket_keys().filter(|bucket_key| bucket_key.kind() != EntryKind::Compact)
        {
            let (high, low) = bucket_key.trie_words();
            assert!(high != 0 || low.trailing_zeros() >= 16, "{bucket_key:?}");
        }
    }
}
