//! From the text to rules: the items of a large file in several threads side by side.

use std::panic::resume_unwind;
use std::thread;

use serde_saphyr::{Options, alias_limits, budget, options};

use super::check::{self, Checked, Failure};
use super::error::Problem;
use super::items::{Divided, HEAD, Item};
use super::place::Place;
use super::placed::{Places, reading_text};
use super::rule_file::RuleFile;
use super::shape::File;
use crate::dialect::Dialect;

/// Smaller files are not worth dividing.
const SMALLEST: usize = 64 << 10;

/// More threads would hold up the rest of the machine.
const MOST_THREADS: usize = 4;

/// The most items that are read one by one for what is wrong with each.
const MOST_SINGLE: usize = 1024;

/// Items whose fields are in memory at one time, in each thread.
const BATCH: usize = 128;

/// Reads a rule file: what is right in it, and all its mistakes. Mistakes are found in a second
/// reading, with all places and in one piece.
pub(super) fn read(text: &str, max_frame: u64) -> (RuleFile, Vec<Failure>) {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let divided = if text.len() < SMALLEST { None } else { Divided::of(text) };
    let quick = || {
        let (file, failures) = whole(text, Places::NotInRules, max_frame);
        failures.is_empty().then_some(file)
    };
    divided
        .map_or_else(quick, |divided| side_by_side(&divided, threads, BATCH, max_frame))
        .map_or_else(|| whole(text, Places::All, max_frame), |file| (file, Vec::new()))
}

/// Reads a file in one piece.
fn whole(text: &str, places: Places, max_frame: u64) -> (RuleFile, Vec<Failure>) {
    let file = match fields(text, places) {
        Ok(file) => file,
        Err(failure) => return (RuleFile::default(), item_by_item(text, failure, max_frame)),
    };
    let Checked { file: checked, mut failures, .. } = check::check(&file, max_frame);
    if failures.is_empty() {
        failures.extend(check::says_something(&file).err());
    }
    (checked, failures)
}

/// Failures of a file that cannot be read in one piece, for example because several items have an
/// unknown field: the first one, and those of the other items.
fn item_by_item(text: &str, first: Failure, max_frame: u64) -> Vec<Failure> {
    // An anchor may stand in another item.
    let divided = if text.contains('&') { None } else { Divided::of(text) };
    let Some(divided) = divided.filter(|divided| divided.items.len() <= MOST_SINGLE) else {
        return vec![first];
    };
    let mut checked = Checked::new(max_frame);
    let mut unread = Vec::new();
    for item in &divided.items {
        // Each is read as a file of its own, at its own lines.
        let before = usize::try_from(item.line.saturating_sub(2)).unwrap_or(0);
        match fields(&format!("{}{HEAD}{}", "\n".repeat(before), item.text), Places::All) {
            Ok(file) => checked.add(&file),
            Err(failure) => unread.push(failure),
        }
    }
    // Items that were divided amiss, as where quotes are open, fail in other ways.
    if unread.first() != Some(&first) {
        return vec![first];
    }
    let mut failures = unread;
    failures.append(&mut checked.failures);
    failures.sort_by_key(|(place, _)| *place);
    failures
}

/// Reads a text that is a file of its own; `None` when anything is wrong with it.
fn piece(text: &str, places: Places, max_frame: u64) -> Option<RuleFile> {
    let Checked { file, failures, .. } = check::check(&fields(text, places).ok()?, max_frame);
    failures.is_empty().then_some(file)
}

/// The items of a file, read in several threads and put together; `batch` is how many a thread
/// reads at once. `None` if one is wrong, or if they do not go together.
fn side_by_side(
    divided: &Divided<'_>,
    threads: usize,
    batch: usize,
    max_frame: u64,
) -> Option<RuleFile> {
    let Divided { head, items } = divided;
    let mut parts = items.chunks(items.len().div_ceil(threads.max(1)).max(1));
    let first = parts.next()?;
    thread::scope(|scope| {
        let threads: Vec<_> = parts
            .map(|part| {
                let read = move || stretch(part, batch, max_frame);
                thread::Builder::new().spawn_scoped(scope, read)
            })
            .collect();
        let head = piece(head, Places::NotInRules, max_frame);
        let mut file = head.zip(stretch(first, batch, max_frame)).and_then(joined);
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

/// Items that follow each other. The fields of an item take ten times the room of its rule, so only
/// a few items are there with all of them at one time.
fn stretch(items: &[Item<'_>], batch: usize, max_frame: u64) -> Option<RuleFile> {
    let mut checked = Checked::new(max_frame);
    let mut text = String::new();
    for batch in items.chunks(batch.max(1)) {
        // Each is read as a file of its own: its first line is the second one there.
        checked.lines_before = batch.first()?.line.checked_sub(2)?;
        text.clear();
        text.push_str(HEAD);
        text.extend(batch.iter().map(|item| item.text));
        checked.add(&fields(&text, Places::NotInRules).ok()?);
        if !checked.failures.is_empty() {
            return None;
        }
    }
    Some(checked.file)
}

/// Joins a file and its next part; `None` if they do not go together.
fn joined((mut file, part): (RuleFile, RuleFile)) -> Option<RuleFile> {
    let RuleFile { domain: None, rules, mut places, no_rules_meant: _, has_requests: false } = part
    else {
        return None;
    };
    let together = file.places.len() + places.len();
    file.places.append(&mut places);
    file.rules.rules.extend(rules.rules);
    let fits = file.rules.rules.len() <= check::MAX_RULES;
    (file.places.len() == together && fits).then_some(file)
}

/// Reads the fields of a file, and checks nothing.
fn fields(text: &str, places: Places) -> Result<File, (Option<Place>, Problem)> {
    let read = || serde_saphyr::from_str_with_options::<Option<File>>(text, limits());
    reading_text(text, places, read)
        .map(Option::unwrap_or_default)
        .map_err(|error| Problem::from_yaml(&error, Dialect::Packets))
}

/// A file of 16 MiB holds at most some 200,000 rules of 20 nodes each. One anchored `rate_limit`
/// may serve them all, but aliases inside aliases end here. Nine keys can be nested, two levels
/// each.
pub(super) fn limits() -> Options {
    options! {
        budget: budget! {
            max_nodes: 8_000_000,
            max_events: 16_000_000,
            max_depth: 32,
            max_documents: 2,
            max_aliases: 500_000,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: alias_limits! {
            max_total_replayed_events: 8_000_000,
            max_replay_stack_depth: 4,
        },
        strict_booleans: true,
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests;
