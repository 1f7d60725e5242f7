//! The key of a bucket in the tables of sources: a source, or a compact key.

use crate::source::{MAPPED, Source};
use crate::wire::EntryKind;

/// The key of a bucket in the tables of sources.
///
/// A word and its kind, and no enum with an address in each variant: all but a few places ask for
/// the word alone, whatever it is of, and a branch for each kind costs the verifier and the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketKey {
    kind: EntryKind,
    /// The bytes of an IPv4 address and four zeros, those of an IPv6 /64, or of a compact key, as
    /// they stand in memory.
    word: u64,
}

/// The state of a ring slot without an entry.
pub const EMPTY: u64 = 0;

/// The state of a ring slot that an entry is being made for. Other CPUs look elsewhere.
pub const BUSY: u64 = 1;

/// Bits in which a name differs from its word. No bucket key that is in use is named [`EMPTY`] or
/// [`BUSY`] so: the two IPv6 prefixes that would are in `::/7`, which the IETF keeps reserved (RFC
/// 4291), and get no entry; IPv4 addresses have other bits; and the tables of the compact keys that
/// would have no compact keys ([`crate::compact::compact_number`]).
pub const NAME: u64 = u64::from_ne_bytes([0x00, 0xf1, 0x11, 0x17, 0xe2, 0xf3, 0x3b, 0x77]);

impl BucketKey {
    /// The compact key with these bytes, as they stand in memory: the number of its table, which is
    /// not 0, the destination port and the IPv4 source, of two, two and four bytes.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn compact(word: u64) -> Self {
        Self { kind: EntryKind::Compact, word }
    }

    /// The table that has the bucket.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn kind(self) -> EntryKind {
        self.kind
    }

    /// The bytes, as they stand in memory.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn word(self) -> u64 {
        self.word
    }

    /// Takes what [`BucketKey::word`] and the number of [`BucketKey::kind`] gave.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of_word(word: u64, kind: u32) -> Self {
        Self { kind: EntryKind::of_number(kind), word }
    }

    /// The name in ring slots and in entries of lines; none of the two bucket keys that can have no
    /// entry. It is no [`EMPTY`], and no [`BUSY`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn name(self) -> Option<u64> {
        match self.word ^ NAME {
            0 | 1 => None,
            name => Some(name),
        }
    }

    /// The bucket key with a name.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn named(kind: EntryKind, name: u64) -> Self {
        Self { kind, word: name ^ NAME }
    }

    /// The source that it is; none of a compact key.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn source(self) -> Option<Source> {
        let [a, b, c, d, ..] = self.word.to_ne_bytes();
        match self.kind {
            EntryKind::V4 => Some(Source::V4([a, b, c, d])),
            EntryKind::V6 => Some(Source::V6(self.word.to_ne_bytes())),
            EntryKind::Compact | EntryKind::Keyed => None,
        }
    }

    /// The key in the trie of rules, in two words, as they stand in memory. That of a source is
    /// [`Source::trie_key`]. A compact key has its word where IPv4 addresses have theirs and the
    /// bytes before them: in the first two of the eight it has its table, and those of a source are
    /// zero.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn trie_words(self) -> (u64, u64) {
        match self.kind {
            EntryKind::V4 => (0, MAPPED | self.word << 32),
            EntryKind::V6 => (self.word, 0),
            EntryKind::Compact | EntryKind::Keyed => (0, self.word),
        }
    }

    /// [`BucketKey::trie_words`] in bytes.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[expect(clippy::many_single_char_names, reason = "bytes have no better names")]
    pub const fn trie_key(self) -> [u8; 16] {
        // In two words: of bytes, the compiler makes a loop that the verifier refuses.
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
        // Two prefixes of `::/7`, and compact keys of tables that no table is.
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
