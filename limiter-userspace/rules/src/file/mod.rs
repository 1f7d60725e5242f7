//! Rule files: YAML in the shape of envoyproxy/ratelimit.
//!
//! [`RuleFile::parse`] checks everything that can be checked without the kernel; [`render`] and
//! [`ExactFile`] write the same shape, and [`as_written`] what is in force in its author's words.

mod check;
mod error;
mod items;
mod nearest;
mod one_or_many;
mod place;
mod placed;
mod read;
mod render;
pub mod requests;
mod rule_file;
mod schema;
#[expect(clippy::struct_field_names, reason = "fields have the names of a rule file")]
mod shape;
mod table;
mod union;
mod written;

pub use error::{Problem, RuleFileError};
pub use place::Place;
pub use render::{Blocks, ExactFile, blocks, render};
pub use rule_file::RuleFile;
pub use schema::schema;
pub use serde_saphyr::SerializeError;
pub use union::{FilePlace, RuleFiles};
pub use written::{Others, as_written};

/// Largest rule file in bytes.
pub const MAX_BYTES: u64 = 16 << 20;

impl RuleFile {
    /// Reads the bytes of a rule file. `file` names it in errors; `max_frame` in bytes is what a
    /// byte burst that is not given must hold at least.
    ///
    /// A file with nothing in it is refused: one that is to limit nobody says `descriptors: []`.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with it; [`RuleFile::check`] has all of them.
    pub fn parse(file: &str, bytes: &[u8], max_frame: u64) -> Result<Self, RuleFileError> {
        let (parsed, errors) = Self::check(file, bytes, max_frame);
        errors.into_iter().next().map_or(Ok(parsed), Err)
    }

    /// As [`RuleFile::parse`]: all that is right in the file, and all that is wrong. Of a
    /// descriptor or a budget the first mistake is reported, and of a file that is no YAML the
    /// first one.
    pub fn check(file: &str, bytes: &[u8], max_frame: u64) -> (Self, Vec<RuleFileError>) {
        let at = |(place, problem)| RuleFileError { file: file.to_owned(), place, problem };
        let (parsed, failures) = match text(bytes) {
            Ok(text) => read::read(text, max_frame),
            Err(failure) => (Self::default(), vec![failure]),
        };
        (parsed, failures.into_iter().map(at).collect())
    }
}

/// The text of a file.
fn text(bytes: &[u8]) -> Result<&str, check::Failure> {
    if u64::try_from(bytes.len()).map_or(true, |length| length > MAX_BYTES) {
        return Err((None, Problem::TooLong));
    }
    str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        (Some(Place::of_offset(bytes, offset)), Problem::NotUtf8 { offset })
    })
}

#[cfg(test)]
mod tests;
