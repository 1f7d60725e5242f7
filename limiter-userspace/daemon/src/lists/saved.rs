//! The lists on disk: `lists.json` has all entries, and `lists.journal` the changes since, one in a
//! line.
//!
//! The first line of the journal has the digest of the file that it continues, so a journal left
//! beside a newer file is recognized. A line is one change: it counts completely or, cut off by a
//! power cut, not at all.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use limiter_api::lists::ListName;
use limiter_common::time::Ticks;
use limiter_common::wire::{ListEntry, Listed};
use limiter_rules::{Selector, source_text};
use serde::{Deserialize, Serialize};

use super::entries::{Entries, Entry, after, name};
use super::reason;
use crate::disk::own_files;
use crate::disk::sealed;
use crate::disk::state_dir::{Damage, JOURNAL, LISTS, StateDir, StateError};
use crate::rule_sets::rule_files::Digest;

/// Content of `lists.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved<'a> {
    #[serde(borrow)]
    entries: Vec<SavedEntry<'a>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedEntry<'a> {
    #[serde(borrow)]
    source: Cow<'a, str>,
    list: ListName,
    /// Seconds since 1970; absent if the entry does not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    /// Seconds left when it was saved. The entry gets no more than these, because the wall clock
    /// may not be set yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    /// The program or list that wrote the entry; absent for a person.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    by: Option<Cow<'a, str>>,
}

impl SavedEntry<'_> {
    /// The form of an entry for saving; `None` if it has expired.
    pub(super) fn new(
        selector: &Selector,
        entry: &Entry,
        now: Ticks,
        wall: Duration,
    ) -> Option<Self> {
        let list = name(entry.listed.at(now)?);
        let left = entry.listed.expires().map(|at| Duration::from_nanos(at.since(now).as_nanos()));
        let until = left.map(|left| wall.saturating_add(left).as_secs());
        let left = left.map(|left| left.as_secs() + u64::from(left.subsec_nanos() > 0));
        let reason = entry.reason.as_deref().map(|reason| Cow::Owned(reason.to_owned()));
        let by = entry.by.as_deref().map(|by| Cow::Owned(by.to_owned()));
        Some(Self { source: Cow::Owned(selector.to_string()), list, until, left, reason, by })
    }
}

/// The first line of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    /// Digest of the `lists.json` that the journal continues.
    pub(super) continues: String,
}

/// A change: one of the further lines of the journal.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change<'a> {
    /// Time of the change, in seconds since 1970: entries with an earlier end have ended, whatever
    /// a clock shows later.
    pub(super) at: u64,
    /// Entries that are new or changed.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub(super) put: Vec<SavedEntry<'a>>,
    /// Sources that are no longer on a list.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gone: Vec<Cow<'a, str>>,
}

/// Entries as found on disk.
type Found = BTreeMap<Selector, FoundEntry>;

struct FoundEntry {
    list: ListName,
    /// End by the wall clock, in seconds since 1970; `None` if the entry does not end.
    until: Option<u64>,
    /// Seconds left when it was saved.
    left: u64,
    reason: Option<Arc<str>>,
    by: Option<Arc<str>>,
}

/// Parts of an entry that the maps do not hold: its list, its reason, and the program that wrote
/// it.
pub(super) type Words = (ListName, Option<Arc<str>>, Option<Arc<str>>);

/// These parts by the source of the entry.
pub(super) type Reasons = BTreeMap<Selector, Words>;

/// Reads the saved entries that have not expired. Unreadable files lose lists but do not stop the
/// daemon: they are set aside and reported in a warning with the remedy.
pub(super) fn read(
    state: &StateDir,
    now: Ticks,
    wall: Duration,
    damage: &mut Option<Damage>,
) -> Result<Entries, StateError> {
    let (found, latest, problems) = found(state)?;
    if !problems.is_empty() {
        *damage = Some(set_aside(state, problems));
    }
    let wall = wall.max(Duration::from_secs(latest));
    let entry = |FoundEntry { list, until, left, reason, by }: FoundEntry| {
        let most = Duration::from_secs(left);
        let left = until.map(|until| Duration::from_secs(until).saturating_sub(wall).min(most));
        let verdict = match list {
            ListName::Allow => Listed::Allow,
            ListName::Deny => Listed::Deny,
        };
        let over = left.is_some_and(|left| left.is_zero());
        let listed = ListEntry::new(verdict, left.map(|left| after(now, left)));
        (!over).then_some(Entry { listed, reason, by })
    };
    Ok(found.into_iter().filter_map(|(at, saved)| Some((at, entry(saved)?))).collect())
}

/// Reads the reasons of entries in force; the maps hold the rest. Files that cannot be read
/// completely are set aside, because the next change of the lists overwrites them.
pub(super) fn reasons(state: &StateDir, damage: &mut Option<Damage>) -> Reasons {
    let (found, _, mut problems) =
        found(state).unwrap_or_else(|error| (Found::new(), 0, vec![error.to_string()]));
    if !problems.is_empty() {
        problems.insert(0, "the lists are in force, and reasons of entries are lost".to_owned());
        *damage = Some(set_aside(state, problems));
    }
    let words = |(at, saved): (_, FoundEntry)| (at, (saved.list, saved.reason, saved.by));
    found.into_iter().map(words).collect()
}

