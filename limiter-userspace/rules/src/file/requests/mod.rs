//! Rule files for requests: the shape of rule files for packets, with keys of any name.
//!
//! `limiter serve` answers by them. What they share with rules for packets (limits, rates, their
//! errors) is read by the same code; the rest is here.

mod bans;
mod budgets;
mod check;
mod limit;
mod model;
mod queues;
mod schema;
mod search;
mod shape;
mod unmet;

use super::MAX_BYTES;
use super::error::{Problem, RuleFileError};
use super::place::Place;
use super::placed::{Places, reading_text};

pub use bans::SOURCE;
pub use model::{
    Calendar, Entry, EntryValue, Level, LevelValue, MAX_DEPTH, Metric, Node, Note, Pattern, Queue,
    RequestAggregate, RequestFile, RequestLimit, RequestRule, RequestTerms,
};
pub use schema::schema;
pub use search::{For, whom_for};

impl RequestFile {
    /// Reads the bytes of a rule file for requests, as [`super::RuleFile::check`] reads one for
    /// packets: all that is right in the file, and all that is wrong. `file` names it in errors.
    pub fn check(file: &str, bytes: &[u8]) -> (Self, Vec<RuleFileError>) {
        let at = |place, problem| RuleFileError { file: file.to_owned(), place, problem };
        let refused = |place, problem| (Self::default(), vec![at(place, problem)]);
        if u64::try_from(bytes.len()).map_or(true, |length| length > MAX_BYTES) {
            return refused(None, Problem::TooLong);
        }
        let text = match str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let offset = error.valid_up_to();
                let place = Place::of_offset(bytes, offset);
                return refused(Some(place), Problem::NotUtf8 { offset });
            }
        };
        match reading_text(text, Places::All, || shape::File::read(text)) {
            Ok(parsed) => {
                let (file, failures) = check::check(&parsed);
                (file, failures.into_iter().map(|(place, problem)| at(place, problem)).collect())
            }
            Err(error) => {
                let (place, problem) = check::problem_of_yaml(&error);
                refused(place, problem)
            }
        }
    }
}

#[cfg(test)]
mod tests;
