//! Decisions about requests, against models that share no code with them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod arithmetic;
mod bans;
mod matching;
mod nginx;
mod reserve;
mod room;
mod rules_change;
mod server;
mod support;
mod threads;
