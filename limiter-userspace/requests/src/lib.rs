//! Limits of requests: what a proxy asks, decided in user space. `limiter serve` is [`run`].
//!
//! [`Limiter`] holds rules ([`limiter_rules::file::requests`]) and buckets, and decides by the
//! arithmetic of packets. It needs no kernel, no privilege and no daemon.

mod bans;
mod check;
mod clock;
mod connections;
mod counters;
mod decision;
mod described;
mod envoy;
mod files;
mod grpc;
mod json;
mod key;
mod limiter;
mod listen;
mod metrics;
mod reservations;
mod routes;
mod rules;
mod server;
mod service;
mod store;

pub use bans::{AskedBan, BanAnswer, Bans};
pub use clock::Moment;
pub use decision::{Left, Limits, ReadyLimit};
pub use files::{Files, files, read};
pub use limiter::{
    Answer, Asked, Descriptor, Detail, Limiter, MAX_DESCRIPTORS, Refused, Reserved, Status,
};
pub use listen::Listen;
pub use reservations::GivenBack;
pub use rules::{Domain, Rule, RuleBan, RuleLimits, Rules, Terms};
pub use server::{Options, ServeError, Server, run};
