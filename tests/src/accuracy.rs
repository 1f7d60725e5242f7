//! Delivered against configured rates over the whole range of both, by the clock of the test
//! program.

pub mod range;
pub mod simulated;
