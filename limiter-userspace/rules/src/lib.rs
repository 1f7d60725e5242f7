//! Rules: from text to what the data path holds. Pure, but for reading nothing at all.
//!
//! [`mod@file`], [`rate_text`], [`source_text`] and [`target_text`] read what people write,
//! [`model`] says what a rule is, [`compile`] turns rules into the program's arithmetic and finds
//! all that cannot be held, and [`place`] decides which slot and rule number each one gets, so that
//! what did not change keeps its state. [`read_back`] goes the other way: from the maps to words.
//! [`warnings`] says which rules may not do what their author thinks.

pub mod compile;
mod dialect;
pub mod feed;
pub mod file;
pub mod model;
pub mod place;
pub mod rate_text;
pub mod read_back;
pub mod source_text;
pub mod target_text;
pub mod warnings;

pub use compile::{CompileError, CompiledSet, Environment, LimitError, compile_set};
pub use dialect::Dialect;
pub use file::{RuleFile, RuleFileError, RuleFiles};
pub use model::{Budget, Path, Period, RateLimit, Rule, RuleSet, Selector, Subject, Terms, Unit};
pub use place::{HeldTables, Installed, PlaceError, Plan, PlanError, TablesPlan};
pub use rate_text::{RateText, RateTextError};
pub use source_text::SourceTextError;
pub use target_text::{Target, TargetError, Words};
