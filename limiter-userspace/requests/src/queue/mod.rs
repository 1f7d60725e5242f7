//! Queues: payloads of requests over a limit wait in the store and leave later. docs/queue.md says
//! what holds.

pub(crate) mod decide;
pub(crate) mod rule;
pub(crate) mod thread;
pub(crate) mod watch;
