//! What the process reports about itself: counters, metrics, health, and the lines of its log.

pub(crate) mod counters;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod odd;
pub(crate) mod refused;
pub(crate) mod stats;
pub(crate) mod unmet;
pub(crate) mod unsaid;
