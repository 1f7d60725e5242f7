//! Captures: whole packets, cut to a snap length, that the program reports with their verdict.

use bytemuck::{Pod, Zeroable};

use super::EventBudget;
use crate::verdict::Reason;

/// Size of the ring of captured packets in bytes: a power of two, and whole pages on every machine.
pub const CAPTURED_BYTES: u32 = 1 << 20;

/// Longest snap length in bytes: a jumbo frame of 9,000 bytes with its headers, and some more.
pub const MAX_SNAP: u32 = 9_216;

/// Levels of sources: level `n` has a share of 1/2^(n+1) of them, the last one all that are left.
pub const LEVELS: u32 = 16;

/// The packets that a capture reports, and how many of them: the value of `CAPTURE`. Written by the
/// daemon while [`super::Control::CaptureEnd`] is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CaptureFilter {
    /// Number of the capture, not 0; each record says it.
    pub session: u64,
    /// Bit by number of each [`Reason`] that is reported.
    pub reasons: u64,
    /// The prefix that sources are in, as the trie knows them
    /// ([`crate::source::Source::trie_key`]), in two words as they stand in memory.
    pub source: [u64; 2],
    /// The bits of that prefix. None for packets of every source, and of none.
    pub mask: [u64; 2],
    /// Secret by which a share of the sources is chosen.
    pub seed: u64,
    /// Ticks for each record, per CPU; 0 for none at all.
    pub cost: u64,
    /// Ticks that records may be ahead of that rate.
    pub credit: u64,
    /// The rule that packets fell under, or [`CaptureFilter::EVERY_RULE`].
    pub rule: u32,
    /// The lowest level of sources that are reported, or [`CaptureFilter::EVERY_SOURCE`].
    pub level: u32,
    /// Bytes of each packet that are reported, at most [`MAX_SNAP`].
    pub snap: u32,
    /// Padding; zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<CaptureFilter>() == 88);
const _: () = assert!(Reason::COUNT <= 64);

impl CaptureFilter {
    /// [`CaptureFilter::rule`] of a capture that asks for no rule.
    pub const EVERY_RULE: u32 = u32::MAX;

    /// [`CaptureFilter::level`] of a capture of all sources.
    pub const EVERY_SOURCE: u32 = u32::MAX;

    /// A capture of every packet, whole, without a budget. Its number is 1.
    pub const EVERYTHING: Self = Self {
        session: 1,
        reasons: u64::MAX,
        source: [0; 2],
        mask: [0; 2],
        seed: 1,
        cost: 1,
        credit: 1 << 36,
        rule: Self::EVERY_RULE,
        level: Self::EVERY_SOURCE,
        snap: MAX_SNAP,
        reserved: 0,
    };
}

/// One packet that was reported. Its bytes come behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CaptureRecord {
    /// Capture that the record is of: [`CaptureFilter::session`].
    pub session: u64,
    /// Time of the verdict, in ticks.
    pub time: u64,
    /// The source: [`crate::source::Source::trie_key`], in two words as they stand in memory; zeros
    /// without one.
    pub source: [u64; 2],
    /// The rule of the source table, or if it was dropped the rule that dropped it;
    /// [`super::RULE_NONE`] for none.
    pub rule: u32,
    /// The interface that the packet came in by.
    pub interface: u32,
    /// Length of the frame in bytes.
    pub length: u32,
    /// Bytes that follow.
    pub captured: u32,
    /// The number of the [`Reason`].
    pub reason: u8,
    /// The IP version, 4 or 6; 0 for a frame without a source.
    pub version: u8,
    /// The level of the source, below [`LEVELS`]; the last one where all sources are reported.
    pub level: u8,
    /// 1 if the packet begins with its IP header, 0 if with an Ethernet header.
    pub layer_3: u8,
    /// Packets: more than one in a super-frame.
    pub packets: u16,
    /// A [`crate::header::Direction`].
    pub direction: u8,
    /// Padding; zero.
    pub reserved: u8,
}

const _: () = assert!(size_of::<CaptureRecord>() == 56);

/// A packet on its way to the ring: the value of `CAPTURE_FRAME`, of each CPU.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CaptureFrame {
    /// The session that bytes were kept for before an action changed the packet; 0 for none.
    pub kept: u64,
    /// Fixed part, before the bytes of the packet.
    pub record: CaptureRecord,
    /// Bytes of the packet; the first [`CaptureRecord::captured`] of them are its own.
    pub bytes: [u8; MAX_SNAP as usize],
}

/// The budget of captured packets of one CPU, and what became of those that were to be reported:
/// the value of `CAPTURE_BUDGET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CaptureBudget {
    /// Time of the next record, and the counts.
    pub reported: EventBudget,
    /// Packets that were to be reported and were not, by level.
    pub missed: [u64; LEVELS as usize],
}

const _: () = assert!(size_of::<CaptureBudget>() == 160);

impl CaptureBudget {
    /// Adds another CPU's counts.
    pub fn merge(&mut self, other: &Self) {
        self.reported.merge(other.reported);
        for (sum, missed) in self.missed.iter_mut().zip(other.missed) {
            *sum = sum.wrapping_add(missed);
        }
    }
}
