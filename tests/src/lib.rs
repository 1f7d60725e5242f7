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
pub mod bpffs;
pub mod browser;
pub mod cables;
pub mod captures;
pub mod clock;
pub mod cluster;
pub mod command;
pub mod compare;
pub mod cpu;
pub mod doctor;
pub mod foreign;
pub mod frames;
pub mod generator;
pub mod hammer;
pub mod interrupt;
pub mod limiter;
pub mod live_frames;
pub mod map_memory;
pub mod names;
pub mod netns;
pub mod oracle;
pub mod packet;
pub mod packet_socket;
pub mod page;
pub mod pair;
pub mod pcap;
pub mod process;
pub mod program;
pub mod receiver;
pub mod root;
pub mod sandbox;
pub mod strace;
pub mod subject;
pub mod sweep;
pub mod terminal;
pub mod test_run;
pub mod testbed;
pub mod tun;
pub mod veth;
pub mod walk;
pub mod work_dir;
