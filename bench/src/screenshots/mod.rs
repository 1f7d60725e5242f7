//! Pictures of `limiter top` and of the page, taken of real ones.

pub mod svg;
pub mod take;
