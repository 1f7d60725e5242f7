//! A rate, as people write it on the command line and in rule files: `100/s`, `10k/s`, `5/day`,
//! `100/5min`, `10mbit/s`, `1MiB/s`.
//!
//! Without a suffix, or with k, M or G, packets are counted; with bit or B suffixes, bytes. One
//! kbit is 1,000 bits and one kB 1,000 bytes; KiB, MiB and GiB are powers of 1,024. `10 syns/min`
//! and `10 flows/min` are what `limiter list` shows of limits that count so.

use std::time::Duration;

use limiter_common::wire::Count;

use super::dialect::Dialect;
use super::model::{ByteUnits, Delay, Limits, Over, Period, Quota, RateLimit, Terms, Unit};

mod error;
mod meant;

pub use error::RateTextError;
pub(crate) use error::ZERO;

/// Ethernet header, two VLAN tags and 1,500 bytes: the least that a byte burst must hold.
pub const MIN_FULL_FRAME: u64 = 1522;

/// Longest number that is read: far more than 64 bits, far less than 128.
const MAX_DIGITS: usize = 24;

/// A rate text, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateText {
    /// `unlimited`.
    Unlimited,
    /// A number of units in a length of time.
    Rate {
        /// Unit of the count.
        count: Count,
        /// That many per period, at least 1.
        requests_per_unit: u64,
        /// The length of time.
        period: Period,
        /// Units of a rate of bytes.
        byte_units: ByteUnits,
    },
}

/// The unit of this name.
pub fn count_named(name: &str) -> Option<Count> {
    let counts = [Count::Packets, Count::Bytes, Count::Syns, Count::Flows];
    counts.into_iter().find(|count| count.name() == name)
}

/// The limits in shadow mode, if that was asked for.
pub fn shadowed(terms: Terms, shadow: bool) -> Result<Terms, RateTextError> {
    match terms {
        Terms::Unlimited if shadow => Err(RateTextError::UnlimitedShadow),
        Terms::Limits(limits) if shadow => Ok(Limits { shadow, ..limits }.into()),
        terms => Ok(terms),
    }
}

/// The limits over which senders are notified of what is dropped, if that was asked for.
pub fn rejecting(terms: Terms, reject: bool) -> Result<Terms, RateTextError> {
    match terms {
        terms if !reject => Ok(terms),
        Terms::Limits(limits) => Ok(Limits { over: Over::Reject, ..limits }.into()),
        Terms::Unlimited | Terms::Budget(_) => Err(RateTextError::UnlimitedReject),
    }
}

/// The limits that let packets wait so many milliseconds at most, if that was asked for.
pub fn delaying(terms: Terms, longest_ms: Option<u64>) -> Result<Terms, RateTextError> {
    let Some(longest) = longest_ms.map(Duration::from_millis) else { return Ok(terms) };
    match terms {
        Terms::Limits(limits) if limits.over != Over::Drop => Err(RateTextError::DelayedReject),
        Terms::Limits(limits) if Delay::WAITS.contains(&longest) => {
            Ok(Limits { over: Over::Delay(Delay { longest, ecn: false }), ..limits }.into())
        }
        Terms::Limits(_) => Err(RateTextError::Delay(longest)),
        Terms::Unlimited | Terms::Budget(_) => Err(RateTextError::UnlimitedDelay),
    }
}

/// Suffix, what it counts, and how many eighths of the unit it is.
const SUFFIXES: [(&str, Count, u128); 17] = [
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
    ("syns", Count::Syns, 8),
    ("flows", Count::Flows, 8),
];

impl ByteUnits {
    /// Units of a suffix of a rate.
    fn of(suffix: &str) -> Self {
        if suffix.ends_with("bit") {
            Self::Bits
        } else if suffix.ends_with("iB") {
            Self::Binary
        } else if suffix.ends_with('B') {
            Self::Decimal
        } else {
            Self::Shortest
        }
    }
}

