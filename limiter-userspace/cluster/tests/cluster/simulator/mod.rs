//! Simulator of shared limits in virtual time: the real state machine on each node, the store's
//! model between them. The plots of docs/design/cluster.md are drawn by it, too (`bench/plots`).

pub(crate) mod load;
pub(crate) mod meter;
pub(crate) mod net;
mod path;
pub(crate) mod scene;
