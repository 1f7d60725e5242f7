//! From the text to rules: the items of a large file in several threads side by side.

use std::iter;
use std::panic::resume_unwind;
use std::thread;

use super::RuleFile;
use super::check::{self, Checked, Failure};
use super::items::{Divided, HEAD, Item};
use super::placed::Places;
use super::raw;

/// Smaller files are not worth dividing.
const SMALLEST: usize = 64 << 10;

/// More threads would hold up the rest of the machine.
const MOST_THREADS: usize = 4;

/// Reads a rule file: what is right in it, and all that is not. What is wrong is found in a second
/// reading, with all places and in one piece.
pub(super) fn read(text: &str, max_frame: u64) -> (RuleFile, Vec<Failure>) {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let divided = if text.len() < SMALLEST { None } else { Divided::of(text) };
    let quick = || {
        let (file, failures) = whole(text, Places::NotInRules, max_frame);
        failures.is_empty().then_some(file)
    };
    divided
        .map_or_else(quick, |divided| side_by_side(&divided, threads, max_frame))
        .map_or_else(|| whole(text, Places::All, max_frame), |file| (file, Vec::new()))
}

/// Reads a file in one piece.
fn whole(text: &str, places: Places, max_frame: u64) -> (RuleFile, Vec<Failure>) {
    let file = match raw::read(text, places) {
        Ok(file) => file,
        Err(failure) => return (RuleFile::default(), vec![failure]),
    };
    let Checked { file: checked, mut failures, .. } = check::check(&file, max_frame);
    if failures.is_empty() {
        failures.extend(check::says_something(&file).err());
    }
    (checked, failures)
}

/// Reads a text that is a file of its own; `None` when anything is wrong with it.
fn piece(text: &str, places: Places, max_frame: u64) -> Option<RuleFile> {
    let Checked { file, failures, .. } = check::check(&raw::read(text, places).ok()?, max_frame);
    failures.is_empty().then_some(file)
}

/// The items of a file, read in several threads and put together. `None` when something is wrong
/// with one, or they do not go together.
fn side_by_side(divided: &Divided<'_>, threads: usize, max_frame: u64) -> Option<RuleFile> {
    let Divided { head, items } = divided;
    let mut parts = items.chunks(items.len().div_ceil(threads.max(1)).max(1));
    let first = parts.next()?;
    thread::scope(|scope| {
        let threads: Vec<_> = parts
            .map(|part| {
                thread::Builder::new().spawn_scoped(scope, move || stretch(part, max_frame))
            })
            .collect();
        let head = piece(head, Places::NotInRules, max_frame);
        let mut file = head.zip(stretch(first, max_frame)).and_then(joined);
        for thread in threads {
            let part = match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // The system has no thread left.
                Err(_) => None,
            };
            file = file.zip(part).and_then(joined);
        }
        file
    })
}

/// Items that follow each other, read as a file of their own.
fn stretch(items: &[Item<'_>], max_frame: u64) -> Option<RuleFile> {
    let Some(first) = items.first() else {
        return Some(RuleFile::default());
    };
    let texts = items.iter().map(|item| item.text);
    let text: String = iter::once(HEAD).chain(texts).collect();
    let mut file = piece(&text, Places::NotInRules, max_frame)?;
    for place in file.places.values_mut() {
        // Their first line is the second one there.
        place.line = (place.line + first.line).checked_sub(2)?;
    }
    Some(file)
}

/// A file and the next part of it; `None` when one has what the other has.
fn joined((mut file, part): (RuleFile, RuleFile)) -> Option<RuleFile> {
    let RuleFile { domain: None, rules, places, no_rules_meant: _ } = part else {
        return None;
    };
    let together = file.places.len() + places.len();
    file.places.extend(places);
    file.rules.rules.extend(rules.rules);
    let fits = file.rules.rules.len() <= check::MAX_RULES;
    (file.places.len() == together && fits).then_some(file)
}

#[cfg(test)]
mod tests;
