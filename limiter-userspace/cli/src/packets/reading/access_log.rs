//! Requests that a command reads from access logs, one after the other.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};

use limiter_api::render::{counted, duration, number};
use limiter_replay::access_log::{Logged, next_line, parse};
use limiter_text::plain::clean;

use super::Read;
use crate::failure::Failure;
use crate::packets::progress::{INTERRUPTED, Progress};

/// First bytes of a file that gzip wrote.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Arguments that name access logs.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct LogArguments {
    /// An access log of a web server or proxy: in the combined format, or JSON lines as of Envoy,
    /// Caddy and Traefik; may be repeated, the oldest first; `-` for standard input
    #[arg(long = "access-log", id = "access_log", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// With --access-log: the field of a JSON line that has the `time`, the `client`, the `path`
    /// or a header of `check`, as in `x-api-key=request.headers.X-Api-Key`; may be repeated
    #[arg(long = "field", value_name = "NAME=FIELD", value_parser = field, requires = "access_log")]
    fields: Vec<(String, String)>,
    /// With --access-log: only requests whose path begins so
    #[arg(long, value_name = "PREFIX", requires = "access_log")]
    path: Option<String>,
}

/// `NAME=FIELD`.
fn field(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, field)) if !name.is_empty() && !field.is_empty() => {
            Ok((name.to_ascii_lowercase(), field.to_owned()))
        }
        _ => Err("write NAME=FIELD, as in client=request.client_ip".to_owned()),
    }
}

/// What is odd about the lines that were read.
#[derive(Debug, Default)]
struct Odd {
    /// Lines that are no requests, and the first of them.
    refused: u64,
    first: Option<String>,
    /// Lines that are older than one before, and by how much at most, in nanoseconds.
    back: u64,
    most_back: u64,
    /// True if a time has a part of a second.
    fine: bool,
}

impl LogArguments {
    /// The logs in a few words.
    pub(crate) fn origin(&self) -> String {
        let files = self.files.iter().map(|file| file.display().to_string());
        let files = files.collect::<Vec<_>>().join(", ");
        self.path.as_ref().map_or(files.clone(), |path| format!("{files}, paths from {path}"))
    }

    /// Passes on the requests with their times in nanoseconds since 1970. A time before that of an
    /// earlier line counts as that one.
    ///
    /// # Errors
    ///
    /// When a log cannot be read at all, no line is a request, or `to` fails.
    pub(crate) fn read(
        &self,
        mut to: impl FnMut(&Logged<'_>, u64) -> Result<(), Failure>,
    ) -> Result<Read, Failure> {
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |of| of.len());
        let all: u64 = self.files.iter().map(size).sum();
        let (mut read, mut odd) = (Read::default(), Odd::default());
        let (mut bytes, mut lines, mut latest) = (0u64, 0u64, 0u64);
        let mut progress = Progress::begin(true, "requests");
        'files: for path in &self.files {
            let name = clean(&path.display().to_string());
            let mut input = opened(path, &name)?;
            let mut line = Vec::new();
            for at in 1u64.. {
                match next_line(&mut input, &mut line) {
                    Ok(0) => break,
                    Ok(of_line) => bytes = bytes.saturating_add(of_line),
                    Err(error) => {
                        read.stopped = Some(format!("{name}:{at}: {error}: the rest is not read"));
                        break 'files;
                    }
                }
                lines += 1;
                let percent = (all > 0).then(|| (bytes.saturating_mul(100) / all).min(100));
                if !progress.goes_on(lines, percent) {
                    read.interrupted = true;
                    read.notes.push(INTERRUPTED.to_owned());
                    break 'files;
                }
                let logged = match parse(&line, &self.fields) {
                    Ok(logged) => logged,
                    Err(why) => {
                        odd.refused += 1;
                        odd.first.get_or_insert_with(|| format!("{name}:{at}: {why}"));
                        continue;
                    }
                };
                let begins = |path: &String| {
                    logged.get("path").is_some_and(|of| of.starts_with(path.as_str()))
                };
                if !self.path.as_ref().is_none_or(begins) {
                    continue;
                }
                odd.fine |= logged.nanos % 1_000_000_000 != 0;
                if logged.nanos < latest {
                    odd.back += 1;
                    odd.most_back = odd.most_back.max(latest - logged.nanos);
                }
                latest = latest.max(logged.nanos);
                to(&logged, latest)?;
                read.packets += 1;
            }
        }
        drop(progress);
        if read.packets == 0 && read.stopped.is_none() && !read.interrupted {
            return Err(Failure::Replay(self.no_request(&odd)));
        }
        read.notes.extend(odd.notes());
        Ok(read)
    }

    fn no_request(&self, odd: &Odd) -> String {
        let files = clean(&self.origin());
        match &odd.first {
            Some(first) => format!("{files}: no line is a request; {first}"),
            None if self.path.is_some() => {
                format!("{files}: no request has such a path: give another --path")
            }
            None => format!("{files}: it is empty: name a log with requests"),
        }
    }
}

impl Odd {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(first) = &self.first {
            let refused = number(self.refused);
            notes
                .push(format!("lines that are no requests, and were left out: {refused}; {first}"));
        }
        if self.back > 0 {
            notes.push(format!(
                "{} than one before, by {} at most: the time of that one counts",
                counted(self.back, "line is older", "lines are older"),
                duration(self.most_back)
            ));
        }
        if !self.fine {
            notes.push(
                "the log has whole seconds: the requests of a second count as made at once, so a \
                 shorter burst may do, and no rule of many a second can be judged"
                    .to_owned(),
            );
        }
        notes
    }
}

/// A log, from its begin.
fn opened(path: &Path, name: &str) -> Result<Box<dyn BufRead>, Failure> {
    let failed = |error: &io::Error| {
        Failure::Replay(format!("{name}: {error}: name an access log that you may read"))
    };
    let mut input: Box<dyn BufRead> = if path == Path::new("-") {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            let what = "standard input is a terminal: pipe an access log into it, as in `zcat \
                        access.log.1.gz | limiter tune --access-log -`";
            return Err(Failure::Replay(what.to_owned()));
        }
        Box::new(stdin.lock())
    } else {
        let file = File::open(path).map_err(|error| failed(&error))?;
        Box::new(BufReader::with_capacity(1 << 16, file))
    };
    if input.fill_buf().map_err(|error| failed(&error))?.starts_with(&GZIP) {
        let what = format!("it is compressed: `zcat {name} | limiter ... --access-log -`");
        return Err(Failure::Replay(format!("{name}: {what}")));
    }
    Ok(input)
}
