//! Text that several crates print alike: names in which nothing is hidden, numbers and times,
//! standard error, metrics for Prometheus, and the remedy for two daemons that use one place.

pub mod exposition;
pub mod pattern;
pub mod plain;
pub mod second_daemon;
pub mod spoken;
pub mod stderr;
