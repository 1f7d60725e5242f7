//! The rule sets: their layers, the set in force, the set on trial, and the result of the last
//! reading of the rule files. A set is planned completely, put in force completely, and taken back
//! if it cannot be stored.

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
