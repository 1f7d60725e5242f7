//! limiter's user space: rule files, the data path's loader, the daemon and the command line.
//!
//! Arrows: `cli` → `control`, `daemon`, `datapath`, `explain`, `import`, `replay`, `render`;
//! `daemon` → `rules`, `datapath`, `control`, `render`; `explain` → `rules`, `datapath::model`;
//! `replay` → `explain`, `rules`; `import` → `rules`; `datapath` is the only user of aya, and it
//! alone has `unsafe`, but for one line of `daemon::memory`; `rules` does no I/O, and compiles
//! shared limits to those of `cluster`, which knows none of the others.

#![deny(unsafe_code)]

mod beside;
pub mod cli;
pub mod cluster;
pub mod control;
pub mod daemon;
pub mod datapath;
pub mod explain;
mod fnv;
pub mod import;
#[cfg(test)]
mod json_schema;
mod render;
pub mod replay;
pub mod rules;
mod stderr;
