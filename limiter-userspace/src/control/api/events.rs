//! The documents about single drops.

use serde::{Deserialize, Serialize};

/// `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Those that go on, and the last that have ended; the latest first.
    pub episodes: Vec<Episode>,
    /// What became of the drops.
    pub counts: EventCounts,
}

/// What became of drops, shadow drops among them: `sent`, `over_budget` and `lost` are all of them since
/// the maps were made. The other counts are since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounts {
    /// Told by the program.
    pub sent: u64,
    /// Counted and not told: the budget of events was used up, or there is none.
    pub over_budget: u64,
    /// Not told because nobody had read the events before.
    pub lost: u64,
    /// Episodes that were forgotten because there were too many.
    pub forgotten: u64,
    /// Episodes of which no line is in the log.
    pub not_logged: u64,
    /// Calls of the hooks that were left out because too many were waiting.
    pub hooks_left_out: u64,
    /// Who follows now.
    pub followers: usize,
}

/// Drops of one source by one rule for one reason, without a long pause in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Episode {
    /// An IPv4 address or an IPv6 /64.
    pub source: String,
    /// The rule; none where no rule was asked, or where it is not in force any more.
    pub rule: Option<String>,
    /// Why, as in `limiter stats`.
    pub reason: String,
    /// When it began: in RFC 3339.
    pub began: String,
    /// Seconds from the first drop that was told to the last one.
    pub seconds: u64,
    /// Drops that were told. A sample: at a high rate most are only counted.
    pub sampled: u64,
    /// Whether it has ended.
    pub ended: bool,
    /// The last of them.
    pub last: Sample,
}

/// What a packet was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The interface that it came in by.
    pub interface: Option<String>,
    /// Its length.
    pub bytes: u32,
    /// The number of its protocol.
    pub protocol: Option<u8>,
    /// The sender's port.
    pub source_port: Option<u16>,
    /// The receiver's port.
    pub destination_port: Option<u16>,
}

/// A line of `GET /v1/events?follow=true`, and what hooks get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    /// One packet.
    Drop(Dropped),
    /// An episode began.
    Start(Episode),
    /// It goes on.
    Still(Episode),
    /// It has ended.
    End(Episode),
    /// A table of entries has no room for new ones, or has it again.
    #[serde(rename = "table-full")]
    TableFull(TableFull),
    /// The reader was too slow for so many lines.
    Lost {
        /// How many.
        lines: u64,
    },
}

/// A packet that was dropped, or would be if its rule were not in shadow mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// An IPv4 address or an IPv6 /64.
    pub source: String,
    /// The rule.
    pub rule: Option<String>,
    /// Why.
    pub reason: String,
    /// What it was.
    #[serde(flatten)]
    pub packet: Sample,
}

/// Packets that find no room in a table of entries: a flood of new sources, or too small a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableFull {
    /// `start`, `still` or `end`.
    pub phase: Phase,
    /// `IPv4 sources`, `IPv6 sources` or `keys of tables`.
    pub table: String,
    /// Packets that got no entry since it began.
    pub packets: u64,
}

/// Where something is that goes on for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It begins.
    Start,
    /// It goes on.
    Still,
    /// It has ended.
    End,
}

impl Phase {
    /// `start`, `still` or `end`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Still => "still",
            Self::End => "end",
        }
    }
}

/// The query of `GET /v1/events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AskEvents {
    /// Lines as they come, without an end.
    pub follow: bool,
    /// With `follow`: single packets as well.
    pub drops: bool,
}

impl Line {
    /// `start`, `still`, `end`, `drop`, `table-full` or `lost`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Drop(_) => "drop",
            Self::Start(_) => "start",
            Self::Still(_) => "still",
            Self::End(_) => "end",
            Self::TableFull(_) => "table-full",
            Self::Lost { .. } => "lost",
        }
    }
}
