//! `limiter events`, and the options of `run` that say how drops are told.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use limiter_common::event::{MAX_PER_SECOND, MIN_PER_SECOND};

use super::args::{Output, interval};
use super::failure::Failure;
use super::hangup::nobody_reads;
use super::output::shown;
use super::render::{Render, number, push, table};
use crate::control::Client;
use crate::control::api::events::{Episode, Events, Line, Sample};
use crate::daemon::{EventOptions, HookOptions, HookUrl};
use crate::rules::plain::clean;

/// What to show.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "An episode is all drops of one source by one rule for one reason. It begins \
    with its first drop, and ends when none was told for as long as `run --event-quiet` says. Drops \
    are sampled: at a high rate most are only counted, so `sampled` is less than what was dropped; \
    `limiter stats` counts them all."
)]
pub(super) struct Ask {
    /// Print a line for each sampled drop, and for each episode as it starts, goes on and ends
    #[arg(long)]
    pub(super) follow: bool,
    /// With --follow: episodes only, and no single drops
    #[arg(long, requires = "follow")]
    pub(super) episodes: bool,
}

/// How drops are told.
#[derive(Debug, clap::Args)]
pub(super) struct Telling {
    /// Drops that each CPU tells a second, with a quarter of a second's worth at once; 0 for none.
    /// All are counted
    #[arg(
        long, value_name = "N", default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_PER_SECOND)),
    )]
    events_per_second: u32,
    /// How often a line says that drops of a source go on
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = interval)]
    event_still: Duration,
    /// How long without a drop ends an episode
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = interval)]
    event_quiet: Duration,
    /// A program to run when drops of a source start, go on and end: without a shell or arguments,
    /// with JSON on its standard input and `LIMITER_EVENT`=start, still or end among its variables
    #[arg(long, value_name = "PATH")]
    hook_command: Option<PathBuf>,
    /// Where to POST the same JSON to: `http://HOST/PATH`; https is not supported
    #[arg(long, value_name = "URL")]
    hook_url: Option<HookUrl>,
    /// How long a call of a hook may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    hook_timeout: Duration,
}

const _: () = assert!(MIN_PER_SECOND == 1, "of which 0 is the only smaller number");

impl Telling {
    /// As the daemon takes them.
    pub(super) fn options(&self) -> EventOptions {
        EventOptions {
            per_second: NonZero::new(self.events_per_second),
            still: self.event_still,
            quiet: self.event_quiet,
            hooks: HookOptions {
                command: self.hook_command.clone(),
                url: self.hook_url.clone(),
                timeout: self.hook_timeout,
            },
        }
    }
}

/// Prints lines until the daemon ends. A reader that goes away early is no failure.
pub(super) fn follow(
    client: &Client,
    ask: &Ask,
    output: Output,
    to: &mut impl Write,
) -> Result<(), Failure> {
    let path = format!("/v1/events?follow=true&drops={}", !ask.episodes);
    let mut written: Result<(), Failure> = Ok(());
    client.follow(&path, |line| {
        written = print(line, output, to);
        written.is_ok()
    })?;
    match written {
        Err(Failure::Output(error)) if nobody_reads(&error) => Ok(()),
        written => written,
    }
}

fn print(line: &[u8], output: Output, to: &mut impl Write) -> Result<(), Failure> {
    let write = |to: &mut dyn Write, bytes: &[u8]| -> io::Result<()> {
        to.write_all(bytes)?;
        to.flush()
    };
    let text = match output {
        Output::Json => shown(&String::from_utf8_lossy(line)),
        Output::Yaml => {
            let line: serde_json::Value = serde_json::from_slice(line)?;
            output.one_of_several(&line)?.unwrap_or_default()
        }
        Output::Table => text(&serde_json::from_slice::<Line>(line)?),
    };
    write(to, text.as_bytes()).map_err(Failure::Output)
}

/// One line for people.
pub(super) fn text(line: &Line) -> String {
    let rule = |rule: &Option<String>| rule.clone().unwrap_or_else(|| "-".to_owned());
    let name = line.name();
    let told = match line {
        Line::Drop(at) => format!(
            "{name}   {} {} rule {} {}",
            at.source,
            at.reason,
            rule(&at.rule),
            packet(&at.packet)
        ),
        Line::Start(at) => format!(
            "{name}  {} {} rule {} {}",
            at.source,
            at.reason,
            rule(&at.rule),
            packet(&at.last)
        ),
        Line::Still(at) | Line::End(at) => format!(
            "{name:5}  {} {} rule {} {} s, {} sampled",
            at.source,
            at.reason,
            rule(&at.rule),
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

fn row(episode: &Episode) -> [String; 8] {
    [
        episode.source.clone(),
        episode.reason.clone(),
        episode.rule.clone().unwrap_or_else(|| "-".to_owned()),
        episode.began.clone(),
        number(episode.seconds),
        number(episode.sampled),
        if episode.ended { "ended" } else { "goes on" }.to_owned(),
        packet(&episode.last),
    ]
}
