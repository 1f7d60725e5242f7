//! Packets as the program judged them, as pcapng.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::render::{Render, number};

/// Header of the answer with the number of the capture.
pub const NUMBER: &str = "limiter-capture";

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CapturedVerdict {
    /// Packets that were dropped.
    Dropped,
    /// Packets that passed.
    Passed,
}

/// `POST /v1/capture`: the packets to report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AskCapture {
    /// Only packets with this verdict.
    pub verdict: Option<CapturedVerdict>,
    /// Only packets that this rule dropped or, of a rule by source alone, let pass: its name, or
    /// its keys as `GET /v1/limits` has them.
    pub rule: Option<String>,
    /// Only packets of this address or prefix.
    pub source: Option<String>,
    /// Only packets with this reason, as in `limiter stats`.
    pub reason: Option<String>,
    /// Bytes of each packet: 9216 without it, which is also the most; 96 with `share`.
    #[schema(maximum = 9216)]
    pub snap: Option<u32>,
    /// Packets after which the capture ends.
    #[schema(minimum = 1)]
    pub count: Option<u64>,
    /// Seconds after which the capture ends.
    #[schema(minimum = 1)]
    pub seconds: Option<u64>,
    /// Packets that each CPU reports a second, 10,000 without it; a quarter of a second's worth may
    /// come at once.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub per_second: Option<u32>,
    /// One in this many sources, chosen by a secret hash, a power of two up to 32,768: an
    /// observation. Each comment says source and level then.
    #[schema(minimum = 1, maximum = 32_768)]
    pub share: Option<u32>,
}

/// A capture, and what it reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CaptureReport {
    /// The number of the capture: the header `limiter-capture` of its answer.
    pub number: u64,
    /// The user who asked for it.
    pub user: u32,
    /// Time when it began: in RFC 3339.
    pub began: String,
    /// Milliseconds that it took, so far.
    pub milliseconds: u64,
    /// Packets that were reported.
    #[serde(rename = "told")]
    pub reported: u64,
    /// Packets that were not reported because the budget was used up.
    pub over_budget: u64,
    /// Packets that the budget would have had, and for which there was no room.
    pub lost: u64,
    /// Of an observation: the level n of its share, of one in 2^n sources.
    pub asked_level: Option<u32>,
    /// Of an observation: the level from which on every packet of every source was reported; 16 if
    /// there is none.
    pub whole_level: Option<u32>,
}

/// `GET /v1/capture`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Captures {
    /// The capture under way. There is one at a time.
    pub running: Option<CaptureReport>,
    /// The last one that ended since the daemon started.
    pub last: Option<CaptureReport>,
}

impl Render for CaptureReport {
    fn render(&self, text: &mut String) {
        let mut line = |what: &str, count: u64| {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(text, "{} {what}", number(count));
        };
        line("packets", self.reported);
        if self.over_budget > 0 {
            line(
                "packets more were not reported: over the budget (--rate-budget)",
                self.over_budget,
            );
        }
        if self.lost > 0 {
            line(
                "packets more were not reported: no room, nobody had read those before",
                self.lost,
            );
        }
    }
}
