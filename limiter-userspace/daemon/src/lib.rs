//! The daemon: owns the rules and the data path, and serves the control socket.
//!
//! [`run`] starts it. `Service` puts its parts together: the rule sets, the lists, the events, the
//! gauges and the node of a cluster; `disk` and `machine` are below them. `limiter-api` has the
//! documents of requests and stands below the parts; `routes` answers the requests and stands above
//! the service.
//! [`Datapath`](limiter_datapath::Datapath) is all that the daemon needs of the kernel.

mod capture;
mod cluster;
pub mod control;
mod disk;
mod error;
mod events;
mod gauges;
mod lists;
mod machine;
#[cfg(feature = "page")]
mod page;
mod routes;
mod rule_sets;
mod run;
mod service;
mod sources;
mod utilization;
mod views;
pub mod web;
mod why;

pub use disk::own_files;
pub use disk::state_dir::StateError;
pub use error::StartError;
pub use events::{EventOptions, HookOptions};
pub use machine::ssh;
pub use rule_sets::warnings::delays_warning;
pub use rule_sets::watch::Watch;
pub use rule_sets::{check, rule_files};
pub use run::{RunOptions, run};
pub use views::from_maps;
pub use views::key as source_of;

#[cfg(test)]
mod tests;
