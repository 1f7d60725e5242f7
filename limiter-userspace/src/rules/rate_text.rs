//! A rate, as people write it on the command line: `100/s`, `10k/s`, `5/day`, `100/5min`,
//! `10mbit/s`, `1MiB/s`.
//!
//! Without a suffix, or with k, M or G, packets are counted; with bit or B suffixes, bytes. One kbit
//! is 1,000 bits and one kB 1,000 bytes; KiB, MiB and GiB are powers of 1,024.

use limiter_common::wire::Count;

use super::model::{Limits, Over, Period, RateLimit, Terms, Unit};

/// Ethernet header, two VLAN tags and 1,500 bytes: the least that a byte burst must hold.
pub const MIN_FULL_FRAME: u64 = 1522;

/// Longest number that is read: far more than 64 bits, far less than 128.
const MAX_DIGITS: usize = 24;

/// A rate text, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateText {
    /// `unlimited`.
    Unlimited,
    /// A rate.
    Rate {
        /// Unit of the count.
        count: Count,
        /// That many per period, at least 1.
        requests_per_unit: u64,
        /// The length of time.
        period: Period,
    },
}

/// Why a text is no rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateTextError {
    /// No slash, no number, or something else in between.
    #[error(
        "{0:?} is not a rate: write one like 100/s, 10k/s, 5/day, 10mbit/s, 500kB/s or unlimited"
    )]
    Syntax(String),
    /// An unknown suffix of the number.
    #[error(
        "{text:?}: {suffix:?} is not a size: use k, M, G (packets), bit, kbit, mbit, gbit, B, kB, MB, GB, KiB, MiB or GiB"
    )]
    Suffix {
        /// The whole text.
        text: String,
        /// Text behind the number.
        suffix: String,
    },
    /// An unknown unit of time.
    #[error("{text:?}: {unit:?} is not a unit of time: use s, min, hour, day or week")]
    Unit {
        /// The whole text.
        text: String,
        /// Text behind the slash.
        unit: String,
    },
    /// No such length of time.
    #[error("{text:?}: {multiplier:?} does not fit: give 1 to {most} times a {unit}")]
    Multiplier {
        /// The whole text.
        text: String,
        /// Number before the unit of time.
        multiplier: String,
        /// The most that there may be.
        most: u64,
        /// The unit of time.
        unit: &'static str,
    },
    /// Bits or decimals that make no whole number.
    #[error("{text:?} is not a whole number of {what} per {per}: {remedy}")]
    Fraction {
        /// The whole text.
        text: String,
        /// `packets` or `bytes`.
        what: &'static str,
        /// The length of time.
        per: String,
        /// Advice: the text to write instead.
        remedy: &'static str,
    },
    /// More than 64 bits.
    #[error("{0:?} is more than 2^64 - 1 per unit of time: lower it")]
    TooLarge(String),
    /// Below zero.
    #[error("{0:?} is negative: give a rate of at least 1 per week")]
    Negative(String),
    /// Zero.
    #[error("a rate of 0 blocks the source for ever: give at least 1 per week")]
    Zero,
    /// A burst of nothing.
    #[error("unlimited has no burst: leave --burst out")]
    UnlimitedBurst,
    /// Nothing to try out.
    #[error("unlimited drops nothing that could be counted: leave --shadow out")]
    UnlimitedShadow,
    /// Nothing to tell.
    #[error("unlimited drops nothing that could be told: leave --reject out")]
    UnlimitedReject,
}

/// The limits in shadow mode, if that was asked for.
pub fn shadowed(terms: Terms, shadow: bool) -> Result<Terms, RateTextError> {
    match terms {
        Terms::Unlimited if shadow => Err(RateTextError::UnlimitedShadow),
        Terms::Limits(limits) if shadow => Ok(Limits { shadow, ..limits }.into()),
        terms => Ok(terms),
    }
}

/// The limits over which senders are told of what is dropped, if that was asked for.
pub fn rejecting(terms: Terms, reject: bool) -> Result<Terms, RateTextError> {
    match terms {
        terms if !reject => Ok(terms),
        Terms::Limits(limits) => Ok(Limits { over: Over::Reject, ..limits }.into()),
        Terms::Unlimited | Terms::Budget(_) => Err(RateTextError::UnlimitedReject),
    }
}

