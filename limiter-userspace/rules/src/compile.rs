//! Rules in the program's arithmetic: every overflow sum and every rounding error is dealt with
//! here, so that the program adds, shifts and compares. [`compile_set`] does it for a whole rule
//! set, and finds all that is wrong with it; where things go in the maps is for [`super::place`].

use bytemuck::Zeroable as _;
use limiter_common::time::TICK_BITS;
use limiter_common::wire::{Count, Kind, Limit};

pub use super::model::Quota;
use super::model::{Period, RateLimit, Terms, Unit};
use super::rate_text;

mod compact;
mod delay;
mod environment;
mod error;
mod layout;
mod leaky_bucket;
mod ranges;
mod record;
mod rule_error;
mod rule_id;
mod set;
mod shared;
mod two_rate;
mod window;

pub use environment::Environment;
pub use error::LimitError;
pub use leaky_bucket::leaky_bucket;
pub use ranges::values_of_class;
pub use record::{Compiled, Failure, compile, counts_flows, effective_of_spec};
pub use rule_error::{CompileError, CompileErrors, RangeError, RuleError};
pub use rule_id::{RuleId, TableForm};
pub use set::{BANS, CompiledSet, DEFAULT_BANS, OWN_BUDGETS, REPLIES, compile_set};
pub(super) use set::{CompiledKeyed, CompiledLimits, CompiledOver, CompiledTerms};
pub use shared::{SharedRequests, share_of_requests};
pub use two_rate::{Upper, two_rate};
pub use window::{SlotError, fixed_window, sliding_counter, sliding_log, sliding_slots};

/// Largest tolerance: 2^61 ticks, 2.28 years.
const MAX_TOLERANCE: u128 = 1 << 61;

/// Most ticks of a length of time elsewhere in a rule.
pub(super) const MAX_TICKS: u64 = 1 << 61;

/// `increment * max_units` stays under this; `limiter_decision::gcra::cost` relies on it.
const MAX_PRODUCT: u128 = 1 << 62;

/// More fraction bits than this change nothing.
const MAX_SHIFT: u32 = 32;

/// The smallest Ethernet frame without its checksum: what rounding hurts most.
const MIN_FRAME: u64 = 60;

/// A rounding error above one part in this many refuses the limit (promise P3: 1 %).
const MAX_ERROR_SHARE: u128 = 100;

/// The fields of a [`Limit`] that follow from a rule alone, for the table of sources: unlimited
/// where that has no room for the limits. `rule` and `since` are the plan's, and so is the action.
///
/// `max_frame` is the largest frame of the interfaces in bytes: a byte burst must hold one.
pub fn limit(terms: &Terms, max_frame: u64) -> Result<Limit, LimitError> {
    let plain = terms.limits().and_then(|limits| Some((limits, limits.plain()?)));
    let Some((limits, rate)) = plain else {
        return Ok(Limit { kind: Kind::Unlimited as u8, ..Limit::zeroed() });
    };
    let kind = if limits.shadow { Kind::Shadow } else { Kind::Limited };
    let limit = rate_limit(&rate, max_frame)?;
    Ok(Limit { kind: kind as u8, full: limits.full as u8, ..limit })
}

fn rate_limit(rate: &RateLimit, max_frame: u64) -> Result<Limit, LimitError> {
    let RateLimit { count, requests_per_unit, period, burst, .. } = *rate;
    let pace = Pace { count, units: requests_per_unit, nanos: period.nanos(), burst };
    paced(pace, max_frame, || display_rate(rate))
}

/// `units` every `nanos` nanoseconds, and so many at once.
#[derive(Clone, Copy, Debug)]
struct Pace {
    count: Count,
    units: u64,
    nanos: u64,
    burst: u64,
}

