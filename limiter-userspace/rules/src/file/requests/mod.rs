//! Rules for requests, by which `limiter serve` answers: from the fields of a file, which both
//! dialects share, to a tree of keys of any name.

mod budgets;
mod check;
pub(super) mod levels;
mod model;
mod queues;
mod search;
mod unmet;

use super::error::{Problem, RuleFileError};
use super::placed::{Places, reading_text};
use crate::dialect::Dialect;

pub use levels::SOURCE;
pub use model::{
    Calendar, Entry, EntryValue, Level, LevelValue, MAX_DEPTH, Metric, Node, Note, Pattern, Queue,
    ReadyLimit, RequestAggregate, RequestFile, RequestLimit, RequestRule, RequestTerms,
};
pub use search::{For, whom_for};

impl RequestFile {
    /// Reads the bytes of a rule file for requests, as [`super::RuleFile::check`] reads one for
    /// packets: all that is right in the file, and all that is wrong. `file` names it in errors.
    pub fn check(file: &str, bytes: &[u8]) -> (Self, Vec<RuleFileError>) {
        let at = |(place, problem)| RuleFileError { file: file.to_owned(), place, problem };
        let read = |text| {
            let fields = || Dialect::Requests.within(|| search::fields(text));
            reading_text(text, Places::All, fields)
                .map_err(|error| Problem::from_yaml(&error, Dialect::Requests))
        };
        let (read, failures) = match super::text(bytes).and_then(read) {
            Ok(fields) => check::check(&fields),
            Err(failure) => (Self::default(), vec![failure]),
        };
        (read, failures.into_iter().map(at).collect())
    }
}

#[cfg(test)]
pub(super) mod tests;
