//! The daemon's state as the documents of the control interface.

mod attachments;
mod census;
mod counted;
mod described;
mod events;
mod exported;
pub mod from_maps;
mod interfaces;
mod keys;
mod limits;
mod metrics;
mod node;
mod others;
mod reported;
mod source;
mod stats;
mod tables;
mod unmet;

pub(crate) use attachments::{interface, mode, other_program, refused_interface, then_program};
pub(crate) use census::Census;
pub(crate) use counted::{
    BEFORE_RULES, CountsEach, Shadows, counts_each, dropped_by, dropped_by_lists, dropped_by_rules,
    marked, names as rule_names, numbered, verdicts,
};
pub(crate) use described::describe;
pub(crate) use events::EventLog;
pub(crate) use exported::RulesText;
pub use keys::key;
pub(crate) use keys::of_key;
pub(crate) use limiter_rules::place::Title;
pub(crate) use limits::LimitsText;
pub(crate) use metrics::{Facts, Trials, metrics};
pub(crate) use node::{cluster, refused_change};
pub(crate) use others::may_drop;
pub(crate) use reported::Reported;
pub(crate) use source::{view as source, whole};
pub(crate) use stats::StatsText;
pub(crate) use tables::refused;
pub(crate) use unmet::{seen, unmet};
