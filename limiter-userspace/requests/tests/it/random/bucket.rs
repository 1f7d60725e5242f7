//! The algorithms, as their page has them: a debt in ticks for the buckets of a rate, and for the
//! others the list of all that passed.

use std::fmt;

/// A moment in nanoseconds: since the boot, and since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) boot: u64,
    pub(super) wall: u64,
}

impl Time {
    pub(super) const fn plus(self, nanos: u64) -> Self {
        Self { boot: self.boot + nanos, wall: self.wall + nanos }
    }
}

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const DAY: u64 = 86_400 * SECOND;

/// Units of time of a file; the last two are those of the calendar.
const UNITS: [(&str, u64); 7] = [
    ("second", SECOND),
    ("minute", 60 * SECOND),
    ("hour", 3600 * SECOND),
    ("day", DAY),
    ("week", 7 * DAY),
    ("month", 0),
    ("year", 0),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Token {
        burst: u64,
    },
    /// The backlog in nanoseconds.
    Leaky {
        backlog: u64,
    },
    Fixed,
    Log,
    Counter,
    Slots {
        slots: u64,
        strict: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) amount: u64,
    /// Its index in [`UNITS`].
    pub(super) unit: usize,
    pub(super) multiplier: u64,
    pub(super) algorithm: Algorithm,
    /// Amount and burst of its ceiling.
    pub(super) ceiling: Option<(u64, u64)>,
}

/// The fields of the file.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { amount, unit, multiplier, .. } = self;
        let (unit, _) = UNITS[*unit];
        let unit = match multiplier {
            1 => format!("unit: {unit}"),
            _ => format!("unit: {unit}, unit_multiplier: {multiplier}"),
        };
        write!(f, "{unit}, requests_per_unit: {amount}")?;
        match self.algorithm {
            Algorithm::Token { burst } => write!(f, ", burst: {burst}")?,
            Algorithm::Leaky { backlog } => {
                write!(f, ", algorithm: leaky_bucket, backlog: {}ms", backlog / 1_000_000)?;
            }
            Algorithm::Fixed => write!(f, ", algorithm: fixed_window")?,
            Algorithm::Log => write!(f, ", algorithm: sliding_log")?,
            Algorithm::Counter => write!(f, ", algorithm: sliding_counter")?,
            Algorithm::Slots { slots, strict } => {
                write!(f, ", algorithm: sliding_slots, slots: {slots}, strict: {strict}")?;
            }
        }
        if let Some((amount, burst)) = self.ceiling {
            write!(f, ", ceiling: {{{unit}, requests_per_unit: {amount}, burst: {burst}}}")?;
        }
        Ok(())
    }
}

/// What a key has of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meter {
    /// When nothing is owed, in ticks of 1/32 ns.
    pub(super) free: u128,
    /// How many hits passed, and when.
    passed: Vec<(Time, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) remaining: u64,
    pub(super) reset: u64,
    pub(super) wait: Option<u64>,
}

const fn ticks(nanos: u64) -> u128 {
    nanos as u128 * 32
}

impl Limit {
    /// The limit, and its ceiling behind it.
    pub(super) fn all(self) -> impl Iterator<Item = Self> {
        let ceiling = self.ceiling.map(|(amount, burst)| Self {
            amount,
            algorithm: Algorithm::Token { burst },
            ceiling: None,
            ..self
        });
        std::iter::once(self).chain(ceiling)
    }

    /// True if it is a rate, which can say when.
    pub(super) const fn is_rate(&self) -> bool {
        matches!(self.algorithm, Algorithm::Token { .. } | Algorithm::Leaky { .. })
    }

    const fn months(&self) -> Option<u64> {
        match UNITS[self.unit].0.as_bytes() {
            b"month" => Some(self.multiplier),
            b"year" => Some(12),
            _ => None,
        }
    }

    const fn width(&self) -> u64 {
        match self.months() {
            Some(_) => 366 * DAY,
            None => UNITS[self.unit].1 * self.multiplier,
        }
    }

    /// Ticks that a hit is worth.
    pub(super) const fn increment(&self) -> u128 {
        ticks(self.width()).div_ceil(self.amount as u128)
    }

