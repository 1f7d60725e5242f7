//! `cargo xtask bench requests`: decisions about requests in process, beside the crates limitador
//! and governor.

mod contender;
mod page;
pub mod run;
