//! Captures: whole packets, cut to a snap length, that the program reports with their verdict.

use bytemuck::{Pod, Zeroable};

use super::EventBudget;
use crate::verdict::Reason;

/// Size of the ring of captured packets in bytes: a power of two, and whole pages on every machine.
pub const CAPTURED_BYTES: u32 = 1 << 20;

/// Longest snap length in bytes: enough for a jumbo frame of 9,000 bytes with its headers.
pub const MAX_SNAP: u32 = 9_216;

/// Levels of sources: level `n` has a share of 1/2^(n+1) of them, and the last one the rest.
pub const LEVELS: u32 = 16;

/// Which packets a capture reports, and how many: the value of `CAPTURE`. Written by the daemon
/// while [`super::Control::CaptureEnd`] is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CaptureFilter {
    /// Number of the capture, not 0; each record contains it.
    pub session: u64,
    /// One bit for each reported [`Reason`], by its number.
    pub reasons: u64,
    /// The prefix of reported sources as a trie key ([`crate::source::Source::trie_key`]), in two
    /// words in memory order.
    pub source: [u64; 2],
    /// The bits of that prefix. Zero for packets from every source, and packets without one.
    pub mask: [u64; 2],
    /// Secret by which sources are chosen.
    pub seed: u64,
    /// Ticks per record on each CPU; 0 for no records.
    pub cost: u64,
    /// Ticks by which records may be ahead of that rate.
    pub credit: u64,
    /// The rule of reported packets, or [`CaptureFilter::EVERY_RULE`].
    pub rule: u32,
    /// The lowest level of reported sources, or [`CaptureFilter::EVERY_SOURCE`].
    pub level: u32,
    /// Bytes to report of each packet, at most [`MAX_SNAP`].
    pub snap: u32,
    /// Padding; zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<CaptureFilter>() == 88);
const _: () = assert!(Reason::COUNT <= 64);

impl CaptureFilter {
    /// [`CaptureFilter::rule`] of a capture that does not select a rule.
    pub const EVERY_RULE: u32 = u32::MAX;

    /// [`CaptureFilter::level`] of a capture of all sources.
    pub const EVERY_SOURCE: u32 = u32::MAX;

    /// A capture of every packet in full, without a budget. Its number is 1.
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

/// A reported packet. Its bytes follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CaptureRecord {
    /// The capture that the record belongs to: [`CaptureFilter::session`].
    pub session: u64,
    /// Time of the verdict, in ticks.
    pub time: u64,
    /// The source as [`crate::source::Source::trie_key`], in two words in memory order; zeros
    /// without a source.
    pub source: [u64; 2],
    /// The rule of the source table; for a dropped packet, the rule that dropped it.
    /// [`super::RULE_NONE`] for none.
    pub rule: u32,
    /// The interface by which the packet came in.
    pub interface: u32,
    /// Length of the frame in bytes.
    pub length: u32,
    /// Bytes that follow.
    pub captured: u32,
    /// The number of the [`Reason`].
    pub reason: u8,
    /// The IP version, 4 or 6; 0 for a frame without a source.
    pub version: u8,
    /// The level of the source, below [`LEVELS`]; the last level if all sources are reported.
    pub level: u8,
    /// 1 if the packet begins with its IP header, 0 if with an Ethernet header.
    pub layer_3: u8,
    /// Number of packets: more than one in a super-frame.
    pub packets: u16,
    /// A [`crate::header::Direction`].
    pub direction: u8,
    /// Padding; zero.
    pub reserved: u8,
}

const _: () = assert!(size_of::<CaptureRecord>() == 56);

/// A packet on its way to the ring: the per-CPU value of `CAPTURE_FRAME`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CaptureFrame {
    /// The session for which bytes were kept before an action changed the packet; 0 for none.
    pub kept: u64,
    /// Fixed part, before the bytes of the packet.
    pub record: CaptureRecord,
    /// Bytes of the packet; the first [`CaptureRecord::captured`] are valid.
    pub bytes: [u8; MAX_SNAP as usize],
}

/// The budget of captured packets of one CPU, and counts of selected packets: the value of
/// `CAPTURE_BUDGET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CaptureBudget {
    /// Time of the next record, and the counts.
    pub reported: EventBudget,
    /// Selected packets that were not reported, by level.
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
