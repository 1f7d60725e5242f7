//! Single drops, as they are sampled, and episodes of them.

use std::fmt::Write as _;

use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::render::{Render, number, push, table, titled};

/// `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// Episodes that go on, and the last that have ended; the latest first.
    pub episodes: Vec<Episode>,
    /// Counts of the drops, by what became of them.
    pub counts: EventCounts,
}

/// Counts of drops, shadow drops among them, by what became of them: `sent`, `over_budget` and
/// `lost` are all of them since the maps were made. The other counts are since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventCounts {
    /// Sent by the program.
    pub sent: u64,
    /// Counted and not told: the budget of events was used up, or there is none.
    pub over_budget: u64,
    /// Lost because nobody had read the events before.
    pub lost: u64,
    /// Episodes that were forgotten because there were too many.
    pub forgotten: u64,
    /// Episodes of which no line is in the log.
    pub not_logged: u64,
    /// Calls of the hooks that were left out because too many were waiting.
    pub hooks_left_out: u64,
    /// Followers now.
    pub followers: usize,
}

/// Drops of one source by one rule for one reason, without a long pause in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Episode {
    /// An IPv4 address or an IPv6 /64.
    pub source: String,
    /// The rule; none where no rule was asked, or where it is not in force any more.
    pub rule: Option<String>,
    /// The name that the author of the rule gave it.
    #[serde(default)]
    pub rule_name: Option<String>,
    /// Reason of the drops, as in `limiter stats`.
    pub reason: String,
    /// Time when it began: in RFC 3339.
    pub began: String,
    /// Seconds from the first drop that was told to the last one.
    pub seconds: u64,
    /// Drops that were told. A sample: at a high rate most are only counted.
    pub sampled: u64,
    /// True if it has ended.
    pub ended: bool,
    /// Facts of the last drop.
    pub last: Sample,
}

/// Facts of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sample {
    /// The interface that it came in by.
    pub interface: Option<String>,
    /// Length of the packet, in bytes.
    pub bytes: u32,
    /// The number of its protocol.
    #[schema(maximum = 255)]
    pub protocol: Option<u8>,
    /// The sender's port.
    #[schema(maximum = 65_535)]
    pub source_port: Option<u16>,
    /// The receiver's port.
    #[schema(maximum = 65_535)]
    pub destination_port: Option<u16>,
}

/// A line of `GET /v1/events?follow=true`, and what hooks get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    /// A drop.
    Drop(Dropped),
    /// An episode began.
    Start(Episode),
    /// The episode goes on.
    Still(Episode),
    /// The episode has ended.
    End(Episode),
    /// A table of entries has no room for new ones, or has it again.
    #[serde(rename = "table-full")]
    TableFull(TableFull),
    /// The reader was too slow for so many lines.
    Lost {
        /// Number of the lines.
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
    /// The name that the author of the rule gave it.
    #[serde(default)]
    pub rule_name: Option<String>,
    /// Reason of the drop.
    pub reason: String,
    /// Facts of the packet.
    #[serde(flatten)]
    pub packet: Sample,
}

/// Packets that find no room in a table of entries: a flood of new sources, or too small a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableFull {
    /// `start`, `still` or `end`.
    pub phase: Phase,
    /// `IPv4 sources`, `IPv6 sources`, `narrow keys` or `keys of tables`.
    pub table: String,
    /// Packets that got no entry since it began.
    pub packets: u64,
}

/// Phase of something that goes on for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The beginning.
    Start,
    /// A time in between.
    Still,
    /// The end.
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
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams,
)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AskEvents {
    /// Lines as they come, without an end.
    pub follow: bool,
    /// Single packets as well, with `follow`.
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

impl Render for Events {
    fn render(&self, text: &mut String) {
        if self.episodes.is_empty() {
            text.push_str("no drops were told\n");
        } else {
            let mut table =
                table(&["SOURCE", "REASON", "RULE", "BEGAN", ">SECONDS", ">SAMPLED", "", "LAST"]);
            for episode in &self.episodes {
                table.add_row(row(episode));
            }
            push(text, &table);
        }
        let counts = self.counts;
        let mut line = |what: &str, count: u64| {
            if count > 0 {
                let _: std::fmt::Result = writeln!(text, "{} {what}", number(count));
            }
        };
        line("drops were told", counts.sent);
        line("drops were only counted: over the budget of events", counts.over_budget);
        line("events were lost: nobody had read those before", counts.lost);
        line("episodes were forgotten: too many at once", counts.forgotten);
        line("lines were left out of the log", counts.not_logged);
        line("calls of hooks were left out: too many were waiting", counts.hooks_left_out);
    }
}

/// Text of a line, for people.
pub fn text(line: &Line) -> String {
    let name = line.name();
    let told = match line {
        Line::Drop(at) => format!(
            "{name}   {} {} rule {} {}",
            at.source,
            at.reason,
            titled(at.rule.as_deref(), at.rule_name.as_deref()),
            packet(&at.packet)
        ),
        Line::Start(at) => format!(
            "{name}  {} {} rule {} {}",
            at.source,
            at.reason,
            titled(at.rule.as_deref(), at.rule_name.as_deref()),
            packet(&at.last)
        ),
        Line::Still(at) | Line::End(at) => format!(
            "{name:5}  {} {} rule {} {} s, {} sampled",
            at.source,
            at.reason,
            titled(at.rule.as_deref(), at.rule_name.as_deref()),
            at.seconds,
            number(at.sampled)
        ),
        Line::TableFull(at) => format!(
            "{name} {}: no room for new {}, {} packets",
            at.phase.name(),
            at.table,
            number(at.packets)
        ),
        Line::Lost { lines } => format!("{name}   {} lines: too slow", number(*lines)),
    };
    clean(&told) + "\n"
}

/// `udp 40000>53 60 bytes eth0`.
fn packet(packet: &Sample) -> String {
    let mut text = match packet.protocol {
        Some(1) => "icmp ".to_owned(),
        Some(6) => "tcp ".to_owned(),
        Some(17) => "udp ".to_owned(),
        Some(58) => "icmpv6 ".to_owned(),
        Some(other) => format!("protocol {other} "),
        None => String::new(),
    };
    // Writing to a string cannot fail.
    if let (Some(from), Some(to)) = (packet.source_port, packet.destination_port) {
        let _: std::fmt::Result = write!(text, "{from}>{to} ");
    }
    let _: std::fmt::Result = write!(text, "{} bytes", packet.bytes);
    if let Some(interface) = &packet.interface {
        let _: std::fmt::Result = write!(text, " {interface}");
    }
    text
}

fn row(episode: &Episode) -> [String; 8] {
    [
        episode.source.clone(),
        episode.reason.clone(),
        titled(episode.rule.as_deref(), episode.rule_name.as_deref()),
        episode.began.clone(),
        number(episode.seconds),
        number(episode.sampled),
        if episode.ended { "ended" } else { "goes on" }.to_owned(),
        packet(&episode.last),
    ]
}
