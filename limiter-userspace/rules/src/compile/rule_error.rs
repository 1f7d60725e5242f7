//! Why a rule set cannot be put in force, whatever is in force now.

use limiter_common::wire::{Count, MAX_RANGES, MAX_SHAPES, MAX_TABLES};

use super::LimitError;
use crate::model::{Direction, Limits, Subject};

/// All that is wrong with a rule set: at least one error, in the order in which they are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileErrors {
    /// The error that is reported first.
    pub first: CompileError,
    /// Errors beside the first one.
    pub others: Vec<CompileError>,
}

impl CompileErrors {
    /// Every error, the first one first.
    pub fn into_all(self) -> impl Iterator<Item = CompileError> {
        std::iter::once(self.first).chain(self.others)
    }
}

/// Error of a rule or a budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", error.text(subject))]
pub struct CompileError {
    /// Rule or budget that is at fault.
    pub subject: Subject,
    /// Error that was found.
    pub error: RuleError,
}

/// Ways in which a rule or a budget can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// A limit itself is wrong.
    Limit {
        /// Number of the limit, from 1, if there are several.
        limit: Option<usize>,
        /// Why the limit cannot be held.
        source: Box<LimitError>,
    },
    /// There is another rule for the same packets.
    Duplicate,
    /// More lists of keys than there are tables.
    TooManyTables,
    /// More combinations of keys with and without a value than a table has shapes.
    TooManyShapes,
    /// A mistake in ranges of values. Boxed, because it is large.
    Range(Box<RangeError>),
    /// Keys in another order than this rule before it has them.
    KeyOrder(Subject),
    /// A budget that does not exist.
    NoBudget(String),
    /// A class whose budget has a class of its own.
    ClassOfClass(String),
    /// A ban for which no packet over the limits is evidence.
    NoEvidence {
        /// True if the limits count SYNs alone.
        syns: bool,
    },
    /// A log of packets where a frame may be many packets.
    LogAtTc {
        /// Direction of the rule.
        direction: Direction,
    },
    /// An action that a packet at tc cannot have.
    ActionAtTc {
        /// Name of the action.
        action: &'static str,
        /// Direction of the rule.
        direction: Direction,
        /// The budget whose action it is, unless it is the rule's own.
        budget: Option<String>,
    },
    /// A wait for packets that come in, at XDP.
    DelayIn {
        /// Direction of the rule.
        direction: Direction,
        /// The budget whose action it is, unless it is the rule's own.
        budget: Option<String>,
    },
    /// Packets over a limit that nodes share are to wait.
    DelayShared,
    /// An interface that does not exist.
    NoInterface(String),
    /// A rule that nodes share has an interface among its keys.
    SharedInterface,
    /// A CPU that does not exist.
    NoCpu {
        /// CPU that the action names.
        cpu: u32,
        /// Number of CPUs.
        cpus: u32,
    },
}

impl RuleError {
    pub(super) fn limit(limit: Option<usize>, source: LimitError) -> Self {
        Self::Limit { limit, source: Box::new(source) }
    }

    pub(super) fn no_evidence(limits: &Limits) -> Self {
        let mut counts = limits.limits.iter().map(|limit| limit.meter.quota().count);
        Self::NoEvidence { syns: !limits.limits.is_empty() && counts.all(|at| at == Count::Syns) }
    }

