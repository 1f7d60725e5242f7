//! The limits of a rule as the program's record has them.

use limiter_common::window::WindowLimit;
use limiter_common::wire::{Algorithm, Count, Kind, LimitSpec, Record, Role, WORDS};

use super::error::LimitError;
use super::two_rate::{self, two_rate};
use super::{
    Quota, SlotError, display_quota, effective_per_second, fixed_window, leaky_bucket, rate_limit,
    sliding_counter, sliding_log, sliding_slots,
};
use crate::model::{LimitList, Mark, Meter, RuleLimit, Upper};

/// The part of a [`Record`] that follows from the limits alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Limits, their number and the kind; no rule, no action, no budget.
    pub record: Record,
    /// True if any of the limits is soft.
    pub soft: bool,
    /// How a packet over the soft limits is marked; `None` to leave it as it is.
    pub mark: Option<Mark>,
}

/// Error of one limit of several, with its number from 0.
pub type Failure = (usize, LimitError);

/// Compiles limits in their order; an error names the limit by its number, from 0.
///
/// `max_frame` is the largest frame of the interfaces in bytes.
pub fn compile(limits: &LimitList, shadow: bool, max_frame: u64) -> Result<Compiled, Failure> {
    let kind = if shadow { Kind::Shadow } else { Kind::Limited };
    let mut compiled = Compiled {
        record: Record { kind: kind as u8, ..Record::default() },
        soft: false,
        mark: None,
    };
    let mut count = 0;
    let mut first: usize = 0;
    for (index, limit) in limits.iter().enumerate() {
        let failed = |error| (index, error);
        if limit.upper.is_some() {
            if compiled.soft && compiled.mark != limit.mark {
                return Err(failed(LimitError::TwoMarks));
            }
            (compiled.soft, compiled.mark) = (true, limit.mark);
        }
        let (lower, upper) = specs_of(&limit, max_frame).map_err(failed)?;
        for spec in [Some(lower), upper].into_iter().flatten() {
            let Some(next) = compiled.record.limits.get_mut(count) else {
                let soft = limits.iter().filter(|limit| limit.upper.is_some()).count();
                return Err(failed(LimitError::TooManyLimits { limits: limits.len() + soft }));
            };
            let left = WORDS.saturating_sub(first);
            let place = match u8::try_from(first) {
                Ok(place) if usize::from(spec.words) <= left => place,
                _ => {
                    let needed = spec.words;
                    return Err(failed(LimitError::TooManyWords { needed, left, words: WORDS }));
                }
            };
            *next = spec.at(place);
            count += 1;
            first += usize::from(spec.words);
        }
    }
    compiled.record.count = u8::try_from(count).unwrap_or(u8::MAX);
    Ok(compiled)
}

/// All that is wrong with limits: of each one by itself, or else of them together.
pub(super) fn failures(limits: &LimitList, max_frame: u64) -> Vec<Failure> {
    let alone = |(index, limit): (usize, RuleLimit)| {
        let error = compile(&limit.into(), false, max_frame).err()?;
        Some((index, error.1))
    };
    let alone: Vec<Failure> = limits.iter().enumerate().filter_map(alone).collect();
    if alone.is_empty() {
        return compile(limits, false, max_frame).err().into_iter().collect();
    }
    alone
}

/// One limit, and the one above it that makes it soft.
fn specs_of(
    limit: &RuleLimit,
    max_frame: u64,
) -> Result<(LimitSpec, Option<LimitSpec>), LimitError> {
    let Some(upper) = &limit.upper else {
        return Ok((spec(&limit.meter, Role::Hard, max_frame)?, None));
    };
    let role = match upper {
        Upper::Ceiling(_) | Upper::Peak(_) => Role::Hard,
        Upper::Excess(_) => Role::Excess,
    };
    let bucket = |limit, role| LimitSpec::of_rate(Algorithm::TokenBucket, &limit, role);
    match (&limit.meter, upper) {
        (Meter::TokenBucket(committed), _) => {
            let meaning = match upper {
                Upper::Ceiling(_) | Upper::Peak(_) => two_rate::Upper::Total,
                Upper::Excess(_) => two_rate::Upper::Excess,
            };
            let both = two_rate(committed, upper.rate(), meaning, max_frame)?;
            Ok((bucket(both.committed, Role::Soft), Some(bucket(both.upper, role))))
        }
        (meter, Upper::Ceiling(ceiling)) => {
            two_rate::upper_is_above(meter.quota(), ceiling.quota())?;
            let lower = spec(meter, Role::Soft, max_frame)?;
            Ok((lower, Some(bucket(rate_limit(ceiling, max_frame)?, role))))
        }
        (_, Upper::Peak(_) | Upper::Excess(_)) => {
            Err(LimitError::MarkerOverOther { upper: upper.name() })
        }
    }
}

pub(super) fn spec(meter: &Meter, role: Role, max_frame: u64) -> Result<LimitSpec, LimitError> {
    let window = |algorithm, limit: WindowLimit| LimitSpec::of_window(algorithm, &limit, role);
    Ok(match *meter {
        Meter::TokenBucket(rate) => {
            let limit = rate_limit(&rate, max_frame)?;
            LimitSpec::of_rate(Algorithm::TokenBucket, &limit, role)
        }
        Meter::LeakyBucket { quota, backlog } => {
            let limit = leaky_bucket(quota, backlog, max_frame)?;
            LimitSpec::of_rate(Algorithm::LeakyBucket, &limit, role)
        }
        Meter::FixedWindow(quota) => {
            window(Algorithm::FixedWindow, fixed_window(quota, max_frame)?)
        }
        Meter::SlidingCounter(quota) => {
            window(Algorithm::SlidingCounter, sliding_counter(quota, max_frame)?)
        }
        Meter::SlidingSlots { quota, slots, strict } => {
            let error = if strict { SlotError::Strict } else { SlotError::Lenient };
            window(Algorithm::SlidingSlots, sliding_slots(quota, slots, error, max_frame)?)
        }
        Meter::SlidingLog(quota) => log(quota, role)?,
    })
}

/// A log of at most as many stamps as a key has room for beside the head.
fn log(quota: Quota, role: Role) -> Result<LimitSpec, LimitError> {
    let limit = sliding_log(quota)?;
    if usize::from(limit.size) >= WORDS {
        let most = u8::try_from(WORDS).unwrap_or(u8::MAX).saturating_sub(1);
        return Err(LimitError::LogTooLarge { rate: display_quota(quota), most });
    }
    Ok(LimitSpec::of_log(&limit, quota.count, role))
}

/// The rate that the program really holds, in units per second.
#[expect(clippy::cast_precision_loss, reason = "for display")]
pub fn effective_of_spec(spec: &LimitSpec) -> Option<f64> {
    match spec.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => effective_per_second(&spec.rate()),
        Algorithm::SlidingLog => {
            let log = spec.log();
            Some(f64::from(log.size) * 1e9 / log.window as f64)
        }
        // A steady source: a window is as long as all of its slots.
        Algorithm::FixedWindow | Algorithm::SlidingCounter | Algorithm::SlidingSlots => {
            let window = spec.window();
            let nanos = window.width as f64 * f64::from(window.slots.max(1));
            Some(window.limit as f64 * 1e9 / nanos)
        }
    }
}

/// True if a limit counts new flows.
pub fn counts_flows(record: &Record) -> bool {
    record.limits.iter().take(usize::from(record.count)).any(|spec| spec.counts() == Count::Flows)
}
