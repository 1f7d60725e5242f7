//! The algorithms that count in windows, and the log.

use bytemuck::Zeroable as _;
use limiter_common::window::{LogLimit, MAX_SIZE, WindowLimit};
use limiter_common::wire::Count;

use super::error::LimitError;
use super::{Quota, display_quota};

/// `limit * (width >> shift)` stays under this; the sliding counter relies on it.
const MAX_PRODUCT: u128 = 1 << 62;

/// The largest limit of a sliding counter: with it, 8 bits of the width are left at least.
const MAX_COUNTED: u64 = (1 << 54) - 1;

/// On which side of the limit sliding slots err; by one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotError {
    /// A source within the limit loses nothing, and up to twice the limit may pass in a window.
    Lenient,
    /// Never over in any window, and a steady source gets `(slots - 1) / slots` of the rate.
    Strict,
}

/// The parameters of `limiter_decision::algorithm::fixed_window`.
///
/// `max_frame` is the largest frame of the interfaces in bytes.
pub fn fixed_window(quota: Quota, max_frame: u64) -> Result<WindowLimit, LimitError> {
    window(quota, quota.period.nanos(), 1, max_frame)
}

/// The parameters of `limiter_decision::algorithm::sliding_counter`; `max_frame` as above.
pub fn sliding_counter(quota: Quota, max_frame: u64) -> Result<WindowLimit, LimitError> {
    let limit = window(quota, quota.period.nanos(), 1, max_frame)?;
    if limit.limit > MAX_COUNTED {
        return Err(LimitError::WindowTooLarge { rate: display_quota(quota), most: MAX_COUNTED });
    }
    let product = |shift: u8| u128::from(limit.limit) * u128::from(limit.width >> shift);
    let shift = (0..=63).find(|shift| product(*shift) < MAX_PRODUCT).unwrap_or(63);
    Ok(WindowLimit { shift, ..limit })
}

/// The parameters of `limiter_decision::algorithm::sliding_slots`; `max_frame` as above.
pub fn sliding_slots(
    quota: Quota,
    slots: u8,
    error: SlotError,
    max_frame: u64,
) -> Result<WindowLimit, LimitError> {
    if !matches!(slots, 2 | 4 | 8) {
        return Err(LimitError::Slots(slots));
    }
    let parts = match error {
        SlotError::Lenient => slots,
        SlotError::Strict => slots - 1,
    };
    // Rounded up for strict, whose slots must cover the window; every second divides by 8.
    window(quota, quota.period.nanos().div_ceil(u64::from(parts)), slots, max_frame)
}

/// The parameters of `limiter_decision::algorithm::sliding_log`.
pub fn sliding_log(quota: Quota) -> Result<LogLimit, LimitError> {
    if quota.count == Count::Bytes {
        return Err(LimitError::LogOfBytes(display_quota(quota)));
    }
    if quota.requests_per_unit == 0 {
        return Err(LimitError::ZeroRate);
    }
    match u8::try_from(quota.requests_per_unit) {
        Ok(size) if size <= MAX_SIZE => {
            Ok(LogLimit { window: quota.period.nanos(), size, ..LogLimit::zeroed() })
        }
        _ => Err(LimitError::LogTooLarge { rate: display_quota(quota), most: MAX_SIZE }),
    }
}

fn window(quota: Quota, width: u64, slots: u8, max_frame: u64) -> Result<WindowLimit, LimitError> {
    let Quota { count, requests_per_unit, .. } = quota;
    if requests_per_unit == 0 {
        return Err(LimitError::ZeroRate);
    }
    let least = match count {
        Count::Packets | Count::Syns | Count::Flows => 1,
        Count::Bytes => max_frame,
    };
    if requests_per_unit < least {
        return Err(LimitError::WindowTooSmall { rate: display_quota(quota), least, count });
    }
    let limit = WindowLimit {
        width,
        limit: requests_per_unit,
        count_bits: WindowLimit::count_bits_of(width),
        slots,
        count: count as u8,
        ..WindowLimit::zeroed()
    };
    if requests_per_unit > limit.max_limit() {
        return Err(LimitError::WindowTooLarge {
            rate: display_quota(quota),
            most: limit.max_limit(),
        });
    }
    Ok(limit)
}
