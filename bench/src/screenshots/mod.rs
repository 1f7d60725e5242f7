//! Pictures of `limiter top`, taken of a real one.

pub mod svg;
pub mod take;
