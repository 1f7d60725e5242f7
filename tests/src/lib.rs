//! Network namespaces, traffic and measurements for limiter.
//!
//! The `limiter` binary is driven only from outside, as a user would drive it. What counts packets
//! ([`receiver`]) and what says how many should arrive ([`oracle`]) share no code with it.
//!
//! Everything that is made on the machine is a guard that removes it on drop, also in a panic; what
//! a killed run leaves is found by its name and removed by the next one ([`sweep`]).

pub mod accuracy;
pub mod asked;
pub mod bpf;
pub mod browser;
pub mod cables;
pub mod captures;
pub mod cards;
pub mod cpu;
pub mod devices;
pub mod doctor;
pub mod foreign;
pub mod frames;
pub mod hammer;
pub mod live_frames;
pub mod map_memory;
pub mod page;
pub mod pair;
pub mod pcap;
pub mod process;
pub mod program;
pub mod strace;
pub mod subject;
pub mod tc_run;
pub mod terminal;
pub mod test_run;
pub mod tun;
pub mod walk;

pub use limiter_sandbox::{
    bpffs, clock, cluster, command, compare, delay, generator, interrupt, limiter, names, netns,
    nginx, oracle, packet, packet_socket, receiver, requests, root, sandbox, serve, sweep, testbed,
    veth, work_dir,
};
