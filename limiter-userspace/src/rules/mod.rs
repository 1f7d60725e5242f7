//! Rules: from text to what the data path holds. Pure, but for reading nothing at all.
//!
//! [`mod@file`], [`rate_text`] and [`source_text`] read what people write, [`model`] says what a
//! rule is, [`plain`] says what may stand in a name, [`compile`] turns a limit into the program's
//! arithmetic, and [`plan`] decides which slot and rule number each one gets, so that what did not
//! change keeps its state.

pub mod compile;
pub mod file;
pub mod model;
pub mod plain;
pub mod plan;
pub mod rate_text;
pub mod source_text;

pub use compile::LimitError;
pub use file::{RuleFile, RuleFileError, RuleFiles};
pub use model::{
    Action, Budget, KeyedRule, Path, RateLimit, Rule, RuleSet, Selector, Subject, Terms, Unit,
};
pub use plan::{Environment, HeldTables, Installed, Plan, PlanError, TablesPlan};
pub use rate_text::{RateText, RateTextError};
pub use source_text::SourceTextError;
