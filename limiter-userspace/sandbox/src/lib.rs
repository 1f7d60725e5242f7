//! The sandbox: network namespaces, cables, traffic, and limiter in them, driven from outside as a
//! user would drive it. The code that counts packets ([`receiver`]) and the code that says how many
//! should arrive ([`oracle`]) share nothing with limiter. The tests and the measurements build on
//! this crate.
//!
//! Everything made on the machine is a guard that removes it on drop, also in a panic. The next run
//! finds the leftovers of a killed run by their names and removes them ([`sweep`]).

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
