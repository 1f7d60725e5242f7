//! Keeps the lists on disk. A change is appended to the journal; all entries are rewritten only
//! when the journal has grown much longer than they are, or when the state of the files is unknown.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::time::Duration;

use limiter_common::time::Ticks;
use limiter_rules::Selector;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::entries::Entries;
use super::saved::{Change, Header, SavedEntry};
use crate::disk::own_files::{self, is_absent};
use crate::disk::sealed;
use crate::disk::state_dir::{JOURNAL, LISTS, StateDir, StateError};
use crate::rule_sets::rule_files::Digest;

/// Records on disk, beyond twice the number of entries, from which on rewriting is worth it.
const SLACK: usize = 1000;

/// Difference from which on the wall clock counts as set. Times on disk are by the previous clock.
const STEP: Duration = Duration::from_secs(2);

/// The state of the files: entries on disk, and changes that are not there yet.
#[derive(Debug)]
pub(super) struct Store {
    /// Sources whose entries differ from those on disk.
    changed: BTreeSet<Selector>,
    /// True if entries on disk have expired.
    expired: bool,
    /// True if all entries must be written, because the next change cannot continue the files on
    /// disk.
    whole: bool,
    /// Error of the last try, if it failed. Only housekeeping tries again, so that a full disk does
    /// not hold up every request.
    failed: Option<String>,
    /// Number of entries and changes in both files.
    records: usize,
    /// The digest of `lists.json`.
    digest: Digest,
    /// The journal; `None` until the first change.
    journal: Option<Journal>,
    /// Both clocks when all entries were last written.
    clocks: (Ticks, Duration),
}

/// Returns true if the wall clock was set between two readings of the clocks.
pub(super) fn was_set(
    (then, wall_then): (Ticks, Duration),
    (now, wall): (Ticks, Duration),
) -> bool {
    let gone = Duration::from_nanos(now.since(then).as_nanos());
    wall.abs_diff(wall_then.saturating_add(gone)) > STEP
}

#[derive(Debug)]
struct Journal {
    file: File,
    /// Bytes that are complete and on disk.
    length: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            changed: BTreeSet::new(),
            expired: false,
            whole: false,
            failed: None,
            records: 0,
            digest: Digest::of_bytes(&[]),
            journal: None,
            clocks: (Ticks::ZERO, Duration::ZERO),
        }
    }
}

impl Store {
    /// Makes the store of a starting daemon. Unless there is nothing at all, everything is written
    /// once.
    pub(super) fn open(state: &StateDir, entries: &Entries, now: Ticks, wall: Duration) -> Self {
        let files = [LISTS, JOURNAL].iter().any(|name| !is_absent(&state.path(name)));
        Self { whole: files || !entries.is_empty(), clocks: (now, wall), ..Self::default() }
    }

    /// Notes that the entry of a source differs from that on disk.
    pub(super) fn note(&mut self, selector: Selector) {
        self.changed.insert(selector);
    }