/// Suffix, what it counts, and how many eighths of the unit it is.
const SUFFIXES: [(&str, Count, u128); 15] = [
    ("", Count::Packets, 8),
    ("k", Count::Packets, 8_000),
    ("M", Count::Packets, 8_000_000),
    ("G", Count::Packets, 8_000_000_000),
    ("bit", Count::Bytes, 1),
    ("kbit", Count::Bytes, 1_000),
    ("mbit", Count::Bytes, 1_000_000),
    ("gbit", Count::Bytes, 1_000_000_000),
    ("B", Count::Bytes, 8),
    ("kB", Count::Bytes, 8_000),
    ("MB", Count::Bytes, 8_000_000),
    ("GB", Count::Bytes, 8_000_000_000),
    ("KiB", Count::Bytes, 8 << 10),
    ("MiB", Count::Bytes, 8 << 20),
    ("GiB", Count::Bytes, 8 << 30),
];

const UNITS: [(&str, Unit); 11] = [
    ("s", Unit::Second),
    ("sec", Unit::Second),
    ("second", Unit::Second),
    ("min", Unit::Minute),
    ("minute", Unit::Minute),
    ("h", Unit::Hour),
    ("hour", Unit::Hour),
    ("d", Unit::Day),
    ("day", Unit::Day),
    ("w", Unit::Week),
    ("week", Unit::Week),
];

impl RateText {
    /// Reads a rate.
    pub fn parse(text: &str) -> Result<Self, RateTextError> {
        if text == "unlimited" {
            return Ok(Self::Unlimited);
        }
        if text.starts_with('-') {
            return Err(RateTextError::Negative(text.to_owned()));
        }
        let syntax = || RateTextError::Syntax(text.to_owned());
        let (amount, per) = text.split_once('/').ok_or_else(syntax)?;
        let digits = amount.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(amount.len());
        let (number, suffix) = amount.split_at(digits);
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || decimals.contains('.') || number.ends_with('.') {
            return Err(syntax());
        }
        let (count, eighths) = size(suffix).ok_or_else(|| RateTextError::Suffix {
            text: text.to_owned(),
            suffix: suffix.to_owned(),
        })?;
        let period = period(text, per)?;
        let too_large = || RateTextError::TooLarge(text.to_owned());
        if whole.len() + decimals.len() > MAX_DIGITS {
            return Err(too_large());
        }
        let scale = 8 * 10u128.pow(u32::try_from(decimals.len()).unwrap_or(0));
        let number: u128 = format!("{whole}{decimals}").parse().map_err(|_source| syntax())?;
        let scaled = number.checked_mul(eighths).ok_or_else(too_large)?;
        if !scaled.is_multiple_of(scale) {
            let (what, remedy) = match count {
                Count::Packets | Count::Syns | Count::Flows => {
                    ("packets", "use a longer unit of time")
                }
                Count::Bytes => {
                    ("bytes", "a byte is 8 bits, so round it or use a longer unit of time")
                }
            };
            let per = match period.multiplier {
                1 => period.unit.name().to_owned(),
                _ => period.to_string(),
            };
            return Err(RateTextError::Fraction { text: text.to_owned(), what, per, remedy });
        }
        let requests_per_unit = u64::try_from(scaled / scale).map_err(|_source| too_large())?;
        if requests_per_unit == 0 {
            return Err(RateTextError::Zero);
        }
        Ok(Self::Rate { count, requests_per_unit, period })
    }

    /// Terms of a rule with this rate, with the burst asked for or the default one. `max_frame` in
    /// bytes.
    pub fn terms(self, burst: Option<u64>, max_frame: u64) -> Result<Terms, RateTextError> {
        match (self, burst) {
            (Self::Unlimited, None) => Ok(Terms::Unlimited),
            (Self::Unlimited, Some(_)) => Err(RateTextError::UnlimitedBurst),
            (Self::Rate { count, requests_per_unit, period }, burst) => {
                let burst =
                    burst.unwrap_or_else(|| default_burst(count, requests_per_unit, max_frame));
                Ok(RateLimit { count, requests_per_unit, period, burst }.into())
            }
        }
    }
}

