//! A fast generator: the kernel sends copies of one frame, and a small BPF program gives each its
//! source.
//!
//! `BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES` runs an XDP program on frames out of a
//! page pool and does with them what it says: here, to redirect them out of an interface. They
//! leave as they would leave a driver, without a socket, a queueing discipline or an skb.
//!
//! Two other ways were measured beside it, on the machine of `docs/floods.md` and in the same veth
//! pair: frames of 60 bytes, all-new sources, one CPU that sends and another that receives, 3 s,
//! three times. Both are packet sockets with `PACKET_QDISC_BYPASS`.
//!
//! | way | million frames a second |
//! |---|--:|
//! | live frames | 4.2 to 7.1 |
//! | `sendmmsg`, 256 at a time | 0.69 to 0.72 |
//! | `PACKET_TX_RING`, 1024 frames | 0.59 to 0.60 |
//!
//! That is what was handed to the interface. The live frames were more than the receiver took (1
//! million with a rule in its stack); the others were not, so those are the generators' limits.
//!
//! The other end of a veth pair takes such frames only when it has a native XDP program or generic
//! receive offload ([`accept`]). They are handled on the CPU that sends unless its NAPI has a
//! thread of its own ([`napi`]).

pub mod cable;
pub mod generator;
pub mod napi;
mod program;
pub mod sources;

pub use generator::{LiveFrames, Load, Place, Regular, Sent};
pub use napi::accept;
pub use sources::{Family, Sources};
