//! From the text to rules: a large file in pieces, side by side.

use std::borrow::Cow;
use std::panic::resume_unwind;
use std::thread;

use super::RuleFile;
use super::check::{self, Failure};
use super::pieces::pieces;
use super::placed::Places;
use super::raw;

/// The most pieces: more threads would hold up the rest of the machine.
const MOST_PIECES: usize = 4;

/// Reads a rule file. What is wrong with it is found in a second reading, with all places and in one piece.
pub(super) fn read(text: &str, max_frame: u64) -> Result<RuleFile, Failure> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_PIECES);
    match side_by_side(&pieces(text, threads), max_frame) {
        Some(file) => Ok(file),
        None => piece(text, Places::All, max_frame),
    }
}

fn piece(text: &str, places: Places, max_frame: u64) -> Result<RuleFile, Failure> {
    check::check(&raw::read(text, places)?, max_frame)
}

/// The pieces of a file, read each in a thread of its own and put together; `None` when something is wrong with one, or
/// they do not go together.
fn side_by_side(pieces: &[Cow<'_, str>], max_frame: u64) -> Option<RuleFile> {
    let (first, others) = pieces.split_first()?;
    let quick = |text: &str| piece(text, Places::NotInRules, max_frame).ok();
    thread::scope(|scope| {
        let threads: Vec<_> = others
            .iter()
            .map(|text| thread::Builder::new().spawn_scoped(scope, || quick(text)))
            .collect();
        let mut file = quick(first);
        for thread in threads {
            let part = match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // The system has no thread left.
                Err(_) => None,
            };
            file = file.zip(part).and_then(|(file, part)| joined(file, part));
        }
        file
    })
}

/// A file and the next piece of it; `None` when one has what the other has.
fn joined(mut file: RuleFile, part: RuleFile) -> Option<RuleFile> {
    let RuleFile { domain: None, rules, mut places } = part else {
        return None;
    };
    let together = file.places.len() + places.len();
    file.places.append(&mut places);
    file.rules.rules.extend(rules.rules);
    file.rules.keyed.extend(rules.keyed);
    let count = file.rules.rules.len() + file.rules.keyed.len();
    (file.places.len() == together && count <= check::MAX_RULES).then_some(file)
}

#[cfg(test)]
mod tests;
