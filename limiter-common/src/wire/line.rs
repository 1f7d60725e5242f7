//! A line of the line table: `limiter_decision::line`.

use bytemuck::{Pod, Zeroable};

/// Entries of a line.
pub const LINE_WAYS: usize = 7;

/// Bytes of lines per source for which the table is made, including the overflow. The published
/// share of sources without an entry is calculated for this.
pub const LINE_BYTES_PER_SOURCE: u32 = 60;

/// A source in a line: its bucket and its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct LineEntry {
    /// Theoretical arrival time and scale bit: [`crate::bucket::Word`].
    pub word: u64,
    /// The limit that the source was resolved to: [`crate::bucket::Resolved`].
    pub resolved: u64,
    /// The name of the source: [`crate::bucket_key::BucketKey::name`]. 0 for an unused entry.
    pub name: u64,
    /// Packets that passed since the entry was made, without those carried to
    /// [`Line::carried_passed`], modulo 2^32.
    pub passed: u32,
    /// Packets that were dropped since the entry was made, without those carried to
    /// [`Line::carried_dropped`], modulo 2^32.
    pub dropped: u32,
}

impl LineEntry {
    /// Both counts in one word: passed packets in the lower half.
    pub const fn counts(&self) -> u64 {
        (self.dropped as u64) << 32 | self.passed as u64
    }
}

/// Number of lines of a table for `sources` sources with debts at the same time.
pub const fn lines_for(sources: u32) -> u32 {
    let bytes = sources as u64 * LINE_BYTES_PER_SOURCE as u64;
    let lines = bytes.div_ceil(size_of::<Line>() as u64);
    // Fewer than the sources, which fit in 32 bits.
    if lines == 0 { 1 } else { (lines & 0xffff_ffff) as u32 }
}

/// The value of the maps of lines: four cache lines, and one entry of the TLB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Line {
    /// 1 while a CPU makes an entry, otherwise 0.
    pub lock: u64,
    /// 1 once a source whose first line this is went to the overflow.
    pub spilled: u64,
    /// Packets that passed, in units of 2^31: nine bits for each entry
    /// (`limiter_decision::line::carry`).
    pub carried_passed: u64,
    /// Packets that were dropped, in the same form.
    pub carried_dropped: u64,
    /// The entries of sources.
    pub entries: [LineEntry; LINE_WAYS],
}

const _: () = assert!(size_of::<LineEntry>() == 32 && size_of::<Line>() == 256);
