//! Contents of a file that were read so far, right and wrong.

use std::collections::btree_map::Entry;

use crate::dialect::{Dialect, Units};
use crate::file::error::Problem;
use crate::file::place::Place;
use crate::file::placed::At;
use crate::file::rule_file::RuleFile;
use crate::model::Subject;

pub(in crate::file) type Failure = (Option<Place>, Problem);

/// Part of a file that was read so far, and the errors of the rest.
pub(in crate::file) struct Checked {
    pub(in crate::file) file: RuleFile,
    /// One failure for each invalid field, budget and descriptor.
    pub(in crate::file) failures: Vec<Failure>,
    pub(super) units: Units,
    /// Lines of the file before those that are read.
    pub(in crate::file) lines_before: u64,
}

impl Checked {
    /// A file of which nothing was read. `max_frame` as in [`RuleFile::parse`].
    pub(in crate::file) fn new(max_frame: u64) -> Self {
        let units = Units { dialect: Dialect::Packets, max_frame };
        Self { file: RuleFile::default(), failures: Vec::new(), units, lines_before: 0 }
    }

    /// Place of something in the whole file, if that is known.
    pub(super) fn place(&self, at: At) -> Option<Place> {
        let Place { line, column } = at.place()?;
        Some(Place { line: line + self.lines_before, column })
    }

    /// Keeps a failure; the rest is read on.
    pub(super) fn note(&mut self, done: Result<(), Failure>) {
        self.failures.extend(done.err());
    }
}

pub(super) fn place_or_begin(place: Option<Place>) -> Place {
    place.unwrap_or(Place::BEGIN)
}

/// Notes where something stands; a second time is an error.
pub(super) fn stand(
    checked: &mut RuleFile,
    subject: Subject,
    place: Option<Place>,
) -> Result<(), Failure> {
    let place = place_or_begin(place);
    match checked.places.entry(subject) {
        Entry::Vacant(entry) => {
            entry.insert(place);
            Ok(())
        }
        Entry::Occupied(entry) => {
            let (subject, first) = (entry.key().to_string(), entry.get().line);
            Err((Some(place), Problem::Duplicate { subject, first }))
        }
    }
}
