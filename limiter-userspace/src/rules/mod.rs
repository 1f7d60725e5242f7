//! Rules: from text to what the data path holds. Pure, but for reading nothing at all.
//!
//! [`model`] says what a rule is, [`compile`] turns a limit into the program's arithmetic, and
//! [`plan`] decides which slot and rule number each one gets, so that what did not change keeps its
//! state.

pub mod compile;
pub mod model;
pub mod plan;

pub use compile::CompileError;
pub use model::{Action, RateLimit, Rule, RuleSet, Selector, Unit};
pub use plan::{Installed, Plan, PlanError};
