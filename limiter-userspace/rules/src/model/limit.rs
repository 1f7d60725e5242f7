//! How much may pass, and how it is counted.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use limiter_common::window::MAX_WIDTH;
use limiter_common::wire::Count;

use super::action::Mark;

/// The unit of time of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// 1 s.
    Second,
    /// 60 s.
    Minute,
    /// 3,600 s.
    Hour,
    /// 86,400 s.
    Day,
    /// 604,800 s.
    Week,
}

impl Unit {
    /// All units, shortest first.
    pub const ALL: [Self; 5] = [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week];

    /// Length in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 604_800,
        }
    }

    /// Name of the unit in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
        }
    }

    /// Short form in rates, as in `5/day`.
    pub const fn short(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "min",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
        }
    }
}

/// The length of time that a rate is for: so many units of time, at most 366 days.
///
/// Packed, because a rule set may have 100,000 rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(Rust, packed)]
pub struct Period {
    /// The unit of time.
    pub unit: Unit,
    /// Number of units: 1 to [`Period::most`].
    pub multiplier: u32,
}

impl Period {
    /// One unit of time.
    pub const fn one(unit: Unit) -> Self {
        Self { unit, multiplier: 1 }
    }

    /// The largest multiplier of a unit.
    pub const fn most(unit: Unit) -> u64 {
        MAX_WIDTH / (unit.seconds() * 1_000_000_000)
    }

    /// Length in seconds.
    pub const fn seconds(self) -> u64 {
        self.unit.seconds() * self.multiplier as u64
    }

    /// Length in nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.seconds() * 1_000_000_000
    }
}

/// As in a rate: `day`, `5min`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.multiplier != 1 {
            write!(f, "{}", { self.multiplier })?;
        }
        f.write_str(self.unit.short())
    }
}

/// Units that a rate of bytes is shown in: those that it was written in, where that is known. They
/// change nothing else, so rates that differ in nothing but these are equal.
#[derive(Clone, Copy, Debug, Default)]
pub enum ByteUnits {
    /// Those in which it has the fewest digits: it is not known how the rate was written.
    #[default]
    Shortest,
    /// As in `8mbit/s`.
    Bits,
    /// As in `1MB/s`.
    Decimal,
    /// As in `1MiB/s`.
    Binary,
}

impl PartialEq for ByteUnits {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for ByteUnits {}

impl Hash for ByteUnits {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

/// How much a source may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    /// Unit of the count.
    pub count: Count,
    /// Units per [`RateLimit::period`], at least 1.
    pub requests_per_unit: u64,
    /// The length of time.
    pub period: Period,
    /// Units at once, at least one frame.
    pub burst: u64,
    /// Units to show a rate of bytes in.
    pub byte_units: ByteUnits,
}

const _: () = assert!(size_of::<RateLimit>() == 24);

/// So many units in a length of time: a rate without a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    /// Unit of the count.
    pub count: Count,
    /// Units per [`Quota::period`], at least 1.
    pub requests_per_unit: u64,
    /// The length of time, and of the window where there is one.
    pub period: Period,
    /// Units to show a rate of bytes in.
    pub byte_units: ByteUnits,
}

impl Quota {
    /// A rate without a text of its own.
    pub const fn new(count: Count, requests_per_unit: u64, period: Period) -> Self {
        Self { count, requests_per_unit, period, byte_units: ByteUnits::Shortest }
    }

    /// This rate with a burst.
    pub const fn with_burst(self, burst: u64) -> RateLimit {
        let Self { count, requests_per_unit, period, byte_units } = self;
        RateLimit { count, requests_per_unit, period, burst, byte_units }
    }
}

impl RateLimit {
    /// This rate without a burst.
    pub const fn quota(&self) -> Quota {
        let Self { count, requests_per_unit, period, burst: _, byte_units } = *self;
        Quota { count, requests_per_unit, period, byte_units }
    }
}

/// How a limit counts; see `limiter_decision::algorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meter {
    /// A rate and a burst.
    TokenBucket(RateLimit),
    /// A rate, and how far packets may be ahead of it.
    LeakyBucket {
        /// The rate.
        quota: Quota,
        /// How far packets may be ahead of the rate.
        backlog: Duration,
    },
    /// A count in windows of the wall clock.
    FixedWindow(Quota),
    /// The time of every packet.
    SlidingLog(Quota),
    /// Two windows, weighted.
    SlidingCounter(Quota),
    /// A window of several slots.
    SlidingSlots {
        /// The rate.
        quota: Quota,
        /// 2, 4 or 8.
        slots: u8,
        /// Never over in any window, instead of never under.
        strict: bool,
    },
}

