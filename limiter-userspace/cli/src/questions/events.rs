//! `limiter events`, and the options of `run` that say how drops are reported.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use limiter_api::client::Client;
use limiter_api::events::{Line, text};
use limiter_api::moment::{Bound, Zone};
use limiter_daemon::{EventOptions, HookOptions, HookUrl};
use limiter_decision::event::{MAX_PER_SECOND, MIN_PER_SECOND};

use super::explain_now::escaped;
use crate::args::time::interval;
use crate::failure::Failure;
use crate::output::{Output, shown};
use crate::shell::completion_values;
use crate::shell::hangup::nobody_reads;

/// Arguments of `events`.
#[derive(Debug, clap::Args)]
#[command(after_help = "An episode is all drops of one source by one rule for one reason. It \
                        begins with its first drop, and ends when none was reported for as long as \
                        `run --event-quiet` says. Not every drop is reported: at a high rate \
                        most are only counted, so REPORTED (`sampled` in JSON) is less than \
                        what was dropped; `limiter stats` counts them all.\nWith \
                        --source, --rule, --since or --until the log on disk is searched, which \
                        a restart leaves. Times are as clocks here show them, with UTC beside. \
                        The answer says how far the log reaches, and what it does not \
                        have.")]
pub(crate) struct Ask {
    /// Print a line for each reported drop, and for each episode at its start, during it and at its
    /// end
    #[arg(long)]
    pub(crate) follow: bool,
    /// With --follow: episodes only, and no single drops
    #[arg(long, requires = "follow")]
    pub(crate) episodes: bool,
    /// Only drops of this address, or of all in this prefix
    #[arg(long, value_name = "ADDRESS|PREFIX", add = completion_values::sources())]
    source: Option<String>,
    /// Only drops by this rule: its name, or its keys as `limiter list` shows them
    #[arg(long, value_name = "NAME|KEYS")]
    rule: Option<String>,
    /// Only drops since then, from the log on disk: 14:05, "2026-11-27 14:05",
    /// 2026-11-27T14:05:00Z, or 10m, which is ten minutes ago
    #[arg(long, value_name = "TIME", value_parser = since, conflicts_with = "follow")]
    since: Option<String>,
    /// Only drops until then, likewise
    #[arg(long, value_name = "TIME", value_parser = until, conflicts_with = "follow")]
    until: Option<String>,
    /// Same as --output json
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `run` about the events of drops.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Events")]
pub(crate) struct Reporting {
    /// Drops that each CPU reports a second, with a quarter of a second's worth at once; 0 for
    /// none. All are counted
    #[arg(
        long, value_name = "N", default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_PER_SECOND)),
    )]
    events_per_second: u32,
    /// Most that the log of drops takes on disk, in MiB; 0 for none. In any flood it reaches back a
    /// day
    #[arg(
        long, value_name = "MIB", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(0..=1 << 20),
    )]
    event_log_size: u32,
    /// How often a line reports that a source is still being dropped
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = interval)]
    event_still: Duration,
    /// How long without a drop ends an episode
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = interval)]
    event_quiet: Duration,
    /// A program to run when drops of a source start, continue and end: without a shell or
    /// arguments, with JSON on its standard input and `LIMITER_EVENT`=start, still or end among its
    /// variables
    #[arg(long, value_name = "PATH")]
    hook_command: Option<PathBuf>,
    /// URL to POST the same JSON to: `https://HOST/PATH` or `http://HOST/PATH`
    #[arg(long, value_name = "URL")]
    hook_url: Option<HookUrl>,
    /// How long a call of a hook may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    hook_timeout: Duration,
}

/// The beginning of a time, in UTC.
fn since(text: &str) -> Result<String, String> {
    moment(text, Bound::Since)
}

/// The end of a time, in UTC.
fn until(text: &str) -> Result<String, String> {
    moment(text, Bound::Until)
}

fn moment(text: &str, bound: Bound) -> Result<String, String> {
    let moment = Zone::of_this_process().read(text, bound)?;
    Ok(humantime::format_rfc3339_millis(moment).to_string())
}

impl Ask {
    /// The path of the request, with what is asked for.
    pub(crate) fn path(&self) -> String {
        let mut path = "/v1/events".to_owned();
        let mut ask = |word: &str, value: &str| {
            path.push(if path.contains('?') { '&' } else { '?' });
            // Writing to a `String` cannot fail.
            let _: std::fmt::Result = write!(path, "{word}={}", escaped(value));
        };
        if self.follow {
            ask("follow", "true");
            ask("drops", if self.episodes { "false" } else { "true" });
        }
        let words = [
            ("source", &self.source),
            ("rule", &self.rule),
            ("since", &self.since),
            ("until", &self.until),
        ];
        for (word, value) in words {
            if let Some(value) = value {
                ask(word, value);
            }
        }
        path
    }
}

const _: () = assert!(MIN_PER_SECOND == 1, "of which 0 is the only smaller number");

impl Reporting {
    /// The options in the form that the daemon takes.
    pub(crate) fn options(&self) -> EventOptions {
        EventOptions {
            per_second: NonZero::new(self.events_per_second),
            still: self.event_still,
            quiet: self.event_quiet,
            hooks: HookOptions {
                command: self.hook_command.clone(),
                url: self.hook_url.clone(),
                timeout: self.hook_timeout,
            },
            log_bytes: u64::from(self.event_log_size) << 20,
        }
    }
}

/// Prints lines until the daemon ends. A reader that goes away early is no failure.
pub(crate) fn follow(
    client: &Client,
    ask: &Ask,
    output: Output,
    to: &mut impl Write,
) -> Result<(), Failure> {
    let mut written: Result<(), Failure> = Ok(());
    client.follow(&ask.path(), |line| {
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
