//! `limiter observe`: every packet of a share of the sources, for a time. Sources of which a packet
//! was missed are cut out at the end, so that those that stay were seen whole.

mod seen;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufReader, Read as _, Seek as _, Write as _};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limiter_api::arguments::{interval, seconds};
use limiter_api::capture::AskCapture;
use limiter_api::client::Client;
use limiter_api::render::{Render, line, number};
use limiter_common::wire::LEVELS;
use serde::Serialize;

use super::blocks::{Blocks, reported};
use super::capture::{budget, create, kept, read, unwritten};
use super::ticker::Ticker;
use crate::failure::Failure;

pub(crate) use seen::Seen;

/// Bytes of one read of a file.
const READ: usize = 1 << 20;

/// Outcome of an observation that missed packets of every part of the sources.
pub(crate) const NONE_WHOLE: &str = "no source was seen whole: the budget is too small for this \
                                     traffic; give a larger one with --rate-budget";

/// Arguments of `observe`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The sources are chosen by a secret hash, so that nobody can have himself \
                        left out. Of each packet the first 96 bytes are reported, with its length, \
                        its verdict and its reason: enough to judge it again, as in `limiter \
                        explain --pcap FILE --rules FILE`.\nWhere the budget is used up, half of \
                        the sources are left out, and so on: those that stay in the file were \
                        seen whole. How many that are is said at the end. Ctrl-C ends it before \
                        its time.")]
pub(crate) struct Ask {
    /// For how long, as in 10m or 1h
    #[arg(long = "for", value_name = "TIME", value_parser = interval)]
    time: Duration,
    /// Share of the sources to begin with: 1/N, where N is a power of two up to 32768
    #[arg(long, value_name = "1/N", default_value = "1/64", value_parser = share)]
    share: u32,
    /// The file to write: pcapng, in the place of what it was [default: none, only what was seen is
    /// reported]
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    write: Option<PathBuf>,
    /// Packets that each CPU may report a second, as in 5000/s, with a quarter of a second's worth
    /// at once
    #[arg(long, value_name = "N/s", default_value = "10000/s", value_parser = budget)]
    rate_budget: NonZeroU32,
}

/// `1/N`, or `1` for all.
pub(crate) fn share(text: &str) -> Result<u32, String> {
    let parts =
        if text == "1" { Some(1) } else { text.strip_prefix("1/").and_then(|n| n.parse().ok()) };
    let fits = |parts: &u32| parts.is_power_of_two() && parts.trailing_zeros() < LEVELS;
    parts.filter(fits).ok_or_else(|| "give 1/N, where N is a power of two up to 32768".to_owned())
}

#[derive(Debug, Serialize)]
pub(crate) struct Observed {
    milliseconds: u64,
    /// The share that was asked for: one in so many sources.
    asked_share: u32,
    /// The share that was seen whole, and is in the file: one in so many sources; `None` if no
    /// source was certainly seen whole.
    share: Option<u32>,
    /// Sources that were seen whole.
    sources: u64,
    packets: u64,
    /// Sources that were cut out because packets of their part of the sources were missed.
    sources_cut: u64,
    /// Packets of these that were reported.
    packets_cut: u64,
    /// Packets of the share that was asked for that were not reported: over the budget.
    over_budget: u64,
    /// Packets of that share for which there was no room.
    lost: u64,
    file: Option<PathBuf>,
}

/// Observes until the time is over, or it is ended.
pub(crate) fn observe(client: &Client, ask: &Ask) -> Result<Observed, Failure> {
    let asked = asked(ask.time, ask.share, ask.rate_budget);
    let mut blocks = Blocks::default();
    let mut seen = Seen::default();
    let mut partial: Option<(PathBuf, File)> = None;
    let ticker = Ticker::begin(Some(ask.time), true);
    let read = read(client, &asked, |part| {
        if let Some(path) = &ask.write {
            if partial.is_none() {
                let path = beside(path, PARTIAL);
                partial = Some((path.clone(), create(&path)?));
            }
            if let Some((path, file)) = &mut partial {
                file.write_all(part).map_err(|error| unwritten(path, &error))?;
            }
        }
        blocks.add(part, |block| {
            if let Some(reported) = reported(block) {
                seen.note(&reported);
                ticker.add(1);
            }
            Ok(())
        })
    });
    drop(ticker);
    let left = |failure: Failure| match &partial {
        Some((file, _)) => {
            kept(failure, "what was reported by then, of sources whole or not,", file)
        }
        None => failure,
    };
    let report = match read {
        Ok(Some(report)) => report,
        Ok(None) => return Err(left(Failure::CutOff)),
        Err(failure) => return Err(left(failure)),
    };
    let whole = report.whole_level.unwrap_or(LEVELS).max(seen.lowest());
    let (sources, packets) = seen.of(|level| level >= whole);
    let (sources_cut, packets_cut) = seen.of(|level| level < whole);
    let (sources_cut, packets_cut) =
        (sources_cut + seen.left_out().0, packets_cut + seen.left_out().1);
    if let (Some(path), Some((partial, file))) = (&ask.write, &partial) {
        let done = if packets_cut == 0 {
            // All of it stays, and takes no more room.
            fs::rename(partial, path).map_err(|error| unwritten(path, &error))
        } else {
            keep((partial, file), path, whole)
        };
        done.map_err(left)?;
    }
    Ok(Observed {
        milliseconds: report.milliseconds,
        asked_share: ask.share,
        share: (whole < LEVELS).then(|| 1 << whole),
        sources,
        packets,
        sources_cut,
        packets_cut,
        over_budget: report.over_budget,
        lost: report.lost,
        file: ask.write.clone(),
    })
}

