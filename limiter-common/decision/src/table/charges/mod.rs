//! Charges a packet that every table passes, undoes that, and what follows over a limit.

pub(crate) mod charge;
pub(crate) mod over;
pub(crate) mod spend;
pub(crate) mod undo;
