//! The promised range: every limit and every offered load of the table.

use std::fmt;

use anyhow::{Result, bail};
use limiter_common::wire::Count;
use limiter_rules::model::Limits;
use limiter_rules::{RateLimit, RateText};

use crate::packet::MAX_FRAME;

/// An offered rate as a multiple of the configured one, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Multiple(u32);

impl Multiple {
    /// The loads of the table, from half the limit to a flood.
    pub const ALL: [Self; 8] = [
        Self(500),
        Self(1_000),
        Self(1_001),
        Self(1_100),
        Self(1_500),
        Self(2_500),
        Self(10_000),
        Self(1_000_000),
    ];

    /// The multiple of the limit, in thousandths.
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// The multiple of the limit.
    pub fn factor(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    /// True if the load is within 1 % of the limit, but not on it.
    pub const fn is_near(self) -> bool {
        self.0 != 1_000 && self.0.abs_diff(1_000) <= 10
    }

    /// True if a source with this load stays within its limit.
    pub const fn conforms(self) -> bool {
        self.0 <= 1_000
    }
}

impl fmt::Display for Multiple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x", self.factor())
    }
}

/// One limit of the table, with the frames that are offered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As on the command line, such as `5/day`.
    pub text: &'static str,
    /// Limit that the text means; with a burst of ten frames, and of at least one full frame.
    pub limit: RateLimit,
    /// Length of the frames in bytes.
    pub frame: u64,
}

const BURST: u64 = 10;

const PACKETS: [&str; 20] = [
    "1/week", "5/day", "10/hour", "7/min", "1/s", "3/s", "100/s", "1k/s", "3k/s", "6k/s", "10k/s",
    "100k/s", "600k/s", "750k/s", "900k/s", "1M/s", "3M/s", "10M/s", "60M/s", "100M/s",
];

const BYTES: [&str; 9] = [
    "1kbit/s",
    "64kbit/s",
    "1mbit/s",
    "10mbit/s",
    "100mbit/s",
    "1gbit/s",
    "10gbit/s",
    "40gbit/s",
    "100gbit/s",
];

/// The smallest and the largest frame without a tag and without the checksum.
const FRAMES: [u64; 2] = [60, 1514];

/// Every limit of the table, packets first.
///
/// # Errors
///
/// When a text in the list is no rate.
pub fn entries() -> Result<Vec<Entry>> {
    let packets = PACKETS.into_iter().map(|text| entry(text, FRAMES[0]));
    let bytes = BYTES.into_iter().flat_map(|text| FRAMES.map(|frame| entry(text, frame)));
    packets.chain(bytes).collect()
}

/// A limit from its text, for frames of `frame` bytes.
///
/// # Errors
///
/// When the text is no rate.
pub fn entry(text: &'static str, frame: u64) -> Result<Entry> {
    let burst = match RateText::parse(text)? {
        RateText::Rate { count: Count::Bytes, .. } => (BURST * frame).max(MAX_FRAME),
        _ => BURST,
    };
    let terms = RateText::parse(text)?.terms(Some(burst), MAX_FRAME)?;
    match terms.limits().and_then(Limits::plain) {
        Some(limit) => Ok(Entry { text, limit, frame }),
        None => bail!("{text} is no limit"),
    }
}

impl Entry {
    /// Units that a frame costs: 1, or its bytes.
    pub const fn cost(&self) -> u64 {
        match self.limit.count {
            Count::Packets | Count::Syns | Count::Flows => 1,
            Count::Bytes => self.frame,
        }
    }
}
