//! Keeps the lists on disk. A change is a line at the end of the journal; all entries are written
//! only when that has much more than they are, and when what is on disk is not known.

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
use crate::own_files::{self, is_absent};
use crate::rule_files::Digest;
use crate::sealed;
use crate::state_dir::{JOURNAL, LISTS, StateDir, StateError};

/// Records on disk beyond twice the entries that there are: fewer are not worth to write all.
const SLACK: usize = 1000;

/// A wall clock that is further off than this was set. The times on disk are of the one before.
const STEP: Duration = Duration::from_secs(2);

/// The state of the files: entries on disk, and changes that are not there yet.
#[derive(Debug)]
pub(super) struct Store {
    /// Sources whose entries are not on disk as they are.
    changed: BTreeSet<Selector>,
    /// True if entries expired that are on disk.
    expired: bool,
    /// True if all is to be written, because the next change does not continue the files on disk.
    whole: bool,
    /// True if the last try failed. Only housekeeping tries again: a full disk is not to hold up
    /// every request.
    failed: Option<String>,
    /// Entries in both files, and changes of them.
    records: usize,
    /// The digest of `lists.json`.
    digest: Digest,
    /// The journal; none until there is a change.
    journal: Option<Journal>,
    /// The two clocks when all was written.
    clocks: (Ticks, Duration),
}

/// True if the wall clock was set between two looks at the clocks.
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
    /// Bytes that are whole and safe.
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
    /// The store of a daemon that starts. Unless there is nothing at all, all is written once.
    pub(super) fn open(state: &StateDir, entries: &Entries, now: Ticks, wall: Duration) -> Self {
        let files = [LISTS, JOURNAL].iter().any(|name| !is_absent(&state.path(name)));
        Self { whole: files || !entries.is_empty(), clocks: (now, wall), ..Self::default() }
    }

    /// Notes that the entry of a source is not as on disk.
    pub(super) fn note(&mut self, selector: Selector) {
        self.changed.insert(selector);
    }

    /// Why changes are not on disk; none if they are.
    pub(super) fn not_saved(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// True if the entry of a source is not on disk as it is, and could not be.
    pub(super) fn lacks(&self, selector: &Selector) -> bool {
        self.failed.is_some() && self.changed.contains(selector)
    }

    /// Notes that an entry expired.
    pub(super) fn note_expired(&mut self) {
        self.expired = true;
    }

    /// Stores a change before it is answered; none if there is nothing to do. After a failure it is
    /// left to [`Store::keep`].
    pub(super) fn store(
        &mut self,
        entries: &Entries,
        state: &StateDir,
        (now, wall): (Ticks, Duration),
    ) -> Option<Result<(), StateError>> {
        let is_due = self.whole || self.expired || !self.changed.is_empty();
        (is_due && self.failed.is_none()).then(|| self.save(entries, state, (now, wall)))
    }

    /// Stores what is not on disk yet, and writes all where the journal has become long.
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
            // The state that a failed call left on disk is not known.
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

    /// True if the wall clock was set since all was written.
    fn was_set(&self, now: Ticks, wall: Duration) -> bool {
        was_set(self.clocks, (now, wall))
    }

    /// Writes all entries, and ends the journal. An older one left beside them would be known by
    /// its digest.
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

    /// Writes what changed at the end of the journal.
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
            // Half of it would only take the room that is missing.
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
    /// Begins one, in the place of any that was there.
    fn begin(state: &StateDir, header: &Header, line: &str) -> io::Result<Self> {
        let (path, new) = (state.path(JOURNAL), state.path(&format!("{JOURNAL}.new")));
        let mut journal = Self { file: own_files::create_anew(&new)?, length: 0 };
        let header = serde_json::to_string(header)?;
        // Under its name it has a change: an empty one is known to be damaged.
        let written = journal.add(&header).and_then(|()| journal.add(line));
        if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
            // Half of it would only take the room that is missing.
            drop(fs::remove_file(&new));
            return Err(error);
        }
        // The name of the file is to be as safe as its content.
        state.sync()?;
        Ok(journal)
    }

    /// Adds a line, and returns when a power cut cannot take it away.
    fn add(&mut self, line: &str) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.length))?;
        let line = format!("{}\n", sealed::sealed_line(line));
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        self.length += u64::try_from(line.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Cuts off a line that is not whole.
    fn cut(self) {
        if let Err(error) = self.file.set_len(self.length) {
            tracing::warn!(%error, "the journal of the lists has a part of a change");
        }
    }
}

/// All entries, as the file has them. They are written one by one: a text of a million would take
/// more than they do.
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

/// A file that is digested while it is written.
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
