//! Rules and rule sets after every check that needs no other rule.

mod action;
mod bound;
mod crowd;
mod direction;
pub mod key;
mod limit;
mod listing;
mod part;
mod path;
mod selector;
mod sentence;
mod sharing;
mod text;
mod traffic;
mod values;

pub use action::{Ban, Delay, Limits, Mark, Over, Terms};
pub use bound::Bound;
pub use crowd::{Crowd, crowd_hit};
pub use direction::Direction;
pub use key::Fact;
pub use limit::{ByteUnits, LimitList, Meter, Period, Quota, RateLimit, RuleLimit, Unit, Upper};
pub use listing::{LEAST, LONGEST_REASON, Listing, ROOM, is_nearly_everybody, until_text};
pub use part::{Part, SOURCE_MASKS, SourceMasks};
pub use path::Path;
pub use selector::{Selector, SelectorError, TriePrefix};
pub use sentence::{budget_sentence, limited_by_others, list_sentence, rule_sentence};
pub use sharing::{Share, Sharing};
pub use text::{
    limit_text, limits_text, meter_text, over_text, sharing_text, terms_kept, terms_text,
};
pub use traffic::{Meeting, Shape, Traffic};
pub use values::Values;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A rule: packets, and terms for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name that the rule file gives it.
    pub name: Option<Box<str>>,
    /// The value of its `generic_key`: a name, too. A rule without keys always has one.
    pub label: Option<Box<str>>,
    /// Packets that the rule is for, and the key of their buckets.
    pub path: Path,
    /// Terms for these packets.
    pub terms: Terms,
}

impl Rule {
    /// The name that its author gave it: in `name`, or else as the value of `generic_key`.
    pub fn called(&self) -> Option<String> {
        self.name.as_deref().or(self.label.as_deref()).map(str::to_owned)
    }

    /// A rule without a name.
    pub fn new(path: Path, terms: impl Into<Terms>) -> Self {
        Self { name: None, label: None, path, terms: terms.into() }
    }
}

/// How the names of limiter's own budgets begin: no rule file gives a budget such a name.
pub const RESERVED: &str = "limiter:";

/// Limits that several rules share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Name of the budget.
    pub name: String,
    /// Limits of the budget, and the action over them.
    pub limits: Limits,
}

/// A whole set of rules, at most one for each path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// The rules. A list of keys belongs to each; those with the same list make a table, in which
    /// the most specific rule wins. Tables are asked in the order of their first rules.
    pub rules: Vec<Arc<Rule>>,
    /// Budgets that rules can be charged to by name.
    pub budgets: Vec<Budget>,
    /// Rate of replies that [`Over::Reject`] may send; none for no replies.
    pub replies: Option<RateLimit>,
    /// Rate of new bans; none for the default.
    pub bans: Option<RateLimit>,
    /// Treatment of packets whose source no host can have; none for the default.
    pub martians: Option<Martians>,
    /// Entries of the allow and the deny list, which are asked before any rule.
    pub lists: BTreeMap<Selector, Listing>,
}

/// Treatment of packets whose source no host can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Martians {
    /// Such packets have a bucket like any other.
    #[default]
    Charge,
    /// Such packets are dropped.
    Drop,
}

impl Martians {
    /// All, with their names in rule files.
    pub const NAMED: [(&str, Self); 2] =
        [(Self::Charge.name(), Self::Charge), (Self::Drop.name(), Self::Drop)];

    /// Name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Drop => "drop",
        }
    }
}

impl RuleSet {
    /// A set of rules alone.
    pub fn of(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { rules: rules.into_iter().map(Arc::new).collect(), ..Self::default() }
    }

    /// True if the set affects any packet, if only by letting it pass by a rule.
    pub fn does_something(&self) -> bool {
        !self.rules.is_empty() || self.martians == Some(Martians::Drop) || !self.lists.is_empty()
    }

    /// True if the set can hold anybody back.
    pub fn limits_anybody(&self) -> bool {
        self.rules.iter().any(|rule| rule.terms != Terms::Unlimited)
            || self.martians == Some(Martians::Drop)
            || self.lists.values().any(|listing| !listing.allow)
    }
}

/// What an error or a counter is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A rule, which its path identifies.
    Rule(Path),
    /// A budget, by its name.
    Budget(String),
    /// The budget of replies.
    Replies,
    /// The budget of bans.
    Bans,
    /// Treatment of packets whose source no host can have.
    Martians,
    /// An entry of the allow or the deny list.
    Listed(Selector),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(path) => write!(f, "rule for {path}"),
            Self::Budget(name) => write!(f, "budget {name}"),
            Self::Replies => f.write_str("replies"),
            Self::Bans => f.write_str("bans"),
            Self::Martians => f.write_str("martians"),
            Self::Listed(selector) => write!(f, "list entry {selector}"),
        }
    }
}
