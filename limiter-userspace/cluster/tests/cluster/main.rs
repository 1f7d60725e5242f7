//! Limits over many nodes, in virtual time: the real state machine on each node, the store's model
//! between them.

#![expect(clippy::expect_used, reason = "what is not as expected is a failed test")]
#![expect(clippy::cast_precision_loss, reason = "loads are drawn from floats")]
#![expect(clippy::cast_possible_truncation, reason = "small numbers of a simulation")]
#![expect(clippy::cast_sign_loss, reason = "small numbers of a simulation")]

mod bound;
mod clocks;
mod failover;
mod far;
mod faults;
mod hostile;
mod live;
mod load;
mod machine;
mod node;
mod node_live;
mod queues;
mod quota;
mod redirects;
mod reshard;
mod scripts;
mod server;
mod shards;
mod simulator;
mod tls;
mod trust;
mod windows;
