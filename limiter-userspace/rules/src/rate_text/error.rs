//! Errors of rates and bursts, with the text that was probably meant.

use crate::dialect::Dialect;

/// Why a rate of 0 is refused, and what blocks instead.
pub(crate) const ZERO: &str = "a rate of 0 passes nothing: to block, write `action: drop` in a \
    rule, in place of the rate, or `limiter deny ADDRESS`; a rate is at least 1 per week";

/// Why a text is no rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateTextError {
    /// No slash, no number, or something else in between.
    #[error(
        "{0:?} is not a rate: write one like 100/s, 10k/s, 5/day, 10mbit/s, 500kB/s or unlimited"
    )]
    Syntax(String),
    /// Another spelling of a rate.
    #[error("{text:?} is not a rate: did you mean {}?", rates.join(" or "))]
    Meant {
        /// The whole text.
        text: String,
        /// Rates that it may have been meant as, at least one.
        rates: Vec<String>,
    },
    /// An unknown suffix of the number.
    #[error(
        "{text:?}: {suffix:?} is not a size: use k, M, G ({what}), bit, kbit, mbit, gbit, B, kB, \
         MB, GB, KiB, MiB or GiB"
    )]
    Suffix {
        /// The whole text.
        text: String,
        /// Text behind the number.
        suffix: String,
        /// What is counted without a unit of bytes.
        what: &'static str,
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
    #[error("{0:?} is more than 2^64 - 1: lower it")]
    TooLarge(String),
    /// Below zero.
    #[error("{0:?} is negative: give a rate of at least 1 per week")]
    Negative(String),
    /// A rate of zero, which would pass nothing.
    #[error("{ZERO}")]
    Zero,
    /// The same in rules for requests, which are refused by other words.
    #[error(
        "a rate of 0 passes nothing: to refuse every request, write `unit: second, \
         requests_per_unit: 0`"
    )]
    ZeroOfRequests,
    /// No number, or something behind it that is no size.
    #[error("{0:?} is not a burst: write one like 200, 10k, 60kB or 1MiB")]
    Burst(String),
    /// Bits or decimals that make no whole number.
    #[error("{text:?} is not a whole number of {what}: round it")]
    BurstFraction {
        /// The whole text.
        text: String,
        /// `packets`, `bytes`, `syns` or `flows`.
        what: &'static str,
    },
    /// A burst in another unit than the rate.
    #[error("{text:?} is in bytes, and the rate counts {what}: give a number of {what}")]
    BurstUnit {
        /// The whole text.
        text: String,
        /// `packets`, `syns` or `flows`.
        what: &'static str,
    },
    /// A burst of zero, which would pass nothing.
    #[error("a burst of 0 lets no {0} pass: give at least 1")]
    BurstZero(&'static str),
    /// A rate in another unit than the limit.
    #[error("{text:?} counts {has}, and the limit counts {wants}: {}", like(wants))]
    Counts {
        /// The whole text.
        text: String,
        /// Unit of the text.
        has: &'static str,
        /// Unit of the limit.
        wants: &'static str,
    },
    /// A burst of nothing.
    #[error("unlimited has no burst: leave --burst out")]
    UnlimitedBurst,
    /// A source, and no rate behind it.
    #[error("how much {0} may send is not said: write a rate behind it, as in 100/s")]
    Missing(String),
    /// Nothing to try out.
    #[error("unlimited drops nothing that could be counted: leave --shadow out")]
    UnlimitedShadow,
    /// Nothing to report.
    #[error("unlimited drops nothing that could be reported: leave --reject out")]
    UnlimitedReject,
    /// Nothing to wait for.
    #[error("unlimited lets all packets go on at once: leave --delay out")]
    UnlimitedDelay,
    /// A packet cannot wait and be rejected.
    #[error("a packet over the limit waits or is rejected: leave --delay or --reject out")]
    DelayedReject,
    /// A wait that cannot be held.
    #[error("packets wait 1ms to 2s, in whole milliseconds, and not {0:?}: write one like 100ms")]
    Delay(std::time::Duration),
}

impl RateTextError {
    /// The error in words of a dialect.
    #[must_use]
    pub fn of(mut self, dialect: Dialect) -> Self {
        match &mut self {
            Self::Zero if dialect == Dialect::Requests => return Self::ZeroOfRequests,
            Self::Suffix { what, .. }
            | Self::Fraction { what, .. }
            | Self::BurstFraction { what, .. }
            | Self::BurstUnit { what, .. }
            | Self::Counts { wants: what, .. } => *what = dialect.units(what),
            Self::BurstZero(noun) => *noun = dialect.noun(),
            _ => {}
        }
        self
    }
}

/// How a rate in a unit is written.
fn like(unit: &str) -> &'static str {
    if unit == "bytes" {
        "write it in bytes, as in 500kB/s or 10mbit/s"
    } else {
        "write it without a unit of bytes, as in 100/s"
    }
}
