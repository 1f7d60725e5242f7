//! Decisions about requests, against models that share no code with them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod arithmetic;
mod bans;
mod grpc;
mod hostile;
mod matching;
mod nginx;
mod oracle;
mod reserve;
mod room;
mod rules_change;
mod running;
mod server;
mod snapshot;
mod support;
mod threads;
