//! The interfaces under limits: which ones are wanted, and what becomes of their links.

pub(crate) mod cable;
pub(crate) mod interface;
pub(crate) mod labels;
pub(crate) mod left_behind;
pub(crate) mod links;
pub(crate) mod matching;
pub(crate) mod members;
pub(crate) mod own_addresses;
pub(crate) mod own_links;
pub(crate) mod retry;
pub(crate) mod wanted;
