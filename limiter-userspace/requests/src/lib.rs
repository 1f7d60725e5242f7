//! Limits of requests: what a proxy asks, decided in user space.
//!
//! [`Limiter`] holds rules ([`limiter_rules::file::requests`]) and buckets, and decides by the
//! arithmetic of packets. It needs no kernel, no privilege and no daemon.

mod clock;
mod counters;
mod decision;
mod key;
mod limiter;
mod rules;
mod store;

pub use clock::Moment;
pub use decision::{Left, Limits, ReadyLimit};
pub use limiter::{Answer, Asked, Descriptor, Detail, Limiter, MAX_DESCRIPTORS, Refused, Status};
pub use rules::{Domain, Rule, RuleLimits, Rules, Terms};
