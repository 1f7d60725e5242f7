//! Limits of requests: what a proxy asks, decided in user space. `limiter serve` is [`run`].
//!
//! [`Limiter`] holds rules ([`limiter_rules::file::requests`]) and buckets, and decides by the
//! arithmetic of packets. It needs no kernel, no privilege and no daemon.

mod bans;
mod check;
mod clock;
mod connections;
mod contact;
mod counters;
mod daemon;
mod decision;
mod described;
mod envoy;
mod files;
mod grpc;
mod grpc_quota;
mod health;
mod json;
mod key;
mod lateness;
mod leases;
mod limiter;
mod limiter_answer;
mod limiter_queue;
mod limiter_reports;
mod limiter_reserve;
mod limiter_shared;
mod listen;
mod looks;
mod metrics;
mod node;
mod odd;
mod open_files;
mod question;
mod queue;
mod queue_watch;
mod queues;
mod quota;
mod report;
mod reservations;
mod routes;
mod rules;
mod server;
mod service;
mod shared;
mod snapshot;
mod state;
mod store;
mod target;
mod under_way;
mod unmet;
mod unsaid;

pub use clock::Moment;
pub use daemon::{AskedBan, BanAnswer, Daemon, NotReported, Report, RequestCounts, RuleReport};
pub use decision::{Left, Limits, ReadyLimit};
pub use files::{Files, files, read};
pub use limiter::Limiter;
pub use limiter_reserve::Reserved;
pub use listen::Listen;
pub use question::{Answer, Asked, Descriptor, Detail, MAX_DESCRIPTORS, Refused, Status};
pub use report::MOST_REPORTED;
pub use reservations::GivenBack;
pub use rules::{Domain, Rule, RuleBan, RuleLimits, Rules, Terms};
pub use server::{DEFAULT_DEADLINE, DEFAULT_LISTEN, Options, ServeError, Server, run};
pub use snapshot::{Loaded, Snapshot, Unusable};
pub use state::{StateError, StateOptions};
