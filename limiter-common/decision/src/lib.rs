//! The decision of limiter: whether a packet passes. It is compiled unchanged into the XDP program,
//! the host tests and the offline tools.
//!
//! House rules of this crate, because the same source becomes BPF code:
//!
//! * no `std`, no allocation, no features, no clock, no map, no hand-written `unsafe`;
//! * no panic path: no indexing, no `unwrap`, no division by a value that may be zero;
//! * no `u128`, no signed division and no 64-bit `checked_mul` or `saturating_mul`: they do not
//!   link for the BPF target. Products are proven to fit when a rule is compiled.
//!
//! The data that it decides about is in `limiter-common`, which knows nothing of this crate.

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

pub mod act;
pub mod algorithm;
pub mod ban;
mod call;
pub mod capture;
pub mod cell;
pub mod change;
mod checksum;
pub mod clock;
pub mod engine;
pub mod entries;
pub mod event;
pub mod gcra;
#[cfg(not(target_arch = "bpf"))]
pub mod host;
pub mod line;
pub mod maps;
pub mod mark;
pub mod meter;
pub mod outcome;
pub mod packet;
pub mod register;
pub mod reply;
pub mod rounds;
pub mod stored;
pub mod subprograms;
pub mod table;
