//! A fast generator: the kernel sends copies of one frame, and a small BPF program gives each its source.
//!
//! `BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES` runs an XDP program on frames out of a page pool
//! and does with them what it says: here, to redirect them out of an interface. They leave as they
//! would leave a driver, without a socket, a queueing discipline or an skb.
//!
//! Two other ways were measured on the machine of `docs/floods.md`, in the same veth pair, frames of 60
//! bytes, one CPU: FIGURES
//!
//! The other end of a veth pair takes such frames only when it has a native XDP program or generic
//! receive offload ([`accept`]). They are handled on the CPU that sends unless its NAPI has a thread of its
//! own ([`napi`]).

pub mod generator;
pub mod napi;
mod program;
pub mod sources;

pub use generator::{LiveFrames, Load, Place, Regular, Sent};
pub use napi::accept;
pub use sources::{Family, Sources};
