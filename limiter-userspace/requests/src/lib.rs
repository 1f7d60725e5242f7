//! Limits of requests: what a proxy asks, decided in user space. `limiter serve` is [`run`].
//!
//! [`Limiter`] holds rules ([`limiter_rules::file::requests`]) and buckets, and decides by the
//! arithmetic of packets. It needs no kernel, no privilege and no daemon.

mod buckets;
mod clock;
mod daemon;
mod decide;
mod doors;
mod limiter;
mod queue;
mod quota;
mod reports;
mod rules;
mod server;
mod service;
mod shared;
mod throttle;

pub use buckets::arithmetic::{Left, Limits};
pub use buckets::snapshot::{Loaded, Snapshot, Unusable};
pub use buckets::state::{StateError, StateOptions};
pub use buckets::store::KeyLimits;
pub use clock::Moment;
pub use daemon::over_socket::OverSocket;
pub use daemon::{Daemon, NotReported};
pub use decide::question::{Answer, Asked, Descriptor, Detail, MAX_DESCRIPTORS, Refused, Status};
pub use decide::reservations::GivenBack;
pub use decide::reserve::Reserved;
pub use doors::listen::Listen;
pub use limiter::Limiter;
pub use rules::files::{Files, files, read};
pub use rules::{Domain, Rule, Rules, Terms};
pub use server::{DEFAULT_DEADLINE, DEFAULT_LISTEN, Options, ServeError, Server, run};
pub use throttle::{NotThrottled, Throttle, Throttled};