/// Everything saved; the time of the last change, in seconds since 1970; and the problems of the
/// files.
fn found(state: &StateDir) -> Result<(Found, u64, Vec<String>), StateError> {
    let mut found = Found::new();
    let mut problems = Vec::new();
    let text = state.read(LISTS)?;
    let digest = Digest::of_bytes(text.as_deref().unwrap_or_default());
    if let Some(text) = &text {
        let path = state.path(LISTS);
        let read = sealed::unsealed(text)
            .and_then(|content| serde_json::from_slice(content).map_err(|error| error.to_string()));
        match read {
            Ok(Saved { entries }) => {
                problems.extend(take(&mut found, entries).map(|problem| reported(&path, &problem)));
            }
            Err(error) => problems.push(reported(&path, &error)),
        }
    }
    drop(text);
    let path = state.path(JOURNAL);
    let failed = |source| StateError::reading(&path, source);
    let latest = match own_files::open(&path).map_err(failed)? {
        Some(file) => journal(BufReader::new(file), digest, &path, &mut found, &mut problems)
            .map_err(failed)?,
        None => 0,
    };
    Ok((found, latest, problems))
}

/// Keeps copies of incomplete files, and reports their paths.
fn set_aside(state: &StateDir, mut problems: Vec<String>) -> Damage {
    let mut copies = Vec::new();
    for name in [LISTS, JOURNAL] {
        match state.keep_copy(name) {
            Ok(Some(copy)) => {
                problems.push(format!(
                    "what was saved is kept as {}: `limiter lists` shows what is in force; list \
                     what is missing with `limiter deny` and `limiter allow`, and remove that copy",
                    copy.display()
                ));
                copies.push(copy);
            }
            Ok(None) => {}
            Err(error) => problems.push(format!(
                "{}: no copy of it can be kept: {error}: save it elsewhere before the lists change",
                state.path(name).display()
            )),
        }
    }
    Damage { warning: problems.join("; "), copies }
}

/// Adds entries; returns a message with one of the invalid ones and their number.
fn take(found: &mut Found, entries: Vec<SavedEntry<'_>>) -> Option<String> {
    let (mut bad, mut last) = (None, None::<Arc<str>>);
    for SavedEntry { source, list, until, left, reason, by } in entries {
        match source_text::parse(&source) {
            Ok(selector) => {
                // An invalid reason is dropped, but the entry is kept.
                let reason = reason.and_then(|reason| reason::checked(&reason).ok());
                let left = left.unwrap_or(u64::MAX);
                // Thousands of entries in a row have the same author.
                let by = by.map(|by| match &last {
                    Some(last) if **last == *by => Arc::clone(last),
                    _ => Arc::from(&*by),
                });
                last.clone_from(&by);
                found.insert(selector, FoundEntry { list, until, left, reason, by });
            }
            Err(error) => {
                let (_, more) = bad.get_or_insert((error, 0));
                *more += 1;
            }
        }
    }
    bad.map(|(error, count)| format!("{count} of its entries cannot be: {error}"))
}

fn reported(path: &Path, problem: &str) -> String {
    format!("not all saved lists are in force: {}: {problem}", path.display())
}

/// Parses a line of a journal.
fn read_line<'a, T: Deserialize<'a>>(content: Result<&'a [u8], String>) -> Result<T, String> {
    serde_json::from_slice(content?).map_err(|error| error.to_string())
}

/// Applies the changes of a journal up to its first damage. Returns the time of the last change.
fn journal(
    mut file: impl io::BufRead,
    continued: Digest,
    path: &Path,
    found: &mut Found,
    problems: &mut Vec<String>,
) -> io::Result<u64> {
    let (mut latest, mut line) = (0, Vec::new());
    for number in 1u64.. {
        line.clear();
        if file.read_until(b'\n', &mut line)? == 0 {
            if number == 1 {
                problems.push(reported(path, "it is empty"));
            }
            break;
        }
        let is_last = file.fill_buf()?.is_empty();
        let is_whole = line.ends_with(b"\n");
        let content = sealed::unsealed_line(&line);
        let problem = if number == 1 {
            match read_line::<Header>(content) {
                Ok(header) if header.continues == continued.to_string() => continue,
                Ok(_) => {
                    problems.push(reported(
                        path,
                        "it continues another lists.json than the one beside it, so its changes \
                         were left out",
                    ));
                    return Ok(0);
                }
                Err(problem) => problem,
            }
        } else {
            match read_line::<Change<'_>>(content) {
                Ok(Change { at, put, gone }) if is_whole => {
                    latest = latest.max(at);
                    for source in gone {
                        if let Ok(selector) = source_text::parse(&source) {
                            found.remove(&selector);
                        }
                    }
                    problems.extend(take(found, put).map(|problem| reported(path, &problem)));
                    continue;
                }
                Ok(_) => "it has no end".to_owned(),
                Err(problem) => problem,
            }
        };
        if is_last && !is_whole {
            tracing::warn!(
                "{}: the last change was cut off while it was written, and is not in force",
                path.display()
            );
        } else {
            problems.push(reported(
                path,
                &format!("line {number}: {problem}: this change and those after it were left out"),
            ));
        }
        break;
    }
    Ok(latest)
}
