//! Decisions about requests, against models that share no code with them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod afterwards;
mod arithmetic;
mod bans;
mod brought;
mod cluster;
mod grpc;
mod hostile;
mod matching;
mod oracle;
mod queue_access;
mod queue_store;
mod queues;
mod quota;
mod random;
#[expect(clippy::expect_used, dead_code, reason = "as the tests of the cluster use it")]
#[path = "../../../cluster/tests/cluster/server.rs"]
mod redis_server;
mod refused;
mod reserve;
mod resp;
mod room;
mod rules_change;
mod running;
mod server;
mod snapshot;
mod support;
mod threads;
mod together;
mod unmet;
mod waiting;
mod wider;
