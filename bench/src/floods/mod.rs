//! The flood figure: what conforming sources still get, and what passes, while packets come from
//! sources that were never seen before; for limiter and for its peers, with tables of the same
//! size.
//!
//! [`scene`] sends real traffic over a virtual cable, and counts behind the rules ([`tally`]).

pub mod chart;
pub mod contender;
pub mod effort;
pub mod report;
pub mod run;
pub mod scene;
pub mod tally;
pub mod traffic;
