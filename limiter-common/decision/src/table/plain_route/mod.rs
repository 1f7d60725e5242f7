//! The route of most packets: plain limits, in compact or full keys.

pub(crate) mod compact_row;
pub(crate) mod plain;
pub(crate) mod plain_tables;
pub(crate) mod plain_wide;
