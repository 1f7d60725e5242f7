//! The rule sets: the layers that they are made of, the one in force, the one on trial, and how the
//! rule files were read last. A set is planned whole, put in force whole, and taken back when it
//! cannot be kept.

mod files;
mod ground;
mod in_force;
mod limits;
mod machine;
mod planned;
mod state;
mod trial;

pub(crate) use ground::Ground;
pub(crate) use state::RuleSets;
