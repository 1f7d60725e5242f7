//! Refusals of the compile step, and that they say what to do instead.

use std::time::Duration;

use limiter_common::wire::Count;
use limiter_rules::compile::{self, LimitError, Quota, SlotError, Upper};
use limiter_rules::{Period, Unit};

use crate::support::FRAME;

fn quota(count: Count, requests_per_unit: u64, unit: Unit) -> Quota {
    Quota::new(count, requests_per_unit, Period::one(unit))
}

#[test]
fn zero_is_refused_everywhere() {
    let zero = quota(Count::Packets, 0, Unit::Day);
    let expected = LimitError::ZeroRate;
    assert_eq!(compile::leaky_bucket(zero, Duration::ZERO, FRAME), Err(expected.clone()));
    assert_eq!(compile::fixed_window(zero, FRAME), Err(expected.clone()));
    assert_eq!(compile::sliding_counter(zero, FRAME), Err(expected.clone()));
    assert_eq!(compile::sliding_slots(zero, 4, SlotError::Strict, FRAME), Err(expected.clone()));
    assert_eq!(compile::sliding_log(zero), Err(expected.clone()));
    let rate = zero.with_burst(1);
    assert_eq!(compile::two_rate(&rate, &rate, Upper::Total, FRAME), Err(expected));
}

#[test]
fn what_fits_no_frame_or_no_word_is_refused() {
    let small = quota(Count::Bytes, FRAME - 1, Unit::Second);
    let error = compile::fixed_window(small, FRAME).unwrap_err().to_string();
    assert!(error.contains("give at least 1522 bytes"), "{error}");
    // A leaky bucket lets one frame pass whatever its rate.
    assert!(compile::leaky_bucket(small, Duration::ZERO, FRAME).is_ok());
    let large = quota(Count::Bytes, 1 << 34, Unit::Second);
    let error = compile::sliding_counter(large, FRAME).unwrap_err().to_string();
    assert!(error.contains("17179869183"), "{error}");
}

/// Over that, the weight of the window before would err by more than its formula says.
#[test]
fn a_sliding_counter_counts_less_in_long_windows() {
    let year = |requests_per_unit| {
        Quota::new(Count::Bytes, requests_per_unit, Period { unit: Unit::Day, multiplier: 366 })
    };
    let most = (1 << 54) - 1;
    let limit = compile::sliding_counter(year(most), FRAME).unwrap();
    assert!(limit.width >> limit.shift >= 128);
    let error = compile::sliding_counter(year(most + 1), FRAME).unwrap_err().to_string();
    assert!(error.contains("18014398509481983"), "{error}");
    assert!(compile::fixed_window(year(most + 1), FRAME).is_ok());
}

#[test]
fn logs_and_slots_are_bounded() {
    assert_eq!(compile::sliding_log(quota(Count::Packets, 31, Unit::Week)).unwrap().size, 31);
    for packets in [32, 64, 256, 257, u64::MAX] {
        let error = compile::sliding_log(quota(Count::Packets, packets, Unit::Week));
        assert!(matches!(error, Err(LimitError::LogTooLarge { most: 31, .. })), "{packets}");
    }
    let bytes = compile::sliding_log(quota(Count::Bytes, 31, Unit::Week));
    assert!(matches!(bytes, Err(LimitError::LogOfBytes(_))));
    for slots in [0, 1, 3, 16, 255] {
        let limit = quota(Count::Packets, 64, Unit::Week);
        let error = compile::sliding_slots(limit, slots, SlotError::Lenient, FRAME);
        assert_eq!(error, Err(LimitError::Slots(slots)));
    }
}

#[test]
fn a_backlog_has_an_end() {
    let limit = quota(Count::Packets, 64, Unit::Week);
    let most = Duration::from_nanos(1 << 56);
    assert_eq!(compile::leaky_bucket(limit, most, FRAME).unwrap().tolerance, 1 << 61);
    for backlog in [most + Duration::from_nanos(1), Duration::MAX] {
        let error = compile::leaky_bucket(limit, backlog, FRAME);
        assert_eq!(error, Err(LimitError::BacklogTooLong(backlog)));
    }
}

#[test]
fn a_peak_is_not_below_the_committed_rate() {
    let minute = quota(Count::Packets, 60, Unit::Minute).with_burst(5);
    let second = quota(Count::Packets, 1, Unit::Second).with_burst(5);
    let slower = quota(Count::Packets, 59, Unit::Minute).with_burst(5);
    assert!(compile::two_rate(&minute, &second, Upper::Total, FRAME).is_ok());
    assert!(compile::two_rate(&second, &minute, Upper::Total, FRAME).is_ok());
    let error = compile::two_rate(&second, &slower, Upper::Total, FRAME).unwrap_err().to_string();
    assert!(error.contains("59/min") && error.contains("1/s"), "{error}");
    // The excess is beside the committed part, so it may be anything.
    assert!(compile::two_rate(&second, &slower, Upper::Excess, FRAME).is_ok());
    let bytes = quota(Count::Bytes, 60, Unit::Minute).with_burst(FRAME);
    let error = compile::two_rate(&second, &bytes, Upper::Excess, FRAME);
    assert!(matches!(error, Err(LimitError::DifferentCounts { .. })));
}
