//! The hooks of an interface, and the programs there: ours, others', and the one that continues.

pub(crate) mod attach;
pub(crate) mod attachment;
pub(crate) mod clsact;
pub(crate) mod foreign;
pub(crate) mod hook;
pub(crate) mod neighbours;
pub(crate) mod programs;
pub(crate) mod tc_order;
pub(crate) mod tcx;
pub(crate) mod then;
pub(crate) mod then_fault;