/// The burst of a rate that names none: its amount, for bytes at least one frame of
/// `max_frame` bytes.
pub fn default_burst(count: Count, requests_per_unit: u64, max_frame: u64) -> u64 {
    match count {
        Count::Packets | Count::Syns | Count::Flows => requests_per_unit,
        Count::Bytes => requests_per_unit.max(max_frame).max(MIN_FULL_FRAME),
    }
}

/// Period behind the slash of `text`: a unit of time, and before it how many, unless it is one.
fn period(text: &str, per: &str) -> Result<Period, RateTextError> {
    let text = || text.to_owned();
    let digits = per.find(|c: char| !c.is_ascii_digit()).unwrap_or(per.len());
    let (multiplier, name) = per.split_at(digits);
    let (_, unit) = UNITS
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| RateTextError::Unit { text: text(), unit: per.to_owned() })?;
    if multiplier.is_empty() {
        return Ok(Period::one(*unit));
    }
    let most = Period::most(*unit);
    let number = multiplier.parse().ok().filter(|number| (1..=most).contains(&u64::from(*number)));
    number.map(|multiplier| Period { unit: *unit, multiplier }).ok_or_else(|| {
        let (multiplier, unit) = (multiplier.to_owned(), unit.name());
        RateTextError::Multiplier { text: text(), multiplier, most, unit }
    })
}

