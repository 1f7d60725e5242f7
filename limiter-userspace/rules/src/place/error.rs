//! Why a rule set cannot be put in force.

use limiter_common::wire::MAX_ACTIONS;

use super::records::{MAX_BUDGETS, MAX_INTERFACES};
use crate::compile::CompileError;
use crate::model::Subject;

/// Why a rule set cannot be put in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A rule of it cannot be held, whatever is in force now.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// There is no room.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

impl PlanError {
    /// The rule or budget at fault, if it is one.
    pub const fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Compile(error) => Some(&error.subject),
            Self::Place(error) => error.subject(),
        }
    }
}

/// Lack of room beside the rules that are in force and leave only then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The maps are too small.
    #[error(
        "{rules} rules do not fit beside the {installed} in force: start the daemon with \
         --max-rules {needed}"
    )]
    TooMany {
        /// Rules wanted.
        rules: usize,
        /// Rules in force.
        installed: usize,
        /// Rules for which there would have to be room.
        needed: usize,
    },
    /// More budgets than there is room for.
    #[error("{0}: there is room for {MAX_BUDGETS} budgets, with those being replaced: use fewer")]
    TooManyBudgets(Subject),
    /// More actions than there is room for.
    #[error(
        "{0}: there is room for {most} different actions, with those being replaced: use fewer",
        most = MAX_ACTIONS - 1
    )]
    TooManyActions(Subject),
    /// More interfaces than there is room for.
    #[error(
        "{0}: there is room for {MAX_INTERFACES} interfaces to redirect to, with those being \
         replaced: use fewer"
    )]
    TooManyInterfaces(Subject),
}

impl PlaceError {
    /// The rule or budget that found no place, if it is one.
    pub const fn subject(&self) -> Option<&Subject> {
        match self {
            Self::TooMany { .. } => None,
            Self::TooManyBudgets(subject)
            | Self::TooManyActions(subject)
            | Self::TooManyInterfaces(subject) => Some(subject),
        }
    }
}
