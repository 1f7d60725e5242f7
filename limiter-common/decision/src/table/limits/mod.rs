//! The limits of a record: checked, charged and leased one by one.

pub(crate) mod check;
pub(crate) mod delay;
pub(crate) mod lease;
pub mod limit;
pub(crate) mod weight;
pub(crate) mod wish;
