//! `limiter capture`: packets as the program judged them, as pcapng.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use limiter_api::arguments::{interval, seconds};
use limiter_api::capture::{AskCapture, CaptureReport, CapturedVerdict, Captures, NUMBER};
use limiter_api::client::{Client, ClientError};
use limiter_api::render;
use limiter_common::wire::MAX_SNAP;
use limiter_daemon::own_files;
use limiter_decision::event::MAX_PER_SECOND;
use limiter_text::stderr::say;

use super::blocks::{Blocks, is_packet};
use super::ticker::Ticker;
use crate::answer::Answer;
use crate::failure::Failure;
use crate::shell::completion_values;
use crate::shell::hangup::nobody_reads;

const CAPTURE: &str = "/v1/capture";

/// File that stands for standard output.
const STDOUT: &str = "-";

/// Arguments of `capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Each packet has its verdict, its reason and the name of the rule in a \
                        comment: Wireshark shows them, and finds them with `frame.comment \
                        contains \"over-limit\"`. Packets are as they came in, before a mark or \
                        an answer changed them. tcpdump on a limited interface sees only what \
                        XDP let pass.\nIt ends by its count or time, by Ctrl-C, by \
                        `limiter capture --stop`, or when nobody reads any more. There is one \
                        capture or observation at a time. What the budget has no room for is not \
                        reported, and counted: at the end, and in the file's statistics. No verdict \
                        waits for it.")]
pub(crate) struct Ask {
    /// Only packets that were dropped
    #[arg(long, conflicts_with = "passed")]
    dropped: bool,
    /// Only packets that passed
    #[arg(long)]
    passed: bool,
    /// Only packets that this rule dropped or, of a rule by source alone, let pass: its name, or
    /// its keys as `limiter list` shows them
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Only packets of this address or prefix
    #[arg(long, value_name = "ADDRESS|PREFIX", add = completion_values::sources())]
    source: Option<String>,
    /// Only packets with this reason, as in `limiter stats`
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// The file to write, in the place of what it was; `-` for standard output
    #[arg(short = 'w', long = "write", value_name = "FILE", default_value = STDOUT)]
    write: PathBuf,
    /// Bytes of each packet
    #[arg(
        long, value_name = "BYTES", default_value_t = MAX_SNAP,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_SNAP)),
    )]
    snap: u32,
    /// End after so many packets
    #[arg(long, value_name = "N", value_parser = packets)]
    count: Option<NonZeroU64>,
    /// End after this time, as in 30s or 5m
    #[arg(long = "for", value_name = "TIME", value_parser = interval)]
    time: Option<Duration>,
    /// Packets that each CPU may report a second, as in 5000/s, with a quarter of a second's worth
    /// at once
    #[arg(long, value_name = "N/s", default_value = "10000/s", value_parser = budget)]
    rate_budget: NonZeroU32,
    /// End the capture or observation that is under way, whoever began it; twice, at once
    #[arg(long, exclusive = true)]
    stop: bool,
}

impl Ask {
    /// True if the packets go to standard output.
    pub(crate) fn is_piped(&self) -> bool {
        !self.stop && self.write.as_os_str() == STDOUT
    }
}

fn packets(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_malformed| "give a whole number of at least 1".to_owned())
}

/// A rate of packets: `N/s` or `N`.
pub(crate) fn budget(text: &str) -> Result<NonZeroU32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let rate = number.parse::<NonZeroU32>().ok().filter(|rate| rate.get() <= MAX_PER_SECOND);
    rate.ok_or_else(|| format!("give packets a second, from 1/s to {MAX_PER_SECOND}/s"))
}

/// Captures until its end; writes what was reported to standard error.
pub(crate) fn capture(client: &Client, ask: &Ask) -> Result<Answer, Failure> {
    if ask.stop {
        let report: CaptureReport = client.delete(CAPTURE, &())?;
        return Ok(Answer { errors: report_lines(&report), ..Answer::default() });
    }
    let verdict = match (ask.dropped, ask.passed) {
        (true, _) => Some(CapturedVerdict::Dropped),
        (_, true) => Some(CapturedVerdict::Passed),
        _ => None,
    };
    let asked = AskCapture {
        verdict,
        rule: ask.rule.clone(),
        source: ask.source.clone(),
        reason: ask.reason.clone(),
        snap: Some(ask.snap),
        count: ask.count.map(NonZeroU64::get),
        seconds: ask.time.map(seconds),
        per_second: Some(ask.rate_budget.get()),
        share: None,
    };
    let mut to = Target::of(&ask.write)?;
    let ticker = Ticker::begin(ask.time, !ask.is_piped());
    let mut blocks = Blocks::default();
    let read = read(client, &asked, |part| {
        to.write(part)?;
        blocks.add(part, |block| {
            ticker.add(u64::from(is_packet(block)));
            Ok(())
        })
    });
    drop(ticker);
    let report = read.map_err(|failure| to.kept(failure))?;
    let errors = report.map_or_else(Vec::new, |report| report_lines(&report));
    Ok(Answer { errors, ..Answer::default() })
}