/// The limit of a pace; `shown` says what it is, for errors.
fn paced(pace: Pace, max_frame: u64, shown: impl Fn() -> String) -> Result<Limit, LimitError> {
    let Pace { count, units, nanos, burst } = pace;
    if units == 0 {
        return Err(LimitError::ZeroRate);
    }
    let least = match count {
        Count::Packets | Count::Syns | Count::Flows => 1,
        Count::Bytes => max_frame,
    };
    if burst < least {
        return Err(LimitError::BurstTooSmall { burst, least, count });
    }
    // Ticks per unit as a fraction: nanos / units.
    let period = u128::from(nanos) << TICK_BITS;
    let requests = u128::from(units);
    let smallest = match count {
        Count::Packets | Count::Syns | Count::Flows => 1,
        Count::Bytes => MIN_FRAME,
    };
    // Rounding up costs less than one tick a packet.
    if period * u128::from(smallest) < requests * MAX_ERROR_SHARE {
        let fastest = match count {
            Count::Packets | Count::Syns | Count::Flows => "320M/s",
            Count::Bytes => "153gbit/s",
        };
        return Err(LimitError::TooFast { rate: shown(), fastest });
    }
    let (increment, shift) =
        increment(count, units, nanos).ok_or_else(|| LimitError::TooSlow { rate: shown() })?;
    let tolerance = tolerance(count, burst, increment, shift);
    if tolerance > MAX_TOLERANCE {
        return Err(LimitError::BurstTooLong { burst, rate: shown() });
    }
    let compact = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
    Ok(Limit {
        increment: compact(increment),
        tolerance: compact(tolerance),
        shift: u8::try_from(shift).unwrap_or(0),
        count: count as u8,
        kind: Kind::Limited as u8,
        ..Limit::zeroed()
    })
}

/// [`Limit::increment`] and [`Limit::shift`] of `units` every `nanos` nanoseconds; `None` if that
/// is too slow.
pub(super) fn increment(count: Count, units: u64, nanos: u64) -> Option<(u128, u32)> {
    let (period, units) = (u128::from(nanos) << TICK_BITS, u128::from(units));
    let most = u128::from(count.max_units());
    let max_shift = match count {
        Count::Packets | Count::Syns | Count::Flows => 0,
        Count::Bytes => MAX_SHIFT,
    };
    (0..=max_shift)
        .rev()
        .map(|shift| ((period << shift).div_ceil(units), shift))
        .find(|(increment, _)| increment * most < MAX_PRODUCT)
}

/// [`Limit::tolerance`] of a burst, for such an increment and shift.
pub(super) fn tolerance(count: Count, burst: u64, increment: u128, shift: u32) -> u128 {
    // Every frame's cost is rounded up by less than a tick. So that a burst of exactly `burst`
    // bytes still passes, the tolerance is longer by one tick a frame, but never by a whole byte.
    let slack = match count {
        Count::Packets | Count::Syns | Count::Flows => 0,
        Count::Bytes => {
            let frames = u128::from(burst / MIN_FRAME + 1);
            frames.min((increment >> shift).saturating_sub(1))
        }
    };
    ((u128::from(burst) * increment) >> shift) + slack
}

/// The rate that the program really holds, in packets or bytes per second. Bytes: for long frames;
/// a frame's cost is rounded up by less than 1/32 ns more.
#[expect(clippy::cast_precision_loss, reason = "for display")]
pub fn effective_per_second(limit: &Limit) -> Option<f64> {
    if limit.is_unlimited() || limit.increment == 0 {
        return None;
    }
    let ticks = limit.increment as f64 / (1u64 << limit.shift) as f64;
    Some(1e9 * f64::from(1u32 << TICK_BITS) / ticks)
}

/// A rate as the command line takes it: `100/s`, `5/day`, `10mbit/s`, `1MB/s`. A rate of bytes is
/// in the units that it was written in, in the largest of which it is a whole number.
pub fn display_rate(rate: &RateLimit) -> String {
    if rate.count != Count::Bytes {
        return kept_rate(rate);
    }
    let eighths = u128::from(rate.requests_per_unit) * 8;
    let (size, unit) = rate_text::largest_size(rate.byte_units, eighths);
    format!("{}{unit}/{}", eighths / size, rate.period)
}

/// [`display_rate`] as all versions write it, to be kept on disk and compared.
pub fn kept_rate(rate: &RateLimit) -> String {
    let period = rate.period;
    match rate.count {
        Count::Packets => format!("{}/{period}", rate.requests_per_unit),
        Count::Syns => format!("{} syns/{period}", rate.requests_per_unit),
        Count::Flows => format!("{} flows/{period}", rate.requests_per_unit),
        Count::Bytes if period == Period::one(Unit::Second) => {
            let bits = u128::from(rate.requests_per_unit) * 8;
            for (size, name) in [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")] {
                if bits.is_multiple_of(size) {
                    return format!("{}{name}/s", bits / size);
                }
            }
            format!("{}B/s", rate.requests_per_unit)
        }
        Count::Bytes => format!("{}B/{period}", rate.requests_per_unit),
    }
}

/// A length of time in ticks, rounded down; at most 2^64 - 1.
pub fn ticks(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos() << TICK_BITS).unwrap_or(u64::MAX)
}

fn display_quota(quota: Quota) -> String {
    display_rate(&quota.with_burst(1))
}
