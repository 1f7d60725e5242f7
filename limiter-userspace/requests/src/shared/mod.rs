//! Limits that several nodes share by leases: the part of a rule, the leases, and the node that
//! asks the store for them.

pub(crate) mod contact;
pub(crate) mod decide;
pub(crate) mod leases;
pub(crate) mod node;
pub(crate) mod rule;
