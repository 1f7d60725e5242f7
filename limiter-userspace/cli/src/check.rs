//! `limiter check`.

use limiter_daemon::check;
use limiter_daemon::render;

use super::Answer;
use super::args::{Check, Output};
use super::failure::Failure;

/// Checks rule files; a mistake is an answer, with exit code 2.
pub(super) fn check(what: &Check, output: Output) -> Result<Answer, Failure> {
    let checked = check::check(&what.files, what.max_frame, what.max_rules);
    let mut answer = Answer { code: if checked.ok { 0 } else { 2 }, ..Answer::default() };
    match output.document(&checked)? {
        Some(text) => answer.text = text,
        None if checked.ok => answer.text = render::text(&checked),
        None => {
            answer.errors = checked.errors.into_iter().map(|error| error.message).collect();
        }
    }
    Ok(answer)
}
