//! The algorithms beside the token bucket, each over the whole grid of rates, units and arrival
//! patterns: the upper bound in every window, the lower bound for a conforming source, monotony,
//! idle time, late clocks, borders, the edges of the words, and an independent naive oracle. Then
//! all of them, the token bucket too, behind the one interface, and from each to each when a limit
//! changes.

#![expect(clippy::unwrap_used, reason = "a failed conversion is a failed test")]

mod carry;
mod compile;
mod fixed_window;
mod interleaving;
mod leaky_bucket;
mod meter;
mod metered;
mod sliding_counter;
mod sliding_log;
mod sliding_slots;
mod soft;
mod support;
mod two_rate;
mod window;
