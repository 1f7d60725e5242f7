//! `limiter events`, and the options of `run` that say how drops are told.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use limiter_decision::event::{MAX_PER_SECOND, MIN_PER_SECOND};

use super::args::{Output, interval};
use super::failure::Failure;
use super::hangup::nobody_reads;
use super::output::shown;
use crate::control::Client;
use crate::daemon::api::events::{Line, text};
use crate::daemon::{EventOptions, HookOptions, HookUrl};

/// Arguments of `events`.
#[derive(Debug, clap::Args)]
#[command(after_help = "An episode is all drops of one source by one rule for one reason. It \
                        begins with its first drop, and ends when none was told for as long as \
                        `run --event-quiet` says. Drops are sampled: at a high rate most are \
                        only counted, so `sampled` is less than what was dropped; `limiter \
                        stats` counts them all.")]
pub(super) struct Ask {
    /// Print a line for each sampled drop, and for each episode as it starts, goes on and ends
    #[arg(long)]
    pub(super) follow: bool,
    /// With --follow: episodes only, and no single drops
    #[arg(long, requires = "follow")]
    pub(super) episodes: bool,
}

/// Options of `run` about the events of drops.
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
    /// URL to POST the same JSON to: `https://HOST/PATH` or `http://HOST/PATH`
    #[arg(long, value_name = "URL")]
    hook_url: Option<HookUrl>,
    /// How long a call of a hook may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    hook_timeout: Duration,
}

const _: () = assert!(MIN_PER_SECOND == 1, "of which 0 is the only smaller number");

impl Telling {
    /// The options in the form that the daemon takes.
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
