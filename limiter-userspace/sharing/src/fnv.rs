//! FNV-1a, 64 bits, for digests that are stored or compared by other machines and so must be the
//! same in every version. A collision helps nobody who could not write the texts anyway.

/// A digest of the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self::new()
    }
}

impl Fnv {
    /// Digest of nothing.
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds more bytes to the same piece.
    #[must_use]
    pub const fn with(self, bytes: &[u8]) -> Self {
        let (mut hash, mut index) = (self.0, 0);
        while index < bytes.len() {
            hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0100_0000_01b3);
            index += 1;
        }
        Self(hash)
    }

    /// Adds a whole piece: two separate pieces have a different digest than their concatenation.
    pub fn add(&mut self, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        *self = self.with(&length.to_le_bytes()).with(bytes);
    }

    /// The digest.
    pub const fn finish(self) -> u64 {
        self.0
    }
}
