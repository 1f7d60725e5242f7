//! The data path as the rest of user space sees it: load, attach, commit, count. The only module
//! that uses aya.

mod attach;
mod backend;
mod batch;
mod bpffs;
mod capabilities;
mod capture;
mod changes;
mod entries;
mod error;
mod events;
mod features;
mod generic;
mod interface;
mod kernel;
mod leases;
mod lines;
mod links;
mod lists;
mod load;
mod log;
pub mod machine;
mod mapped;
mod maps;
mod netlink;
mod offloads;
mod open_maps;
mod other_pins;
mod own_links;
mod pin_lock;
pub mod pinned;
mod pod;
mod privileges;
mod programs;
mod reading;
mod remedy;
mod source_store;
mod sources;
mod succession;
mod tables;
mod trial;
mod tries;
mod xdp;

use std::path::PathBuf;

use bpffs::PinDir;

pub use backend::{Backend, Datapath, KeyPlace, Keys, Observed};
pub use batch::{Sweep, of_key};
pub use capture::CapturedPacket;
pub use entries::random;
pub use error::DatapathError;
pub use events::capture_rate;
pub use interface::Interface;
pub use kernel::Kernel;
pub use leases::LeaseMemory;
pub use limiter_model::{Framing, Reading, Way};
pub use links::LinkChange;
pub use log::KernelLog;
pub use offloads::{Offloads, STRIPS_TAGS, keep_tags, offloads, strips_tags};
pub use other_pins::OtherPins;
pub use own_links::LeftBehind;
pub use source_store::{Objects, SourceTable};
pub use succession::BANNED_BEFORE;
pub use trial::TrialOutcome;
pub use xdp::Xdp;

/// Mode in which a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Run by the driver, before the kernel makes a socket buffer.
    Native,
    /// Run by the stack, on a socket buffer.
    Generic,
}

/// Modes of attachment that the user allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeChoice {
    /// Native or nothing.
    Native,
    /// Generic only.
    Generic,
    /// Native, else generic.
    Auto,
}

/// Settings of a data path.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory on a BPF file system for maps, programs and links; made if missing.
    pub pin_dir: PathBuf,
    /// Sources tracked per family.
    pub max_sources: u32,
    /// Store of the buckets of sources.
    pub source_table: SourceTable,
    /// Rules, and rules being replaced.
    pub max_rules: u32,
    /// Keys of tables tracked, over all tables beside the source table.
    pub max_keys: u32,
    /// Level of the program's own log: 0 off, 1 error to 5 trace.
    pub kernel_log: u8,
}

/// State of the link of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The program is on the interface.
    Attached,
    /// The program is on it, and it is in another network namespace.
    Elsewhere,
    /// The interface is not here, and whether the program is on it elsewhere cannot be seen.
    Unseen,
    /// The interface is here, and the program is not on it.
    Detached,
    /// There is no interface.
    Gone,
}

impl LinkState {
    /// True if the program is known to be on the interface, in this network namespace or another.
    pub const fn is_attached(self) -> bool {
        matches!(self, Self::Attached | Self::Elsewhere)
    }
}

/// An interface under limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Name of the interface now; the last one, if it is not here.
    pub interface: String,
    /// Name that the interface was asked for by.
    pub asked: String,
    /// Index of the interface; 0 while there is none.
    pub ifindex: u32,
    /// Mode of the attachment.
    pub mode: Mode,
    /// Kernel's id of the program.
    pub program_id: u32,
    /// Kernel's id of the link.
    pub link_id: u32,
    /// True if the link was found pinned and kept, with its program replaced.
    pub adopted: bool,
    /// State of the link now.
    pub state: LinkState,
}
