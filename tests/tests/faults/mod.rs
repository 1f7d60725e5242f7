//! When things go wrong: calls that fail, full disks, full maps, hostile clients and hostile files.
//! Each time the error is one clear line, what was in force stays in force, nothing is left behind,
//! and the next attempt works.
//!
//! `LIMITER_FAULTS=all` has every call fail, with the errors in turn; without it, a sample of them
//! does.

mod change;
mod clients;
mod clock;
pub(crate) mod disk;
mod files;
mod inject;
mod named;
mod readers;
mod room;
mod scene;
mod start;
