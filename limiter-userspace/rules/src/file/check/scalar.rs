//! Single values: words, numbers, lengths of time.

use std::ops::RangeInclusive;
use std::time::Duration;

use limiter_text::plain::is_plain;
use limiter_text::spoken::{MONTH, has_bare_month};

use super::checked::Failure;
use crate::compile::{MAX_TICKS, ticks};
use crate::dialect::Dialect;
use crate::file::error::Problem;
use crate::file::placed::{At, Scalar};
use crate::rate_text::{RateText, RateTextError};

pub(in crate::file) fn at(location: At, problem: Problem) -> Failure {
    (location.place(), problem)
}

pub(in crate::file) fn text<'a>(
    scalar: &'a Scalar,
    field: &'static str,
    remedy: &'static str,
) -> Result<&'a str, Failure> {
    match scalar.value.as_deref() {
        None | Some("") => Err(at(scalar.referenced, Problem::Empty { field, remedy })),
        Some(text) => plain(text, field, scalar.referenced).map(|()| text),
    }
}

/// Refuses text with more in it than can be seen.
pub(in crate::file) fn plain(text: &str, field: &'static str, location: At) -> Result<(), Failure> {
    // Nearly all text is plain.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(());
    }
    match text.chars().find(|c| !is_plain(*c)) {
        None => Ok(()),
        Some(found) => Err(at(location, Problem::NotPlain { field, text: text.to_owned(), found })),
    }
}

pub(in crate::file) fn number(
    scalar: &Scalar,
    field: &'static str,
    dialect: Dialect,
) -> Result<u64, Failure> {
    let text = text(scalar, field, "give a whole number of at least 1")?;
    let wrong = if text.starts_with('-') {
        "is negative"
    } else if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        if field == "requests_per_unit" && RateText::parse(text).is_ok() {
            return Err(at(scalar.referenced, Problem::IsRate { text: text.to_owned() }));
        }
        "is not a whole number"
    } else {
        match text.parse::<u64>() {
            Ok(0) if field == "burst" => match dialect {
                Dialect::Packets => "lets no packet pass",
                Dialect::Requests => "lets no request pass",
            },
            Ok(0) => {
                let error = Box::new(RateTextError::Zero.of(dialect));
                return Err(at(scalar.referenced, Problem::RateText { field, error }));
            }
            Ok(number) => return Ok(number),
            Err(_) => "is too large",
        }
    };
    Err(at(scalar.referenced, Problem::Number { field, text: text.to_owned(), wrong }))
}

/// A number that fits `T`, within a range.
pub(in crate::file) fn ranged<T: TryFrom<u64>>(
    scalar: &Scalar,
    field: &'static str,
    range: RangeInclusive<u64>,
) -> Result<T, Failure> {
    let text = text(scalar, field, "give a whole number")?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u64>()
        .ok()
        .filter(|number| digits && range.contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| {
            let (low, high) = (*range.start(), *range.end());
            at(scalar.referenced, Problem::Range { field, text: text.to_owned(), low, high })
        })
}

/// A length of time, at least `least`.
pub(in crate::file) fn time(
    scalar: &Scalar,
    field: &'static str,
    least: Duration,
) -> Result<Duration, Failure> {
    let text = text(scalar, field, "write one like 5s, 1min, 2h or 1day")?;
    let wrong = match humantime::parse_duration(text) {
        Ok(_) if has_bare_month(text) => MONTH,
        Err(_) => "is no length of time",
        Ok(time) if time < least => "is too short: it is at least 1s",
        Ok(time) if ticks(time) > MAX_TICKS => "is more than 2 years",
        Ok(time) => return Ok(time),
    };
    Err(at(scalar.referenced, Problem::Time { field, text: text.to_owned(), wrong }))
}

pub(in crate::file) fn one_of<T: Copy>(
    scalar: &Scalar,
    field: &'static str,
    words: &[(&'static str, T)],
) -> Result<T, Failure> {
    let word = text(scalar, field, "give one, or remove the line")?;
    words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
        let expected = words.iter().map(|(name, _)| *name).collect();
        at(scalar.referenced, Problem::UnknownWord { field, word: word.to_owned(), expected })
    })
}

/// A number with a name, or the number itself, at most `most`.
pub(super) fn named_number(
    scalar: &Scalar,
    field: &'static str,
    names: &[(&'static str, u8)],
    most: u8,
) -> Result<u8, Failure> {
    let text = text(scalar, field, "give a name or a number")?;
    if text.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return ranged(scalar, field, 0..=u64::from(most));
    }
    one_of(scalar, field, names)
}
