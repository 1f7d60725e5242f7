//! The data path as the rest of user space sees it: load, attach, commit, count. The only module
//! that uses aya.

mod backend;
mod capabilities;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod features;
mod hooks;
mod interfaces;
mod kernel;
mod load;
mod log;
pub mod machine;
mod maps;
mod netlink;
mod options;
mod pins;
mod privileges;
mod random;
mod remedy;
mod sources;
mod xdp;

use pins::bpffs::PinDir;

pub use backend::{Backend, Datapath, KeyPlace, Keys, Observed};
pub use error::DatapathError;
pub use hooks::attachment::{
    Attachment, LinkChange, LinkState, Mode, ModeChoice, Refused, interfaces_of,
};
pub use hooks::hook::Hook;
pub use hooks::neighbours::Neighbour;
pub use hooks::tc_order::TcOrder;
pub use hooks::then::{Then, ThenChange};
pub use hooks::then_fault::ThenFault;
pub use interfaces::cable::{give_fq, host_end};
pub use interfaces::interface::Interface;
pub use interfaces::left_behind::LeftBehind;
pub use interfaces::wanted::Wanted;
pub use kernel::Kernel;
pub use kernel::on_trial::TrialOutcome;
pub use limiter_model::{Framing, Reading, Way};
pub use load::{Object, Objects};
pub use log::KernelLog;
pub use maps::capture::CapturedPacket;
pub use maps::events::capture_rate;
pub use maps::leases::LeaseMemory;
pub use netlink::offloads::{Offloads, STRIPS_TAGS, keep_tags, offloads, strips_tags};
pub use netlink::queueing::{Fq, Queueing, memory_of, queueing};
pub use options::Options;
pub use pins::other_pins::OtherPins;
pub use pins::pinned;
pub use pins::predecessor::BANNED_BEFORE;
pub use random::random;
pub use sources::batch::{Sweep, of_key};
pub use sources::source_table::SourceTable;
pub use xdp::Xdp;
