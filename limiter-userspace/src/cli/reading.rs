//! Packets that a command reads from captures, or makes, one after the other.

use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::progress::{INTERRUPTED, Progress};
use crate::explain::{Capture, CaptureError, Captured};
use crate::replay::load::parse;
use crate::rules::plain::clean;

/// Remarks about captures, and the reason why they were not read to the end, if they were not.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Lines for people: packets that were left out, and files.
    pub(super) notes: Vec<String>,
    /// Packets that were given on.
    pub(super) packets: u64,
    /// True if Ctrl-C ended it.
    pub(super) interrupted: bool,
    /// Error that ended a capture before its end.
    pub(super) stopped: Option<String>,
}

/// Gives the packets of captures on, all that came in. Captures are read in the order of their
/// first packets; one that is cut off is read as far as it goes.
///
/// # Errors
///
/// When a capture cannot be read at all, or `to` fails.
pub(super) fn captures(
    files: &[PathBuf],
    mut to: impl FnMut(&Captured) -> Result<(), Failure>,
) -> Result<Read, Failure> {
    let mut read = Read::default();
    let mut captures = Vec::new();
    for file in listed(files)? {
        let name = clean(&file.path.display().to_string());
        let mut capture = match Capture::open(&file.path) {
            Ok(capture) => capture,
            Err(error @ (CaptureError::NoCapture { .. } | CaptureError::Empty { .. }))
                if file.of_directory =>
            {
                read.notes.push(format!("left out: {}", clean(&error.to_string())));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match capture.next_packet() {
            Ok(first) => captures.push((first, capture, name)),
            Err(error) => read.stopped = Some(clean(&error.to_string())),
        }
    }
    captures.sort_by_key(|(first, ..)| first.as_ref().map(|packet| packet.nanos));
    let mut progress = Progress::begin(true);
    let (mut outgoing, mut seen) = (0u64, 0);
    'all: for (first, mut capture, name) in captures {
        let mut next: Result<_, CaptureError> = Ok(first);
        loop {
            match next {
                Ok(None) => break,
                Ok(Some(packet)) => {
                    seen += 1;
                    if !progress.goes_on(seen, capture.percent()) {
                        read.interrupted = true;
                        read.notes.push(INTERRUPTED.to_owned());
                        break 'all;
                    }
                    if packet.outbound {
                        outgoing += 1;
                    } else {
                        to(&packet)?;
                        read.packets += 1;
                    }
                }
                Err(error) => {
                    read.stopped = Some(clean(&error.to_string()));
                    break;
                }
            }
            next = capture.next_packet();
        }
        for (link, kind, packets) in capture.left_out() {
            read.notes.push(format!(
                "{name}: {packets} packets are of link type {link} ({kind}), and were left out"
            ));
        }
    }
    if outgoing > 0 {
        read.notes
            .push(format!("{outgoing} packets went out, as the capture says, and were left out"));
    }
    Ok(read)
}

/// Gives the packets of a load on.
///
/// # Errors
///
/// When the file is wrong, or `to` fails.
pub(super) fn load(
    file: &Path,
    mut to: impl FnMut(&Captured) -> Result<(), Failure>,
) -> Result<Read, Failure> {
    let name = clean(&file.display().to_string());
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::Replay(format!("{name}: {error}: name a load, a YAML file that you may read"))
    })?;
    let load = parse(&name, &text)?;
    let mut progress = Progress::begin(true);
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

/// The files that are meant: those of a directory in the order of their names, no directories in
/// it.
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