pub(crate) fn report_lines(report: &CaptureReport) -> Vec<String> {
    render::text(report).lines().map(str::to_owned).collect()
}

/// Reads a capture to its end, and asks what it reported; nothing if a reader of this command's
/// output went away.
pub(crate) fn read(
    client: &Client,
    asked: &AskCapture,
    mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<Option<CaptureReport>, Failure> {
    let mut written: Option<Result<(), Failure>> = None;
    let reported = client.stream(CAPTURE, asked, NUMBER, |part| {
        let result = each(part);
        let goes_on = result.is_ok();
        written = Some(result);
        goes_on
    });
    let number = match (reported, written) {
        (_, Some(Err(Failure::Output(error)))) if nobody_reads(&error) => return Ok(None),
        (_, Some(Err(failure))) => return Err(failure),
        (Ok(number), _) => number,
        // The answer had begun.
        (Err(_), Some(Ok(()))) => return Err(Failure::CutOff),
        (Err(error), None) => return Err(error.into()),
    };
    let Captures { running, last } = match client.get(CAPTURE) {
        Ok(captures) => captures,
        Err(error) if error.no_daemon() => return Err(Failure::CutOff),
        // A daemon that ended with the request in its queue.
        Err(ClientError::Protocol { .. } | ClientError::CutOff(_)) => {
            return Err(Failure::CutOff);
        }
        Err(error) => return Err(error.into()),
    };
    // Another one may have begun by now.
    Ok([last, running].into_iter().flatten().find(|report| Some(report.number) == number))
}

/// Destination of a capture: nothing of it is changed before the daemon has taken the request.
#[derive(Debug)]
enum Target {
    Stdout,
    Path(PathBuf),
    File(PathBuf, File),
}

impl Target {
    fn of(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() != STDOUT {
            return Ok(match pipe(path)? {
                Some(pipe) => Self::File(path.to_owned(), pipe),
                None => Self::Path(path.to_owned()),
            });
        }
        if io::stdout().is_terminal() {
            return Err(Failure::Binary);
        }
        Ok(Self::Stdout)
    }

    /// The failure, with the file if there is one.
    fn kept(&self, failure: Failure) -> Failure {
        match self {
            Self::File(file, _) => kept(failure, "what came before", file),
            Self::Stdout | Self::Path(_) => failure,
        }
    }

    fn write(&mut self, part: &[u8]) -> Result<(), Failure> {
        if let Self::Path(path) = self {
            *self = Self::File(path.clone(), create(path)?);
        }
        match self {
            Self::File(path, file) => file.write_all(part).map_err(|error| unwritten(path, &error)),
            Self::Stdout | Self::Path(_) => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(part).and_then(|()| stdout.flush()).map_err(Failure::Output)
            }
        }
    }
}

/// Creates a file that nobody else may read, in the place of an old one: it has other people's
/// packets. A pipe or a device is written to as it is, if it belongs to nobody else.
pub(crate) fn create(path: &Path) -> Result<File, Failure> {
    let made = match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => special(path),
        _ => own_files::create(path),
    };
    made.map_err(|error| unwritten(path, &error))
}

/// Opens a named pipe, once somebody reads it: there is one capture at a time, and one that waits
/// for its reader would keep others out. `None` for anything but a pipe.
fn pipe(path: &Path) -> Result<Option<File>, Failure> {
    if !fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        return Ok(None);
    }
    say(format_args!("limiter: the capture begins when somebody reads {}", path.display()));
    special(path).map(Some).map_err(|error| unwritten(path, &error))
}

/// Opens something that is no regular file.
fn special(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).open(path)?;
    let owner = file.metadata()?.uid();
    if [0, rustix::process::geteuid().as_raw()].contains(&owner) {
        return Ok(file);
    }
    let what = "it is a pipe or device of another user, who would read the packets; if that is \
                meant, write to standard output (`-w - > FILE`)";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// A failure that leaves a file.
pub(crate) fn kept(failure: Failure, what: &'static str, file: &Path) -> Failure {
    Failure::Kept { failure: Box::new(failure), what, file: file.to_owned() }
}

pub(crate) fn unwritten(path: &Path, error: &io::Error) -> Failure {
    let remedy = "name a file in a directory that can be written to and has room";
    Failure::Export(format!("cannot write {}: {error}: {remedy}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_packets_a_second() {
        assert_eq!(budget("500/s").map(NonZeroU32::get), Ok(500));
        assert_eq!(budget("500").map(NonZeroU32::get), Ok(500));
        for wrong in ["0/s", "", "5/min", "-1", "1000001/s"] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
    }
}
