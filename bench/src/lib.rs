//! Measurements of limiter beside its peers, and pictures.
//! Not asserted in a test, but for that it works: a busy machine must not fail one. `limiter-bench
//! --check` holds the ratios.

pub mod accuracy;
pub mod chart;
pub mod contention;
pub mod control;
pub mod crowd;
pub mod daemon;
pub mod figure;
pub mod floods;
pub mod group;
pub mod machine;
pub mod memory;
pub mod packets;
pub mod path;
pub mod peers;
pub mod requests;
pub mod screenshots;
pub mod spread;
pub mod tsv;