/// The largest size of some units of which a number of bits is a multiple: bits and suffix. A byte
/// where that is none.
pub(crate) fn largest_size(units: ByteUnits, bits: u128) -> (u128, &'static str) {
    let of_units = |suffix: &str| match units {
        ByteUnits::Shortest => true,
        ByteUnits::Bits => suffix.ends_with("bit"),
        ByteUnits::Decimal => suffix.ends_with('B') && !suffix.ends_with("iB"),
        ByteUnits::Binary => suffix.ends_with("iB"),
    };
    // Of two with as many digits: bytes, as bursts are.
    let digits = |size: u128| (bits / size).checked_ilog10();
    SUFFIXES
        .into_iter()
        .filter(|(suffix, count, size)| {
            *count == Count::Bytes && of_units(suffix) && *size > 1 && bits.is_multiple_of(*size)
        })
        .min_by_key(|(suffix, _, size)| (digits(*size), !suffix.ends_with('B'), u128::MAX - *size))
        .map_or((8, "B"), |(suffix, _, size)| (size, suffix))
}

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
    ///
    /// # Errors
    ///
    /// Why the text is none, with the rate that was probably meant.
    pub fn parse(text: &str) -> Result<Self, RateTextError> {
        Self::read(text).map_err(|error| match error {
            RateTextError::Syntax(_)
            | RateTextError::Suffix { .. }
            | RateTextError::Unit { .. } => match meant::meant(text) {
                rates if rates.is_empty() => error,
                rates => RateTextError::Meant { text: text.to_owned(), rates },
            },
            other => other,
        })
    }

    fn read(text: &str) -> Result<Self, RateTextError> {
        if text == "unlimited" {
            return Ok(Self::Unlimited);
        }
        if text.starts_with('-') {
            return Err(RateTextError::Negative(text.to_owned()));
        }
        let syntax = || RateTextError::Syntax(text.to_owned());
        let (amount, per) = text.split_once('/').ok_or_else(syntax)?;
        let (number, suffix) = number_and_suffix(amount).ok_or_else(syntax)?;
        let (count, eighths) = size(suffix).ok_or_else(|| RateTextError::Suffix {
            text: text.to_owned(),
            suffix: suffix.to_owned(),
            what: Count::Packets.name(),
        })?;
        let period = period(text, per)?;
        let requests_per_unit = whole(number, eighths).map_err(|wrong| match wrong {
            NotWhole::TooLarge => RateTextError::TooLarge(text.to_owned()),
            NotWhole::Fraction => {
                let remedy = match count {
                    Count::Packets | Count::Syns | Count::Flows => "use a longer unit of time",
                    Count::Bytes => "a byte is 8 bits, so round it or use a longer unit of time",
                };
                let per = match period.multiplier {
                    1 => period.unit.name().to_owned(),
                    _ => period.to_string(),
                };
                RateTextError::Fraction { text: text.to_owned(), what: count.name(), per, remedy }
            }
        })?;
        if requests_per_unit == 0 {
            return Err(RateTextError::Zero);
        }
        Ok(Self::Rate { count, requests_per_unit, period, byte_units: ByteUnits::of(suffix) })
    }

    /// This rate as one that counts `count`, if that is said elsewhere; none of `unlimited`. A rate
    /// without a unit of bytes is one of packets, SYNs or flows.
    ///
    /// # Errors
    ///
    /// The rate counts another unit. `text` is the text that it was read from.
    pub fn quota(self, count: Option<Count>, text: &str) -> Result<Option<Quota>, RateTextError> {
        let Self::Rate { count: has, requests_per_unit, period, byte_units } = self else {
            return Ok(None);
        };
        let count = match (has, count) {
            (has, None) => has,
            (has, Some(wants)) if has == wants => wants,
            (Count::Packets, Some(wants @ (Count::Syns | Count::Flows))) => wants,
            (has, Some(wants)) => {
                let (text, has, wants) = (text.to_owned(), has.name(), wants.name());
                return Err(RateTextError::Counts { text, has, wants });
            }
        };
        Ok(Some(Quota { count, requests_per_unit, period, byte_units }))
    }

    /// This rate as one of `count`: [`RateText::quota`].
    ///
    /// # Errors
    ///
    /// The rate counts another unit. `text` is the text that it was read from.
    pub fn counting(self, count: Option<Count>, text: &str) -> Result<Self, RateTextError> {
        Ok(self.quota(count, text)?.map_or(self, |quota| {
            let Quota { count, requests_per_unit, period, byte_units } = quota;
            Self::Rate { count, requests_per_unit, period, byte_units }
        }))
    }

    /// Terms of a rule with this rate, with the burst asked for or the default one. `max_frame` in
    /// bytes.
    pub fn terms(self, burst: Option<u64>, max_frame: u64) -> Result<Terms, RateTextError> {
        match (self, burst) {
            (Self::Unlimited, None) => Ok(Terms::Unlimited),
            (Self::Unlimited, Some(_)) => Err(RateTextError::UnlimitedBurst),
            (Self::Rate { count, requests_per_unit, period, byte_units }, burst) => {
                let burst =
                    burst.unwrap_or_else(|| default_burst(count, requests_per_unit, max_frame));
                Ok(RateLimit { count, requests_per_unit, period, burst, byte_units }.into())
            }
        }
    }
}

