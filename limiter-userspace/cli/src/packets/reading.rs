//! Packets that a command reads from captures, or makes, one after the other.

pub(crate) mod access_log;
pub(crate) mod left_out;
mod merge;
mod times;

use std::path::{Path, PathBuf};

use limiter_replay::explain::{CaptureError, Captured, Own};
use limiter_replay::load::parse;
use limiter_text::plain::clean;

use super::progress::{INTERRUPTED, Progress};
use crate::failure::Failure;
use merge::Merged;
pub(crate) use times::{AS_FRAMES, AS_ONE, Lengths, Times};

/// Remarks about captures, and the reason why they were not read to the end, if they were not.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// Lines for people: packets that were left out, and files.
    pub(crate) notes: Vec<String>,
    pub(crate) lengths: Lengths,
    /// Packets, or requests, that were passed on.
    pub(crate) packets: u64,
    /// True if Ctrl-C ended the reading.
    pub(crate) interrupted: bool,
    /// Error that ended a capture before its end. Of several captures, the last error; the others
    /// are among the notes.
    pub(crate) stopped: Option<String>,
}

impl Read {
    /// Notes an error that ended a capture.
    fn stop(&mut self, error: &CaptureError) {
        self.notes.extend(self.stopped.replace(clean(&error.to_string())));
    }
}

/// Passes on the incoming packets of captures, merged by their times. A capture that is cut off is
/// read as far as it goes.
///
/// # Errors
///
/// When a capture cannot be read at all, or `to` fails.
pub(crate) fn captures(
    files: &[PathBuf],
    own: &Own,
    mut to: impl FnMut(&Captured) -> Result<(), Failure>,
) -> Result<Read, Failure> {
    let mut read = Read::default();
    let mut merged = Merged::begin(listed(files)?, own, &mut read)?;
    let mut progress = Progress::begin(true, "packets");
    let mut times = Times::default();
    let mut lengths = Lengths::default();
    while let Some(packet) = merged.next(&mut read) {
        if !progress.goes_on(read.packets + 1, merged.percent()) {
            read.interrupted = true;
            read.notes.push(INTERRUPTED.to_owned());
            break;
        }
        times.add(packet.nanos);
        lengths.add(packet.length);
        to(&packet)?;
        read.packets += 1;
    }
    drop(progress);
    let left_out = merged.end(&mut read);
    read.notes.extend(times.lines());
    read.lengths = lengths;
    read.notes.extend(left_out::lines(&left_out));
    Ok(read)
}

/// Passes on the packets of a load.
///
/// # Errors
///
/// When the file is wrong, or `to` fails.
pub(crate) fn load(
    file: &Path,
    mut to: impl FnMut(&Captured) -> Result<(), Failure>,
) -> Result<Read, Failure> {
    let name = clean(&file.display().to_string());
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::Replay(format!("{name}: {error}: name a load, a YAML file that you may read"))
    })?;
    let load = parse(&name, &text)?;
    let mut progress = Progress::begin(true, "packets");
    let mut read = Read::default();
    for packet in load.packets() {
        if !progress.goes_on(packet.number, None) {
            read.interrupted = true;
            read.notes.push(INTERRUPTED.to_owned());
            break;
        }
        to(&packet)?;
        read.packets += 1;
    }
    Ok(read)
}

struct Listed {
    path: PathBuf,
    of_directory: bool,
}

/// The files that are meant: those of a directory in the order of their names, without its
/// subdirectories.
fn listed(paths: &[PathBuf]) -> Result<Vec<Listed>, Failure> {
    let mut listed = Vec::new();
    for path in paths {
        if !path.is_dir() {
            listed.push(Listed { path: path.clone(), of_directory: false });
            continue;
        }
        let mut files = files(path)
            .map_err(|source| CaptureError::Read { file: path.display().to_string(), source })?;
        files.sort();
        if files.is_empty() {
            let what = "no file is in it: name a directory of captures";
            return Err(Failure::Replay(format!("{}: {what}", clean(&path.display().to_string()))));
        }
        listed.extend(files.into_iter().map(|path| Listed { path, of_directory: true }));
    }
    Ok(listed)
}

fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}
