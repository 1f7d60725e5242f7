//! Rates in the notation of other programs, and limits made from them.

use limiter_common::wire::Count;
use limiter_rules::model::{Meter, Period, Quota, Unit};

/// Why quotas are not translated, and the nearest equivalent here.
pub(super) const QUOTA: &str = "a quota there never begins anew; for so much in a time, write \
     `algorithm: fixed_window` and a rate as 10GB/day by hand";

pub(super) fn bucket(count: Count, amount: u64, period: Period, burst: u64) -> Meter {
    Meter::TokenBucket(Quota::new(count, amount, period).with_burst(burst))
}

/// Unit of time by a prefix of its name, as iptables accepts it: `s`, `sec`, `second`, ...
pub(super) fn unit(text: &str) -> Option<Unit> {
    let text = text.to_ascii_lowercase();
    let units = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week];
    let found = units.into_iter().find(|unit| unit.name().starts_with(&text));
    found.filter(|_| !text.is_empty())
}

pub(super) fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Reads a whole number from 1.
pub(super) fn number(text: &str) -> Option<u64> {
    whole(text).filter(|number| *number > 0)
}

/// Reads packets per unit of time: `10/sec`, or `10` for one second.
pub(super) fn packets(text: &str) -> Option<(u64, Unit)> {
    match text.split_once('/') {
        Some((amount, per)) => Some((number(amount)?, unit(per)?)),
        None => Some((number(text)?, Unit::Second)),
    }
}

/// Reads bytes with a suffix for powers of 1,024: `512kb`, `1mb`, `100b`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let amount = text.strip_suffix('b')?;
    let (amount, factor) = match amount.as_bytes().last()? {
        b'k' => (amount.strip_suffix('k')?, 1 << 10),
        b'm' => (amount.strip_suffix('m')?, 1 << 20),
        _ => (amount, 1),
    };
    number(amount)?.checked_mul(factor)
}

/// True if a bucket takes longer than `milliseconds` to fill.
pub(super) fn fills_slower(amount: u64, unit: Unit, burst: u64, milliseconds: u64) -> bool {
    let fill = u128::from(burst) * u128::from(unit.seconds()) * 1000;
    fill > u128::from(milliseconds) * u128::from(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_in_every_spelling() {
        for (text, expected) in [
            ("10/sec", Some((10, Unit::Second))),
            ("10/s", Some((10, Unit::Second))),
            ("10/Second", Some((10, Unit::Second))),
            ("7/m", Some((7, Unit::Minute))),
            ("7/min", Some((7, Unit::Minute))),
            ("3/hour", Some((3, Unit::Hour))),
            ("3/d", Some((3, Unit::Day))),
            ("10", Some((10, Unit::Second))),
            ("0/s", None),
            ("/s", None),
            ("10/", None),
            ("10/fortnight", None),
            ("10/seconds", None),
            ("-1/s", None),
            ("99999999999999999999/s", None),
        ] {
            assert_eq!(packets(text), expected, "{text}");
        }
        assert_eq!(bytes("512kb"), Some(512 << 10));
        assert_eq!(bytes("1mb"), Some(1 << 20));
        assert_eq!(bytes("100b"), Some(100));
        assert_eq!((bytes("100"), bytes("b"), bytes("1gb"), bytes("kb")), (None, None, None, None));
    }
}