    /// The whole message in one line, with its remedy.
    fn text(&self, subject: &Subject) -> String {
        match self {
            Self::Limit { limit: None, source } => format!("{subject}: {source}"),
            Self::Limit { limit: Some(limit), source } => {
                format!("{subject}, limit {limit}: {source}")
            }
            Self::Duplicate => format!("{subject} stands there twice: keep one"),
            Self::TooManyTables => format!(
                "{subject} has another list of keys than the {MAX_TABLES} tables before it: use \
                 the keys of one of those, and mind that rules with several limits on \
                 remote_address take a table"
            ),
            Self::TooManyShapes => format!(
                "{subject} has values for other keys, or another length of destination prefix, \
                 than the {MAX_SHAPES} combinations before it in its table: use one of those"
            ),
            Self::Range(error) => error.text(subject),
            Self::KeyOrder(first) => {
                format!("{subject} has the keys of the {first} in another order: use one order")
            }
            Self::NoBudget(name) => format!(
                "{subject}: there is no budget {name:?}: add it under budgets, or name another"
            ),
            Self::ClassOfClass(name) => format!(
                "{subject}: the class {name} has a class of its own: give that budget another \
                 action"
            ),
            Self::NoEvidence { syns } => {
                let (why, or) = if *syns {
                    ("its limit counts SYNs, which are none", "count packets")
                } else {
                    ("none of its packets is one", "remove the ban")
                };
                format!(
                    "{subject} never bans: `evidence: established`, the default, is a packet of \
                     an open TCP connection, and {why}: write `evidence: none`, by which forged \
                     packets ban, too, or {or}"
                )
            }
            Self::LogAtTc { direction } => {
                let or = if direction.has_out() {
                    "`direction: in`"
                } else {
                    "run limiter with `--hook xdp`"
                };
                format!(
                    "{subject}: `algorithm: sliding_log` keeps the time of each packet, and at \
                     tc one frame can be many packets: write `algorithm: sliding_counter`, or \
                     {or}"
                )
            }
            Self::ActionAtTc { action, direction, budget } => {
                let of = match budget {
                    Some(name) => format!("action: {action} of the budget {name}"),
                    None => format!("action: {action}"),
                };
                let remedy = match budget {
                    Some(_) => "charge a budget with another action",
                    None => "write `action: drop`",
                };
                if !direction.has_out() {
                    return format!(
                        "{subject}: {of} is not possible with `--hook tc`: the kernel has chosen \
                         the way of the packet already: {remedy}, or run limiter with `--hook xdp`"
                    );
                }
                let why = match *action {
                    "reject" => "an answer to an outgoing packet would go to its own sender here",
                    "ban" => {
                        "a ban drops what comes in from a source, and packets that go out to it \
                         are no evidence against it"
                    }
                    _ => "the kernel has chosen the way of an outgoing packet already",
                };
                format!(
                    "{subject}: {of} is not for `direction: {}`: {why}: {remedy}, or \
                     `direction: in`",
                    direction.name()
                )
            }
            Self::DelayIn { direction, budget } => delay_in(subject, *direction, budget.as_deref()),
            Self::DelayShared => format!(
                "{subject}: nodes cannot share it, because packets over it wait on each node by \
                 its own clock: write `scope: node`, or `action: drop`"
            ),
            Self::NoInterface(name) => format!(
                "{subject}: there is no interface {name:?}: `ip link` shows all; create it first"
            ),
            Self::SharedInterface => format!(
                "{subject}: nodes cannot share it: the interfaces of one mean nothing on another; \
                 remove `interface` from its keys, or write `scope: node`"
            ),
            Self::NoCpu { cpu, cpus } => format!(
                "{subject}: there is no CPU {cpu}: this machine has {cpus}, and the first is 0"
            ),
        }
    }
}

/// The text of [`RuleError::DelayIn`].
fn delay_in(subject: &Subject, direction: Direction, budget: Option<&str>) -> String {
    let of = budget.map_or_else(String::new, |name| format!(" of the budget {name}"));
    format!(
        "{subject}: action: delay{of} is not for `direction: {}` at XDP, where no packet can wait: \
         start the daemon with --hook tc, or write `direction: out`, or `action: drop`",
        direction.name()
    )
}

/// Ways in which ranges of values can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// More ranges than a table has places for.
    TooMany,
    /// A range and another value that begins where the range does.
    Begins {
        /// Key of the descriptor, as in rule files.
        key: &'static str,
        /// The range.
        values: String,
        /// The other value.
        inner: String,
    },
    /// A range that is partly in another one.
    Overlap {
        /// Key of the descriptor, as in rule files.
        key: &'static str,
        /// The range.
        values: String,
        /// The other range.
        other: String,
    },
    /// Values inside those of another rule, for fewer packets than that one.
    Cut {
        /// Key of the descriptor, as in rule files.
        key: &'static str,
        /// The values.
        inner: String,
        /// Rule around it.
        outer: Subject,
    },
}

impl RangeError {
    fn text(&self, subject: &Subject) -> String {
        match self {
            Self::TooMany => format!(
                "{subject}: its table has more than {MAX_RANGES} ranges, and one that others cut \
                 counts for each of its pieces: join some, or write the values one by one"
            ),
            Self::Begins { key, values, inner } => format!(
                "{subject}: another rule has {key} {inner}, and both begin alike: write {key} \
                 {values} without {inner}"
            ),
            Self::Overlap { key, values, other } => format!(
                "{subject}: {key} {values} is partly in the {other} of another rule: write ranges \
                 of which one is in the other, or that have nothing in common"
            ),
            Self::Cut { key, inner, outer } => format!(
                "{subject}: packets of {key} {inner} are also those of the {outer}, which is for \
                 more of them: add a rule for {key} {inner} with its other keys, or write that \
                 one without {inner}"
            ),
        }
    }
}
