//! The sandbox: network namespaces, cables, traffic, and limiter in them, driven from outside as a
//! user would drive it. What counts packets ([`receiver`]) and what says how many should arrive
//! ([`oracle`]) share no code with it. The tests and the measurements build on this crate.
//!
//! Everything that is made on the machine is a guard that removes it on drop, also in a panic; what
//! a killed run leaves is found by its name and removed by the next one ([`sweep`]).

pub mod bpffs;
pub mod clock;
pub mod cluster;
pub mod command;
pub mod compare;
pub mod delay;
pub mod generator;
pub mod interrupt;
pub mod limiter;
pub mod names;
pub mod netns;
pub mod nginx;
pub mod oracle;
pub mod packet;
pub mod packet_socket;
pub mod receiver;
pub mod requests;
pub mod root;
pub mod sandbox;
pub mod serve;
pub mod sweep;
pub mod testbed;
pub mod veth;
pub mod work_dir;
