//! The daemon: owns the rules and the data path, and serves the control socket.
//!
//! [`run`] starts it. `Service` puts its parts together: the rule sets, the lists, the events, the
//! gauges and the node of a cluster. `limiter-api` has the documents of requests and stands below
//! the parts; `routes` answers the requests and stands above the service.
//! [`Datapath`](limiter_datapath::Datapath) is all that the daemon needs of the kernel.

mod alarm;
mod attached;
mod bans;
mod capture;
pub mod check;
mod clocks;
mod cluster;
pub mod control;
mod effective;
mod error;
mod events;
pub mod from_maps;
mod gauges;
mod guard;
mod heard;
mod layers;
mod limit_ends;
mod links;
mod listeners;
mod lists;
mod memory;
mod not_ip;
mod notify;
pub mod own_files;
#[cfg(feature = "page")]
mod page;
mod readable;
mod recent;
mod refusals;
mod repeated_errors;
mod request_bans;
mod request_reports;
mod routes;
pub mod rule_files;
mod rule_sets;
mod run;
mod sealed;
mod service;
mod sources;
pub mod ssh;
mod state_dir;
mod store_guard;
mod taken;
mod utilization;
mod views;
mod warnings;
mod watch;
mod why;

pub use error::StartError;
pub use events::{EventOptions, HookOptions, HookUrl};
pub use run::{RunOptions, run};
pub use state_dir::StateError;
pub use views::key as source_of;
pub use warnings::delays_warning;
pub use watch::Watch;

#[cfg(test)]
mod tests;
