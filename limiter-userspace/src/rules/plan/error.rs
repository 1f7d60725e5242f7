//! Why a rule set cannot be installed.

use limiter_common::wire::{MAX_ACTIONS, MAX_SHAPES, MAX_TABLES};

use super::records::{MAX_BUDGETS, MAX_INTERFACES};
use crate::rules::compile::LimitError;
use crate::rules::model::Subject;

/// Why a rule set cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A limit itself is wrong.
    #[error("{subject}{}: {source}", limit.map(|limit| format!(", limit {limit}")).unwrap_or_default())]
    Limit {
        /// Whose.
        subject: Subject,
        /// Which one, from 1, if there are several.
        limit: Option<usize>,
        /// What is wrong.
        source: Box<LimitError>,
    },
    /// Two rules for the same packets.
    #[error("{0} stands there twice: keep one")]
    Duplicate(Subject),
    /// The maps are too small.
    #[error(
        "{rules} rules do not fit beside the {installed} in force: start the daemon with --max-rules {needed}"
    )]
    TooMany {
        /// Rules wanted.
        rules: usize,
        /// Rules in force.
        installed: usize,
        /// What would do.
        needed: usize,
    },
    /// More lists of keys than there are tables.
    #[error(
        "{0} has another list of keys than the {MAX_TABLES} tables before it: use the keys of one of \
         those, and mind that rules with several limits on remote_address take a table"
    )]
    TooManyTables(Subject),
    /// More combinations of keys with and without a value than a table has shapes.
    #[error(
        "{0} has values for other keys, or another length of destination prefix, than the \
         {MAX_SHAPES} combinations before it in its table: use one of those"
    )]
    TooManyShapes(Subject),
    /// The same keys in another order.
    #[error("{subject} has the keys of the {first} in another order: use one order")]
    KeyOrder {
        /// Whose keys.
        subject: Subject,
        /// The rule before it.
        first: Subject,
    },
    /// A budget that is not there.
    #[error("{subject}: there is no budget {name:?}: add it under budgets, or name another")]
    NoBudget {
        /// Who names it.
        subject: Subject,
        /// The name.
        name: String,
    },
    /// A class whose budget has a class of its own.
    #[error("{subject}: the class {name} has a class of its own: give that budget another action")]
    ClassOfClass {
        /// Who names it.
        subject: Subject,
        /// The budget.
        name: String,
    },
    /// An interface that is not there.
    #[error("{subject}: there is no interface {name:?}: `ip link` shows all; create it first")]
    NoInterface {
        /// Who names it.
        subject: Subject,
        /// The interface.
        name: String,
    },
    /// A CPU that is not there.
    #[error("{subject}: there is no CPU {cpu}: this machine has {cpus}, and the first is 0")]
    NoCpu {
        /// Who names it.
        subject: Subject,
        /// The CPU.
        cpu: u32,
        /// How many there are.
        cpus: u32,
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

impl PlanError {
    /// What is at fault, if it is one thing.
    pub const fn subject(&self) -> Option<&Subject> {
        match self {
            Self::TooMany { .. } => None,
            Self::Limit { subject, .. }
            | Self::KeyOrder { subject, .. }
            | Self::NoBudget { subject, .. }
            | Self::ClassOfClass { subject, .. }
            | Self::NoInterface { subject, .. }
            | Self::NoCpu { subject, .. }
            | Self::Duplicate(subject)
            | Self::TooManyTables(subject)
            | Self::TooManyShapes(subject)
            | Self::TooManyBudgets(subject)
            | Self::TooManyActions(subject)
            | Self::TooManyInterfaces(subject) => Some(subject),
        }
    }
}
