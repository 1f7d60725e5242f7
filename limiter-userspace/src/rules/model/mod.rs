//! What a rule is, after every check that needs no other rule.

mod action;
pub mod key;
mod limit;
mod part;
mod path;
mod selector;
mod text;

pub use action::{Action, Ban, Limits, Mark, Over, Terms};
pub use key::Fact;
pub use limit::{Meter, Quota, RateLimit, RuleLimit, Unit, Upper};
pub use part::{Part, SOURCE_MASKS, SourceMasks};
pub use path::{KeyedRule, Path};
pub use selector::{Selector, SelectorError, TriePrefix};
pub use text::{limit_text, limits_text, meter_text, over_text, terms_text};

use std::fmt;

/// One rule of the source table: every source has a bucket of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name that the rule file gives it.
    pub name: Option<String>,
    /// For whom.
    pub selector: Selector,
    /// What.
    pub action: Action,
}

/// How the names of limiter's own budgets begin: no rule file gives a budget such a name.
pub const RESERVED: &str = "limiter:";

/// Limits that several rules share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Its name.
    pub name: String,
    /// What it allows, and what happens over it.
    pub limits: Limits,
}

/// A whole set of rules, at most one for each selector and for each path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// Those of the source table, in no particular order: the longest prefix wins.
    pub rules: Vec<Rule>,
    /// Those of other tables. Tables are asked in the order of their first rules.
    pub keyed: Vec<KeyedRule>,
    /// What rules can be charged to by name.
    pub budgets: Vec<Budget>,
    /// How many replies [`Over::Reject`] may send; none for no replies.
    pub replies: Option<RateLimit>,
    /// How many new bans there may be; none for the default.
    pub bans: Option<RateLimit>,
    /// What becomes of packets whose source no host can have; none for the default.
    pub martians: Option<Martians>,
}

/// What becomes of packets whose source no host can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Martians {
    /// They have a bucket like any other.
    #[default]
    Charge,
    /// They are dropped.
    Drop,
}

impl Martians {
    /// All, with their names in rule files.
    pub const NAMED: [(&str, Self); 2] =
        [(Self::Charge.name(), Self::Charge), (Self::Drop.name(), Self::Drop)];

    /// Its name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Drop => "drop",
        }
    }
}

impl RuleSet {
    /// A set of the source table alone.
    pub fn of_sources(rules: Vec<Rule>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Whether anything becomes of any packet by it, be it only that it passes by a rule.
    pub fn does_something(&self) -> bool {
        !self.rules.is_empty() || !self.keyed.is_empty() || self.martians == Some(Martians::Drop)
    }

    /// Whether it stands in the way of anybody.
    pub fn limits_anybody(&self) -> bool {
        self.rules.iter().any(|rule| rule.action != Action::Unlimited)
            || self.keyed.iter().any(|rule| rule.terms != Terms::Unlimited)
            || self.martians == Some(Martians::Drop)
    }
}

/// What an error or a counter is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A rule of the source table.
    Source(Selector),
    /// A rule of another table.
    Keyed(Path),
    /// A budget.
    Budget(String),
    /// The budget of replies.
    Replies,
    /// The budget of bans.
    Bans,
    /// What becomes of packets whose source no host can have.
    Martians,
}

/// A [`Subject`] that nobody has to own before there is an error: a path is a list.
#[derive(Clone, Copy, Debug)]
pub enum SubjectRef<'a> {
    /// As [`Subject::Source`].
    Source(Selector),
    /// As [`Subject::Keyed`].
    Keyed(&'a Path),
    /// As [`Subject::Budget`].
    Budget(&'a str),
    /// As [`Subject::Replies`].
    Replies,
    /// As [`Subject::Bans`].
    Bans,
}

impl SubjectRef<'_> {
    /// The same, owned.
    pub fn subject(self) -> Subject {
        match self {
            Self::Source(selector) => Subject::Source(selector),
            Self::Keyed(path) => Subject::Keyed(path.clone()),
            Self::Budget(name) => Subject::Budget(name.to_owned()),
            Self::Replies => Subject::Replies,
            Self::Bans => Subject::Bans,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(selector) => write!(f, "rule for {selector}"),
            Self::Keyed(path) => write!(f, "rule for {path}"),
            Self::Budget(name) => write!(f, "budget {name}"),
            Self::Replies => f.write_str("replies"),
            Self::Bans => f.write_str("bans"),
            Self::Martians => f.write_str("martians"),
        }
    }
}
