//! The daemon: owns the rules and the data path, and serves the control socket.
//!
//! [`run`] starts it, `Service` is what it can do, `layers` says which rules are in force, and
//! [`Datapath`](crate::datapath::Datapath) is all that it needs of the kernel.

mod alarm;
pub mod api;
mod capture;
pub(crate) mod check;
mod error;
mod events;
pub(crate) mod from_maps;
mod guard;
mod layers;
mod limit_ends;
mod links;
mod listeners;
mod lists;
mod memory;
mod nearness;
mod not_ip;
mod notify;
mod page;
mod readable;
pub(crate) mod rule_files;
mod run;
mod service;
mod sources;
pub(crate) mod ssh;
mod state_dir;
mod views;
mod warnings;
mod watch;
mod why;

pub use error::StartError;
pub use events::{EventOptions, HookOptions, HookUrl};
pub use run::{RunOptions, run};
pub use state_dir::StateError;
pub(crate) use views::key as source_of;

#[cfg(test)]
mod tests;
