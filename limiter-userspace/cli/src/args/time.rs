//! Arguments that are lengths of time.

use std::num::NonZeroU32;
use std::time::Duration;

use limiter_text::spoken::{MONTH, has_bare_month};

/// A length of time, or how to write one.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    if has_bare_month(text) {
        return Err(MONTH.to_owned());
    }
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::NumberExpected(_)
        | humantime::DurationError::InvalidCharacter(_)
        | humantime::DurationError::Empty => {
            "that is no length of time: write one like 90s, 10m, 2h or 1d".to_owned()
        }
        error => error.to_string(),
    })
}

/// Whole seconds from one to a day.
pub(crate) fn trial_time(text: &str) -> Result<NonZeroU32, String> {
    let time = length(text)?;
    let seconds = u32::try_from(time.as_secs()).ok().and_then(NonZeroU32::new);
    seconds
        .filter(|seconds| seconds.get() <= 86_400 && time.subsec_nanos() == 0)
        .ok_or_else(|| "give whole seconds, from 1s to 1d".to_owned())
}

/// A length of time above zero: refused here, whether there is a daemon or not.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    match length(text)? {
        Duration::ZERO => Err("0 seconds are over at once: give at least 1s".to_owned()),
        time => Ok(time),
    }
}

/// A length of time of at least a second.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    at_least(text, 1)
}

/// A length of time from 1 ms to a minute.
#[cfg(feature = "requests")]
pub(crate) fn deadline(text: &str) -> Result<Duration, String> {
    let time = length(text)?;
    let range = Duration::from_millis(1)..=Duration::from_mins(1);
    range.contains(&time).then_some(time).ok_or_else(|| "give 1ms to 1m".to_owned())
}

pub(crate) fn at_least(text: &str, seconds: u64) -> Result<Duration, String> {
    match length(text)? {
        time if time >= Duration::from_secs(seconds) => Ok(time),
        _ => Err(format!("give at least {seconds}s")),
    }
}
