//! The data that all parts of limiter share: layouts of the maps, time, sources, reasons, and the
//! words of buckets.
//!
//! The XDP program contains it as well, so the house rules of `limiter-decision` apply here:
//!
//! * no `std`, no allocation, no features, no clock, no map, no hand-written `unsafe`;
//! * no panic path: no indexing, no `unwrap`, no division by a value that may be zero;
//! * no `u128`, no signed division and no 64-bit `checked_mul` or `saturating_mul`: they do not
//!   link for the BPF target. Products are proven to fit when a rule is compiled.

#![no_std]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::float_arithmetic,
    clippy::integer_division_remainder_used,
    unsafe_code
)]

pub mod bucket;
pub mod bucket_key;
pub mod compact;
pub mod frame_size;
pub mod hash;
pub mod header;
mod raw;
pub mod source;
pub mod time;
pub mod verdict;
pub mod window;
pub mod wire;
