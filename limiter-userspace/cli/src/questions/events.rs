//! `limiter events`, and the options of `run` that say how drops are reported.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use limiter_api::arguments::interval;
use limiter_api::client::Client;
use limiter_api::events::{AskEvents, Line, text};
use limiter_daemon::web::WebUrl;
use limiter_daemon::{EventOptions, HookOptions};
use limiter_decision::event::{MAX_PER_SECOND, MIN_PER_SECOND};

use crate::failure::Failure;
use crate::output::{Output, shown};
use crate::shell::hangup::nobody_reads;

pub(crate) const PATH: &str = "/v1/events";

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
    #[command(flatten)]
    pub(crate) asked: AskEvents,
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
    hook_url: Option<WebUrl>,
    /// How long a call of a hook may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    hook_timeout: Duration,
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
    client.follow(PATH, &ask.asked, |line| {
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

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A daemon that is killed ended; it is no other program.
    #[test]
    fn lines_that_are_cut_off_end_with_the_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("limiter.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let _asked = stream.read(&mut [0; 1024]).unwrap();
            let line = "{\"event\":\"lost\",\"lines\":7}\n";
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            write!(stream, "{head}{:x}\r\n{line}\r\n", line.len()).unwrap();
        });
        let client = Client::new(socket.clone(), Duration::from_mins(1));
        let asked = AskEvents { follow: true, ..AskEvents::default() };
        let ask = Ask { asked, json: false };
        let mut printed = Vec::new();
        let failure = follow(&client, &ask, Output::Table, &mut printed).unwrap_err();
        daemon.join().unwrap();
        assert_eq!(printed, b"lost   7 lines: too slow\n");
        let words = "ended, or cut its answer off: see its log";
        assert_eq!(failure.to_string(), format!("the daemon at {} {words}", socket.display()));
    }
}