    /// Reason why changes are not on disk; `None` if they are.
    pub(super) fn not_saved(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Returns true if the entry of a source could not be written to disk.
    pub(super) fn lacks(&self, selector: &Selector) -> bool {
        self.failed.is_some() && self.changed.contains(selector)
    }

    pub(super) fn note_expired(&mut self) {
        self.expired = true;
    }

    /// Stores a change before it is answered; returns `None` if there is nothing to store. After a
    /// failure, [`Store::keep`] tries again.
    pub(super) fn store(
        &mut self,
        entries: &Entries,
        state: &StateDir,
        (now, wall): (Ticks, Duration),
    ) -> Option<Result<(), StateError>> {
        let is_due = self.whole || self.expired || !self.changed.is_empty();
        (is_due && self.failed.is_none()).then(|| self.save(entries, state, (now, wall)))
    }

    /// Stores all changes not on disk yet, and rewrites everything if the journal has become long.
    pub(super) fn keep(
        &mut self,
        entries: &Entries,
        state: &StateDir,
        (now, wall): (Ticks, Duration),
    ) -> Result<(), StateError> {
        self.whole |= self.records > 2 * entries.len() + SLACK;
        self.failed = None;
        self.store(entries, state, (now, wall)).unwrap_or(Ok(()))
    }

    fn save(
        &mut self,
        entries: &Entries,
        state: &StateDir,
        (now, wall): (Ticks, Duration),
    ) -> Result<(), StateError> {
        let appended = if self.whole || self.was_set(now, wall) {
            false
        } else {
            let done = self.append(entries, state, (now, wall));
            // After a failed call the state on disk is unknown.
            done.inspect_err(|error| tracing::debug!(%error, "all lists are written anew")).is_ok()
        };
        let done = if appended { Ok(()) } else { self.write(entries, state, (now, wall)) };
        self.failed = done.as_ref().err().map(ToString::to_string);
        self.whole = done.is_err();
        if done.is_ok() {
            self.changed.clear();
        }
        self.expired = false;
        done
    }

    /// Returns true if the wall clock was set since all entries were written.
    fn was_set(&self, now: Ticks, wall: Duration) -> bool {
        was_set(self.clocks, (now, wall))
    }

    /// Writes all entries and ends the journal. An older journal left beside them would be
    /// recognized by its digest.
    fn write(
        &mut self,
        entries: &Entries,
        state: &StateDir,
        (now, wall): (Ticks, Duration),
    ) -> Result<(), StateError> {
        let mut digest = Digest::of_bytes(&[]);
        let prepared = state.prepare_with(LISTS, |file| {
            sealed::seal(&mut Digested { file, digest: &mut digest }, |to| {
                serde_json::to_writer(to, &All { entries, now, wall }).map_err(io::Error::from)
            })
        })?;
        prepared.publish()?;
        self.digest = digest;
        self.journal = None;
        self.records = entries.len();
        self.clocks = (now, wall);
        state.remove(JOURNAL);
        Ok(())
    }

    fn append(
        &mut self,
        entries: &Entries,
        state: &StateDir,
        (now, wall): (Ticks, Duration),
    ) -> Result<(), StateError> {
        let mut change = Change { at: wall.as_secs(), ..Change::default() };
        for selector in &self.changed {
            let entry = entries.get(selector);
            match entry.and_then(|entry| SavedEntry::new(selector, entry, now, wall)) {
                Some(entry) => change.put.push(entry),
                None => change.gone.push(Cow::Owned(selector.to_string())),
            }
        }
        let failed = |source| StateError::writing(&state.path(JOURNAL), source);
        let line = serde_json::to_string(&change).map_err(|error| failed(error.into()))?;
        let done = match &mut self.journal {
            Some(journal) => journal.add(&line),
            none => {
                let continues = self.digest.to_string();
                Journal::begin(state, &Header { continues }, &line).map(|journal| {
                    *none = Some(journal);
                })
            }
        };
        if let Err(source) = done {
            let begun = self.journal.take();
            // Half a line would only waste the missing space.
            match begun {
                Some(journal) => journal.cut(),
                None => state.remove(JOURNAL),
            }
            return Err(failed(source));
        }
        self.records += 1 + change.put.len() + change.gone.len();
        Ok(())
    }
}

impl Journal {
    /// Begins a journal, in place of any existing one.
    fn begin(state: &StateDir, header: &Header, line: &str) -> io::Result<Self> {
        let (path, new) = (state.path(JOURNAL), state.path(&format!("{JOURNAL}.new")));
        let mut journal = Self { file: own_files::create_anew(&new)?, length: 0 };
        let header = serde_json::to_string(header)?;
        // The file gets its name only with a change in it: an empty journal counts as damaged.
        let written = journal.add(&header).and_then(|()| journal.add(line));
        if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
            // Half a file would only waste the missing space.
            drop(fs::remove_file(&new));
            return Err(error);
        }
        // The name of the file must be as safe as its content.
        state.sync()?;
        Ok(journal)
    }

    /// Appends a line, and returns when a power cut can no longer remove it.
    fn add(&mut self, line: &str) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.length))?;
        let line = format!("{}\n", sealed::sealed_line(line));
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        self.length += u64::try_from(line.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Cuts off an incomplete line.
    fn cut(self) {
        if let Err(error) = self.file.set_len(self.length) {
            tracing::warn!(%error, "the journal of the lists has a part of a change");
        }
    }
}

/// All entries, in the form of the file. They are written one by one, because the text of a million
/// entries would need more memory than the entries.
struct All<'a> {
    entries: &'a Entries,
    now: Ticks,
    wall: Duration,
}

impl Serialize for All<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Each<'a>(&'a All<'a>);

        impl Serialize for Each<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let All { entries, now, wall } = self.0;
                serializer.collect_seq(
                    entries
                        .iter()
                        .filter_map(|(at, entry)| SavedEntry::new(at, entry, *now, *wall)),
                )
            }
        }

        let mut saved = serializer.serialize_struct("Saved", 1)?;
        saved.serialize_field("entries", &Each(self))?;
        saved.end()
    }
}

/// Computes the digest of a file while it is written.
struct Digested<'a> {
    file: &'a mut dyn io::Write,
    digest: &'a mut Digest,
}

impl io::Write for Digested<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.go_on(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
