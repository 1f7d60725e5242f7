//! Translation of the rules of another program.

use limiter_rules::Path;
use serde::Serialize;

/// Rules of another program, as far as they can be said here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The rule file, or the file of a list.
    pub text: String,
    /// Name of the format.
    pub format: String,
    /// True if the text is for `limiter deny --file`, and no rule file.
    pub is_list: bool,
    /// Number of rules, or of sources of a list, that were translated.
    pub translated: usize,
    /// Things to know of the whole.
    pub remarks: Vec<String>,
    /// The rules in their order, and the entries of a list that were not translated.
    pub rules: Vec<Entry>,
}

/// Rule of the other program, and its fate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Place of it.
    pub place: String,
    /// The rule as it was read.
    pub rule: String,
    /// Fate of the rule.
    pub outcome: Outcome,
    /// Differences of the translation.
    pub differences: Vec<String>,
    /// The reason why it was not translated, or need not be.
    pub reason: Option<String>,
    /// Paths of the rules of the file in which it is.
    #[serde(skip)]
    pub paths: Vec<Path>,
    /// Differences by which another number of packets of one source may pass.
    #[serde(skip)]
    pub effects: Vec<Effect>,
    /// True if it is for packets that the machine forwards.
    #[serde(skip)]
    pub forwarded: bool,
}

/// A difference by which another number of packets of one source may pass there, with all that its
/// size depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Letter B: tokens come in ticks of the kernel's clock, and those beyond the burst are lost.
    Ticks,
    /// Letter C: bytes are those of IP packets, in pieces.
    Bytes {
        /// Bytes of a piece.
        piece: u64,
        /// Bytes that a bucket holds, or comes to hold while it is used up for the first time.
        most: u64,
    },
    /// Letter K: a bucket is full again.
    Forgotten {
        /// Milliseconds after which it is.
        milliseconds: u64,
        /// True if that is however much was sent; else after that time without packets.
        always: bool,
    },
    /// Letter N: what is refused counts as well.
    Refused,
    /// Letter O: a packet is charged to each limit before the one that drops it.
    Several,
}

/// Fate of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// In the text, with its differences.
    Translated,
    /// Not in the text but as a comment, with the reason.
    NotTranslated,
    /// No limit, and no list: the firewall goes on with it.
    Left,
}

impl Imported {
    /// Number of rules with an outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        match outcome {
            Outcome::Translated => self.translated,
            other => self.rules.iter().filter(|rule| rule.outcome == other).count(),
        }
    }
}
