//! `cargo xtask bench memory`: kernel memory for each source and each key, beside hashlimit and
//! nft.

mod kernel;
mod page;
mod peers;
pub mod run;