/// The request for an observation.
pub(crate) fn asked(time: Duration, share: u32, budget: NonZeroU32) -> AskCapture {
    AskCapture {
        seconds: Some(seconds(time)),
        per_second: Some(budget.get()),
        share: Some(share),
        ..AskCapture::default()
    }
}

/// End of the name of the file that is written until it is known what stays.
const PARTIAL: &str = ".partial";

/// End of the name of the file of what stays, behind that.
const CUT: &str = ".cut";

/// The name of a file beside another one.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Writes the packets of whole levels to `path`. If that fails, `partial` stays.
fn keep((partial, file): (&Path, &File), path: &Path, whole: u32) -> Result<(), Failure> {
    let part = beside(partial, CUT);
    let done = copy((partial, file), &part, whole)
        .and_then(|()| fs::rename(&part, path).map_err(|error| unwritten(path, &error)));
    if done.is_err() {
        // A file that was not made cannot be removed, and a leftover is not worth an error.
        drop(fs::remove_file(&part));
        return done;
    }
    fs::remove_file(partial).map_err(|error| unwritten(partial, &error))
}

/// Copies the packets of whole levels.
fn copy((partial, mut file): (&Path, &File), part: &Path, whole: u32) -> Result<(), Failure> {
    let mut to = create(part)?;
    // The file that was written, whoever has its name by now.
    file.rewind().map_err(|error| unwritten(partial, &error))?;
    let mut from = BufReader::with_capacity(READ, file);
    let mut blocks = Blocks::default();
    let mut buffer = vec![0; READ];
    loop {
        let read = from.read(&mut buffer).map_err(|error| unwritten(partial, &error))?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        let mut kept = Vec::with_capacity(read);
        blocks.add(bytes, |block| {
            if reported(block).is_none_or(|reported| reported.level >= whole) {
                kept.extend_from_slice(block);
            }
            Ok(())
        })?;
        to.write_all(&kept).map_err(|error| unwritten(part, &error))?;
    }
    to.sync_all().map_err(|error| unwritten(part, &error))
}

impl Render for Observed {
    fn render(&self, text: &mut String) {
        match self.share {
            Some(share) => line(
                text,
                format_args!(
                    "{} packets of {} sources were seen whole: every packet of 1/{share} of all \
                     sources, for {} ms",
                    number(self.packets),
                    number(self.sources),
                    number(self.milliseconds)
                ),
            ),
            None => line(text, format_args!("{NONE_WHOLE}")),
        }
        if self.sources == 0 && self.sources_cut == 0 && self.asked_share > 1 {
            line(
                text,
                format_args!("of few sources none may be in the share: `--share 1` takes all"),
            );
        }
        if self.sources_cut > 0 {
            line(
                text,
                format_args!(
                    "{} sources with {} packets were cut out: packets of that part of the sources \
                     were missed, or there were more sources than are kept",
                    number(self.sources_cut),
                    number(self.packets_cut)
                ),
            );
        }
        let missed = self.over_budget + self.lost;
        if missed > 0 {
            let mut why = format!("{} packets were missed: ", number(missed));
            // Writing to a string cannot fail.
            let _: std::fmt::Result = write!(
                why,
                "{} over the budget, {} without room",
                number(self.over_budget),
                number(self.lost)
            );
            line(text, format_args!("{why}"));
        }
        if let Some(file) = &self.file {
            line(text, format_args!("written: {}", file.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_in_a_power_of_two() {
        assert_eq!(share("1/64"), Ok(64));
        assert_eq!(share("1"), Ok(1));
        for wrong in ["1/3", "2/4", "64", "1/65536", "1/0", ""] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
