//! Facts about the machine for `limiter doctor`, each asked of the kernel without changing
//! anything. An error says what could not be found out.

mod filters;
mod link;
mod native;
mod pins;
mod queues;
mod route;

pub use filters::filters;
pub use link::{Below, Link, forgets_program, link, links};
pub(crate) use link::{driver_of, ports};
pub use native::{NativeMode, native_mode};
pub use pins::{
    FileSystem, PinPlace, Pinned, is_at_tc, is_mounted_here_alone, neighbours, owner, pin_place,
    pinned,
};
pub use queues::{Queues, queues};
pub use route::{default_routes, interface_towards};

pub use super::features::{Features, look as features};
pub use super::hooks::programs::name_of as program_name;
pub use super::pins::bpffs::USUAL_MOUNT;
pub use super::privileges::{Privileges, held as privileges};
pub use super::xdp::{cpus, missing};
pub use limiter_sharing::clock::ahead as clock_ahead;
