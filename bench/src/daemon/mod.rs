//! `cargo xtask bench daemon`: what the daemon takes, at rest and when there is much to report.

mod page;
pub mod run;
