//! The rule sets: their layers, the set in force, the set on trial, and the result of the last
//! reading of the rule files. A set is planned completely, put in force completely, and taken back
//! if it cannot be stored.

pub mod check;
pub(crate) mod effective;
mod files;
mod ground;
pub(crate) mod guard;
mod in_force;
pub(crate) mod layers;
pub(crate) mod limit_ends;
mod limits;
mod machine;
mod planned;
pub mod rule_files;
mod state;
pub(crate) mod taken;
mod trial;
pub(crate) mod warnings;
pub(crate) mod watch;

pub(crate) use ground::Ground;
pub(crate) use state::RuleSets;