fn size(suffix: &str) -> Option<(Count, u128)> {
    // tc writes mbit, others Mbit: bits have no other meaning.
    let bits = suffix.to_ascii_lowercase();
    let wanted = if bits.ends_with("bit") { bits.as_str() } else { suffix };
    SUFFIXES.iter().find(|(name, ..)| *name == wanted).map(|(_, count, eighths)| (*count, *eighths))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::compile::display_rate;

    fn rate(count: Count, requests_per_unit: u64, unit: Unit) -> RateText {
        RateText::Rate { count, requests_per_unit, period: Period::one(unit) }
    }

    fn every(count: Count, requests_per_unit: u64, unit: Unit, multiplier: u32) -> RateText {
        let period = Period { unit, multiplier };
        RateText::Rate { count, requests_per_unit, period }
    }

    #[test]
    fn rates_are_read() {
        use Count::{Bytes, Packets};
        for (text, wanted) in [
            ("100/s", rate(Packets, 100, Unit::Second)),
            ("10k/s", rate(Packets, 10_000, Unit::Second)),
            ("1.5k/s", rate(Packets, 1_500, Unit::Second)),
            ("2M/s", rate(Packets, 2_000_000, Unit::Second)),
            ("5/day", rate(Packets, 5, Unit::Day)),
            ("600/min", rate(Packets, 600, Unit::Minute)),
            ("3/week", rate(Packets, 3, Unit::Week)),
            ("10/hour", rate(Packets, 10, Unit::Hour)),
            ("10mbit/s", rate(Bytes, 1_250_000, Unit::Second)),
            ("1Gbit/s", rate(Bytes, 125_000_000, Unit::Second)),
            ("64kbit/s", rate(Bytes, 8_000, Unit::Second)),
            ("500kB/s", rate(Bytes, 500_000, Unit::Second)),
            ("1MB/s", rate(Bytes, 1_000_000, Unit::Second)),
            ("1MiB/s", rate(Bytes, 1 << 20, Unit::Second)),
            ("1GiB/day", rate(Bytes, 1 << 30, Unit::Day)),
            ("18446744073709551615/s", rate(Packets, u64::MAX, Unit::Second)),
            ("100/5min", every(Packets, 100, Unit::Minute, 5)),
            ("10/2week", every(Packets, 10, Unit::Week, 2)),
            ("1MB/30s", every(Bytes, 1_000_000, Unit::Second, 30)),
            ("7/1day", rate(Packets, 7, Unit::Day)),
            ("1/366d", every(Packets, 1, Unit::Day, 366)),
            ("unlimited", RateText::Unlimited),
        ] {
            assert_eq!(RateText::parse(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused_with_its_remedy() {
        let syntax =
            "is not a rate: write one like 100/s, 10k/s, 5/day, 10mbit/s, 500kB/s or unlimited";
        let size = "is not a size: use k, M, G (packets), bit, kbit, mbit, gbit, B, kB, MB, GB, KiB, MiB or GiB";
        for (text, message) in [
            ("", format!("\"\" {syntax}")),
            ("100", format!("\"100\" {syntax}")),
            ("/s", format!("\"/s\" {syntax}")),
            ("1./s", format!("\"1./s\" {syntax}")),
            ("1.2.3/s", format!("\"1.2.3/s\" {syntax}")),
            ("10m/s", format!("\"10m/s\": \"m\" {size}")),
            ("10 /s", format!("\"10 /s\": \" \" {size}")),
            ("10mb/s", format!("\"10mb/s\": \"mb\" {size}")),
            (
                "10/fortnight",
                "\"10/fortnight\": \"fortnight\" is not a unit of time: use s, min, hour, day or week"
                    .to_owned(),
            ),
            (
                "10/5",
                "\"10/5\": \"5\" is not a unit of time: use s, min, hour, day or week".to_owned(),
            ),
            (
                "10/0min",
                "\"10/0min\": \"0\" does not fit: give 1 to 527040 times a minute".to_owned(),
            ),
            (
                "10/53week",
                "\"10/53week\": \"53\" does not fit: give 1 to 52 times a week".to_owned(),
            ),
            (
                "1bit/30s",
                "\"1bit/30s\" is not a whole number of bytes per 30s: a byte is 8 bits, so round it or use a longer unit of time"
                    .to_owned(),
            ),
            (
                "1bit/s",
                "\"1bit/s\" is not a whole number of bytes per second: a byte is 8 bits, so round it or use a longer unit of time"
                    .to_owned(),
            ),
            (
                "0.5/s",
                "\"0.5/s\" is not a whole number of packets per second: use a longer unit of time"
                    .to_owned(),
            ),
            (
                "18446744073709551616/s",
                "\"18446744073709551616/s\" is more than 2^64 - 1 per unit of time: lower it".to_owned(),
            ),
            ("-1/s", "\"-1/s\" is negative: give a rate of at least 1 per week".to_owned()),
            ("0/s", "a rate of 0 blocks the source for ever: give at least 1 per week".to_owned()),
        ] {
            assert_eq!(RateText::parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn a_burst_is_one_unit_s_worth_and_at_least_a_frame() {
        let burst = |text: &str, frame| match RateText::parse(text).unwrap().terms(None, frame) {
            Ok(Terms::Limits(limits)) => limits.plain().unwrap().burst,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(burst("100/min", 9022), 100);
        assert_eq!(burst("64kbit/s", 1522), 8_000);
        assert_eq!(burst("64kbit/s", 9022), 9_022);
        assert_eq!(burst("8kbit/s", 0), 1_522);
    }

    proptest! {
        #[test]
        fn what_is_displayed_is_read_back(
            bytes: bool, requests in 1u64.., unit in 0usize..5, multiplier: u64, shift in 0u32..64,
        ) {
            let count = if bytes { Count::Bytes } else { Count::Packets };
            let (requests_per_unit, unit) = ((requests >> shift).max(1), Unit::ALL[unit]);
            let multiplier = u32::try_from((multiplier >> shift) % Period::most(unit) + 1).unwrap();
            let period = Period { unit, multiplier };
            let text = display_rate(&RateLimit { count, requests_per_unit, period, burst: 1 });
            prop_assert_eq!(
                RateText::parse(&text),
                Ok(every(count, requests_per_unit, unit, multiplier))
            );
        }

        #[test]
        fn round_bit_rates_are_read_back(bytes in 1u64..1 << 50, scale in 0u32..4) {
            let requests_per_unit = bytes.saturating_mul(125 * 1000u64.pow(scale)).max(1);
            let unit = Unit::Second;
            let period = Period::one(unit);
            let text = display_rate(&RateLimit { count: Count::Bytes, requests_per_unit, period, burst: 1 });
            prop_assert_eq!(RateText::parse(&text), Ok(rate(Count::Bytes, requests_per_unit, unit)));
        }

        #[test]
        fn any_text_is_answered(text: String) {
            drop(RateText::parse(&text));
        }
    }
}
