//! Single drops, as they are sampled, and episodes of them.

use std::fmt::Write as _;

use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sources::named;
use super::sources::reach::Reach;
use super::words;
use crate::moment::{self, Zone};
use crate::render::{Render, dropper, number, push, seconds, shown_reason, table};

/// `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// Episodes that go on, and the last that have ended; the latest first.
    pub episodes: Vec<Episode>,
    /// Counts of the drops, by what became of them.
    pub counts: EventCounts,
    /// How far the answer reaches; none where nothing was asked for: such an answer has the latest
    /// episodes alone.
    #[serde(default)]
    pub reach: Option<Reach>,
}

/// Counts of drops, shadow drops among them, by what became of them: `sent`, `over_budget` and
/// `lost` are all of them since the maps were made. The other counts are since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventCounts {
    /// Sent by the program.
    pub sent: u64,
    /// Counted and not reported: the budget of events was used up, or there is none.
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
    /// True if nothing was dropped: a rule in shadow mode would have.
    #[serde(default)]
    pub would_drop: bool,
    /// Time when it began, in RFC 3339; of a time that is asked for, its first part in that.
    pub began: String,
    /// Seconds from the first drop that was reported to the last one; of a time that is asked for,
    /// in the parts that are in it.
    pub seconds: u64,
    /// Drops that were reported, likewise. A sample: at a high rate most are only counted.
    pub sampled: u64,
    /// True if it has ended.
    pub ended: bool,
    /// Facts of the last drop.
    pub last: Sample,
}

impl Episode {
    /// The source, with the direction where that is not the usual one.
    pub fn name(&self) -> String {
        self.last.of(&self.source)
    }

    /// What drops: [`dropper`].
    pub fn title(&self) -> String {
        dropper(self.rule.as_deref(), self.rule_name.as_deref(), &self.reason)
    }

    /// Its drops in a line.
    pub fn in_words(&self) -> String {
        let by = self.title();
        let at = self.last.interface.as_deref();
        let at = at.map_or_else(String::new, |name| format!(", the last by {name}"));
        let since = moment::local(&self.began);
        format!("{} reported since {since} by {by}: {}{at}", self.sampled, self.reason)
    }
}

/// Facts of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sample {
    /// The interface that it came in by, or went out by.
    pub interface: Option<String>,
    /// `out` for a packet on its way out: the source of the episode is then its destination. None
    /// for one that came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Direction>)]
    pub direction: Option<String>,
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

impl Sample {
    /// The source of the packet, with the direction where that is not the usual one.
    fn of(&self, source: &str) -> String {
        named(source, self.direction.as_deref().unwrap_or_default())
    }
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
    /// True if it was not dropped: a rule in shadow mode would have.
    #[serde(default)]
    pub would_drop: bool,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AskEvents {
    /// Lines as they come, without an end.
    #[cfg_attr(feature = "clap", arg(
        long, action = clap::ArgAction::SetTrue,
        help = "Print a line for each reported drop, and for each episode at its start, during it \
                and at its end",
    ))]
    pub follow: bool,
    /// Single packets as well, with `follow`.
    #[cfg_attr(feature = "clap", arg(
        long = "episodes", action = clap::ArgAction::SetFalse, requires = "follow",
        help = "With --follow: episodes only, and no single drops",
    ))]
    pub drops: bool,
    /// Source of the drops, or a prefix of sources.
    #[param(value_type = Option<words::Prefix>)]
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDRESS|PREFIX"))]
    #[cfg_attr(
        feature = "clap",
        arg(help = "Only drops of this address, or of all in this prefix")
    )]
    pub source: Option<String>,
    /// Rule that drops: its keys as `limiter list` shows them, or its name.
    #[cfg_attr(feature = "clap", arg(
        long, value_name = "NAME|KEYS", action = clap::ArgAction::Set,
        help = "Only drops by this rule: its name, or its keys as `limiter list` shows them",
    ))]
    pub rule: Option<String>,
    /// Begin of the time that is asked for, in RFC 3339 and UTC; not with `follow`.
    #[param(value_type = Option<words::Moment>)]
    #[cfg_attr(feature = "clap", arg(
        long, value_name = "TIME", value_parser = moment::since, conflicts_with = "follow",
        help = "Only drops since then, from the log on disk: 14:05, \"2026-11-27 14:05\", \
                2026-11-27T14:05:00Z, or 10m, which is ten minutes ago",
    ))]
    pub since: Option<String>,
    /// End of the time that is asked for.
    #[param(value_type = Option<words::Moment>)]
    #[cfg_attr(feature = "clap", arg(
        long, value_name = "TIME", value_parser = moment::until, conflicts_with = "follow",
        help = "Only drops until then, likewise",
    ))]
    pub until: Option<String>,
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
        let zone = Zone::of_this_process();
        if self.episodes.is_empty() {
            text.push_str(&self.none(&zone));
        } else {
            let began: &[&'static str] =
                if zone.is_utc() { &["BEGAN"] } else { &["BEGAN", "?UTC"] };
            let before = ["SOURCE", "REASON", "RULE"];
            let after = [">LASTED", "?>REPORTED", "?", "?LAST PACKET"];
            let mut table = table(&[&before, began, &after].concat());
            for episode in &self.episodes {
                table.add_row(row(episode, &zone));
            }
            push(text, &table);
        }
        match &self.reach {
            Some(reach) => reach.render(&zone, self.episodes.is_empty(), text),
            None => self.counts.render(text),
        }
    }
}