    /// The number of the aligned window, or slot, of a moment.
    fn window(&self, at: Time) -> u64 {
        if let Some(months) = self.months() {
            let (year, month) = month_of(at.wall / DAY);
            return (year * 12 + month) / months;
        }
        match self.algorithm {
            // Since Monday, 1 January 1900.
            Algorithm::Fixed => (at.wall + 2_208_988_800 * SECOND) / self.width(),
            Algorithm::Slots { slots, strict: false } => at.boot / (self.width() / slots),
            Algorithm::Slots { slots, strict: true } => at.boot / self.width().div_ceil(slots - 1),
            _ => at.boot / self.width(),
        }
    }

    /// Hits that count at a moment, of those of a limit that counts, rounded up.
    fn used(&self, meter: &Meter, at: Time) -> u64 {
        let now = self.window(at);
        let sum = |counts: &dyn Fn(Time) -> bool| -> u64 {
            meter.passed.iter().filter(|(then, _)| counts(*then)).map(|(_, hits)| hits).sum()
        };
        match self.algorithm {
            Algorithm::Log => sum(&|then| then.boot + self.width() > at.boot),
            Algorithm::Slots { slots, .. } => sum(&|then| self.window(then) + slots > now),
            Algorithm::Counter => {
                let current = sum(&|then| self.window(then) == now);
                let before = sum(&|then| self.window(then) + 1 == now);
                let left = self.width() - at.boot % self.width();
                let weighted = u128::from(before) * u128::from(left);
                current + u64::try_from(weighted.div_ceil(u128::from(self.width()))).unwrap()
            }
            _ => sum(&|then| self.window(then) == now),
        }
    }

    pub(super) fn conforms(&self, meter: &Meter, at: Time, hits: u64) -> bool {
        let now = ticks(at.boot);
        match self.algorithm {
            Algorithm::Token { burst } => {
                let owed = meter.free.max(now) + u128::from(hits) * self.increment();
                owed <= now + u128::from(burst) * self.increment()
            }
            Algorithm::Leaky { backlog } => meter.free <= now + ticks(backlog),
            _ => self.used(meter, at) + hits <= self.amount,
        }
    }

    pub(super) fn charge(&self, meter: &mut Meter, at: Time, hits: u64) {
        if self.is_rate() {
            let cost = u128::from(hits) * self.increment();
            meter.free = meter.free.max(ticks(at.boot)) + cost;
        } else {
            meter.passed.push((at, hits));
        }
    }

    pub(super) fn left(&self, meter: &Meter, at: Time, hits: u64) -> Left {
        let nothing_used = |nanos| {
            let rate = self.is_rate();
            rate && meter.free <= ticks(at.boot + nanos)
                || !rate && self.used(meter, at.plus(nanos)) == 0
        };
        let passes = |nanos| self.conforms(meter, at.plus(nanos), hits);
        Left {
            remaining: self.remaining(meter, at),
            reset: least(nothing_used).unwrap(),
            wait: least(passes),
        }
    }

    fn remaining(&self, meter: &Meter, at: Time) -> u64 {
        let now = ticks(at.boot);
        let owed = meter.free.max(now) - now;
        let room = match self.algorithm {
            Algorithm::Token { burst } => {
                (u128::from(burst) * self.increment()).saturating_sub(owed) / self.increment()
            }
            Algorithm::Leaky { backlog } if owed > ticks(backlog) => 0,
            // One more is let in on top of the backlog.
            Algorithm::Leaky { backlog } => (ticks(backlog) - owed) / self.increment() + 1,
            _ => u128::from(self.amount.saturating_sub(self.used(meter, at))),
        };
        u64::try_from(room).unwrap()
    }
}

/// The least number of nanoseconds with a property that all larger numbers have, too.
pub(super) fn least(has: impl Fn(u64) -> bool) -> Option<u64> {
    if has(0) {
        return Some(0);
    }
    // Longer than any limit here.
    let (mut low, mut high) = (0, 2000 * DAY);
    if !has(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if has(middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

/// Year and month, from 0, of a day since 1970.
fn month_of(days: u64) -> (u64, u64) {
    let (mut year, mut day) = (1970, days);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    for (month, length) in (0..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
        if day < length {
            return (year, month);
        }
        day -= length;
    }
    unreachable!("a year has twelve months")
}
