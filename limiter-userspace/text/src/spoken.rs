//! Numbers, lengths of time and amounts of bytes as people read them: the one form of all answers,
//! messages and logs. Rule files and options have theirs.

use std::time::Duration;

/// 1234567 as 1,234,567.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A length of time of whole seconds, in at most two units: `45 s`, `16 min 40 s`, `8 h`.
pub fn seconds(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let ((large, unit), (small, smaller)) = match (days, hours, minutes) {
        (0, 0, 0) => return format!("{seconds} s"),
        (0, 0, _) => ((minutes, "min"), (seconds % 60, "s")),
        (0, ..) => ((hours, "h"), (minutes % 60, "min")),
        _ => ((days, "d"), (hours % 24, "h")),
    };
    let large = number(large);
    if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {smaller}") }
}

/// A length of time that was measured, in its natural unit and in three digits at most: `754 us`,
/// `1.5 ms`; from a minute on in whole seconds.
pub fn duration(nanos: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    if nanos == 0 {
        return "0 s".to_owned();
    }
    let step = 10_u64.pow(nanos.ilog10().saturating_sub(2));
    let rounded = nanos.saturating_add(step / 2) / step * step;
    if rounded >= 60_000_000_000 {
        return seconds(nanos.saturating_add(500_000_000) / 1_000_000_000);
    }
    match UNITS.into_iter().find(|(size, _)| rounded >= *size) {
        Some((size, unit)) => format!("{} {unit}", parts(rounded.into(), size.into())),
        None => format!("{rounded} ns"),
    }
}

/// A number of parts of a size, a power of ten, as a decimal number with all of its digits.
fn parts(amount: u128, size: u128) -> String {
    let digits = size.ilog10() as usize;
    let text = format!("{}.{:0digits$}", amount / size, amount % size);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A length of time that somebody wrote, with all of it: `10 min`, `7 d`, `1 h 30 min`, `200 ms`.
/// Options and rule files read it as the same.
pub fn exact(time: Duration) -> String {
    let whole = time.as_secs();
    let nanos = u64::from(time.subsec_nanos());
    let parts = [
        (whole / 86_400, "d"),
        (whole / 3_600 % 24, "h"),
        (whole / 60 % 60, "min"),
        (whole % 60, "s"),
        (nanos / 1_000_000, "ms"),
        (nanos / 1_000 % 1_000, "us"),
        (nanos % 1_000, "ns"),
    ];
    let parts = parts.into_iter().filter(|(amount, _)| *amount > 0);
    let words: Vec<_> = parts.map(|(amount, unit)| format!("{amount} {unit}")).collect();
    if words.is_empty() { "0 s".to_owned() } else { words.join(" ") }
}

/// Bytes in the unit in which they are at least 1, in three digits at least: `999 B`, `61.5 MB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (1_000_000_000_000_000_000, "EB"),
        (1_000_000_000_000_000, "PB"),
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1_000, "kB"),
    ];
    // What is rounded up to 1,000 has the next unit.
    let fits = |size: u64| bytes >= size - size / 2_000;
    let Some((size, unit)) = UNITS.into_iter().find(|(size, _)| bytes >= 1_000 && fits(*size))
    else {
        return format!("{bytes} B");
    };
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = bytes as f64 / size as f64;
    match value {
        ..9.995 => format!("{value:.2} {unit}"),
        ..99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// Bytes with all of their digits, in the unit in which these are three or fewer, or a whole number
/// of kB: `315 kB`, `2.52 MB`, `1522 bytes`.
pub fn exact_bytes(bytes: u128) -> String {
    for (size, unit) in [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")] {
        let has_three = bytes.is_multiple_of(10_u128.pow(bytes.max(1).ilog10().saturating_sub(2)));
        if bytes >= size && (bytes.is_multiple_of(size) || has_three) {
            return format!("{} {unit}", parts(bytes, size));
        }
    }
    format!("{bytes} bytes")
}

/// What to write for a length of time with the unit `M`.
pub const MONTH: &str = "`M` would be months: write min for minutes, or months";

/// True if a unit of a length of time is a bare `M`: the reader takes it for months, and most
/// people mean minutes.
pub fn has_bare_month(text: &str) -> bool {
    text.split(|letter: char| !letter.is_alphabetic()).any(|unit| unit == "M")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody reads 28,800 s as 8 hours, nor 1.984 min.
    #[test]
    fn times_have_two_units_at_most() {
        for (time, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (1_000, "16 min 40 s"),
            (28_800, "8 h"),
            (28_790, "7 h 59 min"),
            (86_400, "1 d"),
            (90_000, "1 d 1 h"),
            (31_557_600, "365 d 6 h"),
        ] {
            assert_eq!(seconds(time), text);
        }
        for (nanos, text) in [
            (0, "0 s"),
            (999, "999 ns"),
            (754_134, "754 us"),
            (1_000_000, "1 ms"),
            (1_234_567, "1.23 ms"),
            (999_600_000, "1 s"),
            (907_807_000, "908 ms"),
            (59_940_000_000, "59.9 s"),
            (59_960_000_000, "1 min"),
            (119_040_000_000, "1 min 59 s"),
            (26_029_000_000_000, "7 h 13 min"),
        ] {
            assert_eq!(duration(nanos), text);
        }
    }

    /// Nothing of a time that was written is left out, and the same can be typed again.
    #[test]
    fn a_time_that_was_written_is_read_as_the_same() {
        for (nanos, text) in [
            (0, "0 s"),
            (200_000_000, "200 ms"),
            (600_000_000_000, "10 min"),
            (5_400_000_000_000, "1 h 30 min"),
            (604_800_000_000_000, "7 d"),
            (90_061_001_002_003, "1 d 1 h 1 min 1 s 1 ms 2 us 3 ns"),
            (31_557_600_000_000_000, "365 d 6 h"),
        ] {
            let time = Duration::from_nanos(nanos);
            assert_eq!(exact(time), text);
            assert_eq!(humantime::parse_duration(text), Ok(time));
        }
    }

    #[test]
    fn a_bare_m_may_be_meant_as_minutes() {
        for text in ["10M", "1h 5M", "10 M"] {
            assert!(has_bare_month(text), "{text}");
        }
        for text in ["10m", "10min", "2months", "1 Month", "5Ms", ""] {
            assert!(!has_bare_month(text), "{text}");
        }
    }

    /// A bound is exact, so nothing is rounded.
    #[test]
    fn bytes_of_a_bound_are_exact() {
        for (amount, text) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1522, "1522 bytes"),
            (1_500, "1.5 kB"),
            (315_000, "315 kB"),
            (2_520_000, "2.52 MB"),
            (1_234_000, "1234 kB"),
            (5_000_000_000, "5 GB"),
            (2_501_522, "2501522 bytes"),
        ] {
            assert_eq!(exact_bytes(amount), text);
        }
    }

    #[test]
    fn bytes_have_a_unit() {
        for (amount, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (9_996, "10.0 kB"),
            (61_497_922, "61.5 MB"),
            (999_499, "999 kB"),
            (999_600, "1.00 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(amount), text);
        }
    }
}