impl Events {
    /// Words for an answer without episodes: what is not known is not denied.
    fn none(&self, zone: &Zone) -> String {
        let Some(reach) = &self.reach else { return "no drops were reported\n".to_owned() };
        if reach.unknown_rule {
            return "no rule in force or in the log is called that: `limiter list` shows all\n"
                .to_owned();
        }
        let (from, to) = (reach.since.as_ref(), reach.until.as_ref());
        let from = from.filter(|from| **from > reach.from).unwrap_or(&reach.from);
        let to = to.filter(|to| **to < reach.to).unwrap_or(&reach.to);
        if from > to {
            return format!(
                "nothing is known of that time: the log reaches back to {}\n",
                zone.both(&reach.from)
            );
        }
        let (from, to) = (zone.both(from), zone.both(to));
        if reach.is_whole() {
            format!("no such drop from {from} to {to}: all drops of that time were reported\n")
        } else {
            format!(
                "no such drop was reported from {from} to {to}, but not all drops of it were:\n"
            )
        }
    }
}

impl EventCounts {
    fn render(self, text: &mut String) {
        let mut line = |what: &str, count: u64| {
            if count > 0 {
                let _: std::fmt::Result = writeln!(text, "{} {what}", number(count));
            }
        };
        line("drops were reported", self.sent);
        line("drops were only counted: over the budget of events", self.over_budget);
        line("events were lost: nobody had read those before", self.lost);
        line("episodes were forgotten: too many at once", self.forgotten);
        line("lines were left out of the log", self.not_logged);
        line("calls of hooks were left out: too many were waiting", self.hooks_left_out);
    }
}

/// Text of a line, for people.
pub fn text(line: &Line) -> String {
    let name = line.name();
    let reported = match line {
        Line::Drop(at) => format!(
            "{name}   {} {} by {} {}",
            at.packet.of(&at.source),
            shown_reason(&at.reason),
            dropper(at.rule.as_deref(), at.rule_name.as_deref(), &at.reason),
            packet(&at.packet)
        ),
        Line::Start(at) => format!(
            "{name}  {} {} by {} {}",
            at.name(),
            shown_reason(&at.reason),
            at.title(),
            packet(&at.last)
        ),
        Line::Still(at) | Line::End(at) => format!(
            "{name:5}  {} {} by {} {} s, {} reported",
            at.name(),
            shown_reason(&at.reason),
            at.title(),
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
    clean(&reported) + "\n"
}

/// `udp 40000>53 60 bytes eth0`, and `out udp ...` of a packet on its way out.
pub fn packet(packet: &Sample) -> String {
    let protocol = match packet.protocol {
        Some(1) => "icmp ".to_owned(),
        Some(6) => "tcp ".to_owned(),
        Some(17) => "udp ".to_owned(),
        Some(58) => "icmpv6 ".to_owned(),
        Some(other) => format!("protocol {other} "),
        None => String::new(),
    };
    let way = if packet.direction.as_deref() == Some("out") { "out " } else { "" };
    let mut text = format!("{way}{protocol}");
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

fn row(episode: &Episode, zone: &Zone) -> Vec<String> {
    let mut row = vec![episode.name(), shown_reason(&episode.reason), episode.title()];
    row.extend(zone.apart(&episode.began));
    row.extend([
        seconds(episode.seconds),
        number(episode.sampled),
        if episode.ended { "ended" } else { "ongoing" }.to_owned(),
        packet(&episode.last),
    ]);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words are those of rows of sources.
    #[test]
    fn an_episode_names_its_direction_and_what_dropped() {
        let last = Sample {
            interface: Some("eth0".to_owned()),
            direction: Some("out".to_owned()),
            bytes: 60,
            protocol: Some(17),
            source_port: Some(53),
            destination_port: Some(4000),
        };
        let episode = |rule: Option<&str>, reason: &str| Episode {
            source: "192.0.2.8".to_owned(),
            rule: rule.map(str::to_owned),
            rule_name: None,
            reason: reason.to_owned(),
            would_drop: false,
            began: "2026-11-27T13:05:00Z".to_owned(),
            seconds: 3,
            sampled: 7,
            ended: false,
            last: last.clone(),
        };
        let denied = episode(None, "denied");
        let port = episode(Some("protocol=udp destination_port=53"), "over-limit");
        let lines = [text(&Line::Start(denied.clone())), text(&Line::End(port.clone()))];
        assert_eq!(
            lines,
            [
                "start  192.0.2.8 out denied by deny list out udp 53>4000 60 bytes eth0\n",
                "end    192.0.2.8 out over-limit by 53/udp 3 s, 7 reported\n",
            ]
        );
        let episodes = vec![denied, port];
        let table = crate::render::text(&Events { episodes, ..Events::default() });
        let words = |line: &str| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = table.lines().map(words).collect();
        assert_eq!(lines[1..], ["192.0.2.8 out denied deny", "192.0.2.8 out over-limit 53/udp"]);
    }
}