impl Meter {
    /// Rate of the meter.
    pub const fn quota(&self) -> Quota {
        match self {
            Self::TokenBucket(rate) => rate.quota(),
            Self::FixedWindow(quota)
            | Self::SlidingLog(quota)
            | Self::SlidingCounter(quota)
            | Self::LeakyBucket { quota, .. }
            | Self::SlidingSlots { quota, .. } => *quota,
        }
    }

    /// The name of the algorithm in rule files.
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "token_bucket",
            Self::LeakyBucket { .. } => "leaky_bucket",
            Self::FixedWindow(_) => "fixed_window",
            Self::SlidingLog(_) => "sliding_log",
            Self::SlidingCounter(_) => "sliding_counter",
            Self::SlidingSlots { .. } => "sliding_slots",
        }
    }
}

/// A second token bucket above a limit, which makes the limit soft: a packet over it is marked and
/// passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Upper {
    /// Bound on all that passes.
    Ceiling(RateLimit),
    /// Bound on all that passes, over a token bucket: the peak rate of RFC 2698.
    Peak(RateLimit),
    /// Bound on what passes beside the committed part: RFC 4115.
    Excess(RateLimit),
}

impl Upper {
    /// Rate and burst of the upper limit.
    pub const fn rate(&self) -> &RateLimit {
        match self {
            Self::Ceiling(rate) | Self::Peak(rate) | Self::Excess(rate) => rate,
        }
    }

    /// Name of the upper limit in rule files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ceiling(_) => "ceiling",
            Self::Peak(_) => "peak",
            Self::Excess(_) => "excess",
        }
    }
}

/// One limit of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleLimit {
    /// How much may pass.
    pub meter: Meter,
    /// Upper limit, which makes the limit soft.
    pub upper: Option<Upper>,
    /// How a packet over the soft limit is marked; `None` to count it only.
    pub mark: Option<Mark>,
}

impl RuleLimit {
    /// A limit without a second one above it: what is over it meets the rule's action.
    pub const fn hard(meter: Meter) -> Self {
        Self { meter, upper: None, mark: None }
    }
}

impl From<RateLimit> for RuleLimit {
    fn from(rate: RateLimit) -> Self {
        Self::hard(Meter::TokenBucket(rate))
    }
}

/// The limits of a rule or of a budget: one to four, and a ceiling, peak or excess counts as one;
/// none for a rule that blocks.
///
/// A rule set may have 100,000 rules, and most have one token bucket: that stands here as it is,
/// anything else in a list of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitList(List);

/// The two forms of a [`LimitList`]. A hard token bucket alone is always a bucket, so equal lists
/// have equal forms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum List {
    Bucket(RateLimit),
    Limits(Box<[RuleLimit]>),
}

impl LimitList {
    /// The limits in their order.
    pub fn iter(&self) -> impl Iterator<Item = RuleLimit> + Clone + '_ {
        let (bucket, limits) = match &self.0 {
            List::Bucket(rate) => (Some(RuleLimit::from(*rate)), &[][..]),
            List::Limits(limits) => (None, &limits[..]),
        };
        bucket.into_iter().chain(limits.iter().copied())
    }

    /// The first limit; none of a rule that blocks.
    pub fn first(&self) -> Option<RuleLimit> {
        self.iter().next()
    }

    /// Number of limits; a ceiling, peak or excess is part of its limit.
    pub const fn len(&self) -> usize {
        match &self.0 {
            List::Bucket(_) => 1,
            List::Limits(limits) => limits.len(),
        }
    }

    /// True if there are none: nothing passes.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rate, if this is one hard token bucket on packets or bytes.
    pub const fn plain(&self) -> Option<RateLimit> {
        match &self.0 {
            List::Bucket(rate) => match rate.count {
                Count::Packets | Count::Bytes => Some(*rate),
                Count::Syns | Count::Flows => None,
            },
            List::Limits(_) => None,
        }
    }
}

impl From<RateLimit> for LimitList {
    fn from(rate: RateLimit) -> Self {
        Self(List::Bucket(rate))
    }
}

impl From<RuleLimit> for LimitList {
    fn from(limit: RuleLimit) -> Self {
        Self(match limit {
            RuleLimit { meter: Meter::TokenBucket(rate), upper: None, mark: None } => {
                List::Bucket(rate)
            }
            other => List::Limits(Box::new([other])),
        })
    }
}

impl From<Vec<RuleLimit>> for LimitList {
    fn from(limits: Vec<RuleLimit>) -> Self {
        match limits.as_slice() {
            [only] => Self::from(*only),
            _ => Self(List::Limits(limits.into_boxed_slice())),
        }
    }
}
