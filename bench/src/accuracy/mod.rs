//! The accuracy table: what a limit delivers against what it is configured to, for every offered
//! load.
//!
//! [`limiter_tests::accuracy::simulated`] covers the whole range of rates: the program in the
//! kernel, with the clock as a parameter. [`real`] sends packets over a virtual cable, through
//! limiter and through its [`peers`]; an exact token bucket that is offered the same packets at the
//! same times says what should have come out.

pub mod contender;
pub mod pacer;
pub mod peers;
pub mod real;
pub mod report;
pub mod run;
pub mod sink;
