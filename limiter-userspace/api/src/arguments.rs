//! Values of arguments of commands.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use limiter_text::spoken::{MONTH, has_bare_month};

/// Words that an argument may be, with the help of each.
pub fn words<const N: usize>(words: [(&'static str, &'static str); N]) -> PossibleValuesParser {
    words.map(|(word, help)| PossibleValue::new(word).help(help)).into()
}

/// A length of time, or how to write one.
pub fn length(text: &str) -> Result<Duration, String> {
    if has_bare_month(text) {
        return Err(MONTH.to_owned());
    }
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::UnknownUnit { unit, value, .. } if unit.is_empty() => {
            format!("that has no unit: write one like {value}s, {value}m or {value}h")
        }
        humantime::DurationError::NumberExpected(_)
        | humantime::DurationError::InvalidCharacter(_)
        | humantime::DurationError::Empty => {
            "that is no length of time: write one like 90s, 10m, 2h or 1d".to_owned()
        }
        error => error.to_string(),
    })
}

/// Whole seconds from one to a day.
pub fn trial_time(text: &str) -> Result<NonZeroU32, String> {
    let time = length(text)?;
    let seconds = u32::try_from(time.as_secs()).ok().and_then(NonZeroU32::new);
    seconds
        .filter(|seconds| seconds.get() <= 86_400 && time.subsec_nanos() == 0)
        .ok_or_else(|| "give whole seconds, from 1s to 1d".to_owned())
}

/// Seconds of a length of time above zero: refused here, whether there is a daemon or not.
pub fn some_seconds(text: &str) -> Result<u64, String> {
    match length(text)? {
        Duration::ZERO => Err("0 seconds are over at once: give at least 1s".to_owned()),
        time => Ok(seconds(time)),
    }
}

/// Whole milliseconds of a length of time above zero.
pub fn milliseconds(text: &str) -> Result<u64, String> {
    let time = length(text)?;
    let whole = time.subsec_nanos().is_multiple_of(1_000_000) && !time.is_zero();
    u64::try_from(time.as_millis())
        .ok()
        .filter(|_| whole)
        .ok_or_else(|| "give whole milliseconds, as in 100ms".to_owned())
}

/// Whole seconds, rounded up: a part of a second more does no harm; less would.
pub fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// A length of time of at least a second.
pub fn interval(text: &str) -> Result<Duration, String> {
    at_least(text, 1)
}

/// A length of time of at least so many seconds.
pub fn at_least(text: &str, seconds: u64) -> Result<Duration, String> {
    match length(text)? {
        time if time >= Duration::from_secs(seconds) => Ok(time),
        _ => Err(format!("give at least {seconds}s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rounded_up() {
        assert_eq!(some_seconds("1500ms"), Ok(2));
        assert_eq!(some_seconds("3s"), Ok(3));
    }
}
