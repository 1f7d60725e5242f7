//! The leaky bucket: a rate and a backlog in time.

use std::time::Duration;

use limiter_common::time::TICK_BITS;
use limiter_common::wire::{Count, Limit};

use super::error::LimitError;
use super::{MAX_TOLERANCE, Quota, rate_limit};

/// The parameters of `limiter_decision::algorithm::leaky_bucket`; `tolerance` is the backlog,
/// rounded up to a whole tick.
///
/// `max_frame` is the largest frame of the interfaces in bytes.
pub fn leaky_bucket(quota: Quota, backlog: Duration, max_frame: u64) -> Result<Limit, LimitError> {
    // A frame passes whatever the backlog, so a burst of one is what the sums have to hold.
    let least = match quota.count {
        Count::Packets | Count::Syns | Count::Flows => 1,
        Count::Bytes => max_frame,
    };
    let limit = rate_limit(&quota.with_burst(least), max_frame)?;
    let ticks = backlog.as_nanos() << TICK_BITS;
    if ticks > MAX_TOLERANCE {
        return Err(LimitError::BacklogTooLong(backlog));
    }
    let tolerance = u64::try_from(ticks).unwrap_or(u64::MAX);
    Ok(Limit { tolerance, ..limit })
}
