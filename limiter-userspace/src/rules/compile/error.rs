//! Errors of a limit.

use limiter_common::wire::Count;

/// Why a limit cannot be held, or not exactly enough.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A rate of zero.
    #[error("a rate of 0 blocks the source for ever: give at least 1 per week")]
    ZeroRate,
    /// Less than one frame.
    #[error("a burst of {burst} {what} lets no packet pass: give at least {least}", what = what(*.count))]
    BurstTooSmall {
        /// The burst asked for.
        burst: u64,
        /// The least that works.
        least: u64,
        /// Unit of the count.
        count: Count,
    },
    /// The clock's grain would be more than 1 % of a packet.
    #[error("{rate} is faster than can be held to 1 %: the fastest is {fastest}")]
    TooFast {
        /// The rate asked for.
        rate: String,
        /// The fastest rate that can be held.
        fastest: &'static str,
    },
    /// Bytes at a rate for packets.
    #[error("{rate} is slower than one byte in 18 minutes: limit packets instead")]
    TooSlow {
        /// The rate asked for.
        rate: String,
    },
    /// Longer than the state can hold.
    #[error("a burst of {burst} at {rate} takes more than 2 years to refill: lower the burst")]
    BurstTooLong {
        /// The burst asked for.
        burst: u64,
        /// Rate of the limit, in words.
        rate: String,
    },
    /// Less than one frame in a window.
    #[error(
        "{rate} lets no frame pass in its window: give at least {least} {what}, or a token bucket",
        what = what(*.count)
    )]
    WindowTooSmall {
        /// The rate asked for.
        rate: String,
        /// The least that works.
        least: u64,
        /// Unit of the count.
        count: Count,
    },
    /// The count does not fit its word.
    #[error("{rate} is more than a window can count, {most}: use a token bucket or a shorter unit")]
    WindowTooLarge {
        /// The rate asked for.
        rate: String,
        /// The largest limit of this window.
        most: u64,
    },
    /// Not a number of slots that there is.
    #[error("a sliding window of {0} slots: give 2, 4 or 8")]
    Slots(u8),
    /// A log of bytes.
    #[error("{0}: a log keeps packets, not bytes: use sliding slots or a token bucket")]
    LogOfBytes(String),
    /// More stamps than a key may have.
    #[error(
        "{rate} needs more than the {most} stamps of a log: use sliding slots or a token bucket"
    )]
    LogTooLarge {
        /// The rate asked for.
        rate: String,
        /// The most that a log holds.
        most: u8,
    },
    /// Longer than the state can hold.
    #[error("a backlog of {0:?} is more than 2 years: lower it")]
    BacklogTooLong(std::time::Duration),
    /// Two limits of one marker that count different things.
    #[error("{lower} and {upper} count different things: give both in packets or both in bytes")]
    DifferentCounts {
        /// The committed limit.
        lower: String,
        /// The one above it.
        upper: String,
    },
    /// A peak or ceiling below what it is over.
    #[error("the upper rate {upper} is below the lower one, {lower}: raise it or swap the two")]
    UpperBelowLower {
        /// The committed limit.
        lower: String,
        /// The one above it.
        upper: String,
    },
    /// A marker over another algorithm.
    #[error("{upper} needs a token bucket below it: use ceiling, or remove the algorithm")]
    MarkerOverOther {
        /// `peak` or `excess`.
        upper: &'static str,
    },
    /// More limits than a rule may have.
    #[error("{limits} limits: a rule has at most 4, and a ceiling, peak or excess counts as one")]
    TooManyLimits {
        /// So many.
        limits: usize,
    },
    /// More state than a key may have.
    #[error(
        "needs {needed} of the {words} words of a key, and the limits before it leave {left}: \
         use sliding slots, a smaller log, or fewer limits"
    )]
    TooManyWords {
        /// Words that the limit needs.
        needed: u8,
        /// Words that are left.
        left: usize,
        /// All that there are.
        words: usize,
    },
    /// Marks that differ.
    #[error(
        "marks another way than the limit before it: a rule marks in one way, so give one mark"
    )]
    TwoMarks,
}

const fn what(count: Count) -> &'static str {
    match count {
        Count::Packets => "packets",
        Count::Bytes => "bytes",
        Count::Syns => "SYNs",
        Count::Flows => "flows",
    }
}
