//! Two limits on one source: the markers, and a limit with a ceiling.

use limiter_common::wire::TwoRate;

use super::error::LimitError;
use super::{Quota, display_quota, rate_limit};
use crate::rules::model::RateLimit;

/// Traffic that the upper limit bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Upper {
    /// All that passes, the committed part included: RFC 2698, and soft limits. The upper rate
    /// is at least the committed one.
    Total,
    /// All that passes beside the committed part: RFC 4115. Any rate.
    Excess,
}

/// The parameters of `limiter_decision::algorithm::two_rate` and of soft limits of token buckets.
///
/// `max_frame` is the largest frame of the interfaces in bytes.
pub fn two_rate(
    committed: &RateLimit,
    upper: &RateLimit,
    meaning: Upper,
    max_frame: u64,
) -> Result<TwoRate, LimitError> {
    match meaning {
        Upper::Total => upper_is_above(committed.quota(), upper.quota())?,
        Upper::Excess => same_count(committed.quota(), upper.quota())?,
    }
    Ok(TwoRate {
        committed: rate_limit(committed, max_frame)?,
        upper: rate_limit(upper, max_frame)?,
    })
}

fn same_count(lower: Quota, upper: Quota) -> Result<(), LimitError> {
    if lower.count == upper.count {
        return Ok(());
    }
    Err(LimitError::DifferentCounts { lower: display_quota(lower), upper: display_quota(upper) })
}

/// Refuses an upper limit that is slower than the lower one, or counts something else.
pub(super) fn upper_is_above(lower: Quota, upper: Quota) -> Result<(), LimitError> {
    same_count(lower, upper)?;
    // a / b < c / d by cross-multiplication.
    let scaled = |rate: Quota, other: Quota| {
        u128::from(rate.requests_per_unit) * u128::from(other.period.seconds())
    };
    if scaled(upper, lower) < scaled(lower, upper) {
        return Err(LimitError::UpperBelowLower {
            lower: display_quota(lower),
            upper: display_quota(upper),
        });
    }
    Ok(())
}
