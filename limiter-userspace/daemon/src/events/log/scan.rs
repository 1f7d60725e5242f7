//! Reads the log: all of it for a search, and its end when a daemon starts.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::files::{self, list};
use super::found::Found;
use super::record::Record;
use crate::disk::own_files;
use crate::events::filter::Filter;

/// Longest line: names in lines are bounded, so a longer line is damaged.
const LONGEST: u64 = 64 << 10;

/// Bytes at the end of the log that a start reads.
const END: u64 = 256 << 10;

/// Reads the log through a filter, until `gone` returns true because nobody waits any more.
pub(super) fn read(directory: &Path, filter: Filter, gone: impl Fn() -> bool) -> io::Result<Found> {
    let mut found = Found::new(filter);
    let listed = list(directory)?;
    found.trouble = odd(&listed.odd);
    for number in listed.sizes.into_keys() {
        if gone() {
            break;
        }
        // A file that was removed in the meantime was the oldest.
        let Some(file) = own_files::open(&files::path(directory, number))? else { continue };
        let damaged = lines(file, |record| found.take(record))?;
        found.damaged = found.damaged.saturating_add(damaged);
    }
    Ok(found)
}

/// Message about names of the log that are not regular files.
pub(super) fn odd(paths: &[std::path::PathBuf]) -> Option<String> {
    let (first, more) = paths.split_first()?;
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    Some(format!("{}{more}: no regular file: remove it", first.display()))
}

/// The records at the end of the log.
pub(super) fn end(directory: &Path) -> io::Result<Vec<Record>> {
    let mut left = END;
    let mut parts = Vec::new();
    for number in list(directory)?.sizes.into_keys().rev() {
        if left == 0 {
            break;
        }
        let Some(mut file) = own_files::open(&files::path(directory, number))? else { continue };
        let length = file.metadata()?.len();
        let from = length.saturating_sub(left);
        if from > 0 {
            // Seeking lands inside a line, whose rest is ignored.
            file.seek(SeekFrom::Start(from))?;
        }
        left = left.saturating_sub(length);
        let mut records = Vec::new();
        lines(file, |record| records.push(record))?;
        parts.push(records);
    }
    Ok(parts.into_iter().rev().flatten().collect())
}

/// Passes each record of a file to `take`; returns the number of unreadable lines.
fn lines(file: File, mut take: impl FnMut(Record)) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut line = Vec::new();
    let mut damaged = 0;
    loop {
        line.clear();
        if reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(damaged);
        }
        let whole = line.strip_suffix(b"\n");
        match whole.and_then(Record::read) {
            Some(record) => take(record),
            // A torn line that was ended leaves an empty line, which does not count.
            None if whole.is_some_and(<[u8]>::is_empty) => {}
            None => damaged += 1,
        }
    }
}