/// Reads a burst of a rate that counts `count`: `200`, `10k`, `60kB`, `1MiB`. A number without a
/// unit, or with k, M or G, is in the unit that is counted.
///
/// # Errors
///
/// Why the text is no such burst.
pub fn burst(text: &str, count: Count) -> Result<u64, RateTextError> {
    let syntax = || RateTextError::Burst(text.to_owned());
    let (number, suffix) = number_and_suffix(text).ok_or_else(syntax)?;
    let (unit, eighths) = size(suffix).ok_or_else(syntax)?;
    match (unit, count) {
        (Count::Packets, _) => {}
        (unit, count) if unit == count => {}
        (Count::Bytes, count) => {
            return Err(RateTextError::BurstUnit { text: text.to_owned(), what: count.name() });
        }
        (Count::Syns | Count::Flows, _) => return Err(syntax()),
    }
    match whole(number, eighths) {
        Ok(0) => Err(RateTextError::BurstZero(Dialect::Packets.noun())),
        Ok(burst) => Ok(burst),
        Err(NotWhole::TooLarge) => Err(RateTextError::TooLarge(text.to_owned())),
        Err(NotWhole::Fraction) => {
            Err(RateTextError::BurstFraction { text: text.to_owned(), what: count.name() })
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

/// A rate in the units of another one, which stands in `text` as all limits are shown: `2mbit/s`,
/// `sliding_log 10 syns/min`. None where there is none. To one part in 10,000 at least.
#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
pub fn like(text: &str, per_second: f64) -> Option<String> {
    let mut words = text.split(' ');
    let is_amount = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
    let amount = words.find(|word| is_amount(word))?;
    let (unit, space) = match amount.split_once('/') {
        Some(_) => (amount, ""),
        None => (words.next()?, " "),
    };
    let (suffix, per) = unit.split_once('/')?;
    let suffix = suffix.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (_, eighths) = size(suffix)?;
    let period = period(text, per).ok()?;
    let value = per_second * period.seconds() as f64 * 8.0 / eighths as f64;
    let value = if value < 1000.0 { format!("{value:.4}") } else { format!("{value:.1}") };
    let value = value.trim_end_matches('0').trim_end_matches('.');
    Some(format!("{value}{space}{suffix}/{per}"))
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

/// A number, maybe with decimals, and the text behind it.
fn number_and_suffix(amount: &str) -> Option<(&str, &str)> {
    let digits = amount.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(amount.len());
    let (number, suffix) = amount.split_at(digits);
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !whole.is_empty() && !decimals.contains('.') && !number.ends_with('.');
    is_number.then(|| (number, suffix.trim()))
}

/// Why an amount is no whole number of 64 bits.
enum NotWhole {
    Fraction,
    TooLarge,
}

/// A number of a size, in whole units.
fn whole(number: &str, eighths: u128) -> Result<u64, NotWhole> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + decimals.len() > MAX_DIGITS {
        return Err(NotWhole::TooLarge);
    }
    let scale = 8 * 10u128.pow(u32::try_from(decimals.len()).unwrap_or(0));
    let number: u128 =
        format!("{whole}{decimals}").parse().map_err(|_source| NotWhole::TooLarge)?;
    let scaled = number.checked_mul(eighths).ok_or(NotWhole::TooLarge)?;
    if !scaled.is_multiple_of(scale) {
        return Err(NotWhole::Fraction);
    }
    u64::try_from(scaled / scale).map_err(|_source| NotWhole::TooLarge)
}

fn size(suffix: &str) -> Option<(Count, u128)> {
    // tc writes mbit, others Mbit: bits have no other meaning.
    let bits = suffix.to_ascii_lowercase();
    let wanted = if bits.ends_with("bit") { bits.as_str() } else { suffix };
    SUFFIXES.iter().find(|(name, ..)| *name == wanted).map(|(_, count, eighths)| (*count, *eighths))
}

#[cfg(test)]
mod tests;
