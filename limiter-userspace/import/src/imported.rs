//! Translation of the rules of another program.

use limiter_rules::Path;
use serde::Serialize;

/// The rules of another program, as far as limiter can express them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The rule file, or the file of a list.
    pub text: String,
    /// Name of the format.
    pub format: String,
    /// True if the text is for `limiter deny --file` instead of a rule file.
    pub is_list: bool,
    /// Number of translated rules, or of sources in a list.
    pub translated: usize,
    /// Remarks about the whole.
    pub remarks: Vec<String>,
    /// The rules in order, or the entries of a list that were not translated.
    pub rules: Vec<Entry>,
}

/// A rule of the other program, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Place of the rule.
    pub place: String,
    /// The rule as it was read.
    pub rule: String,
    /// Outcome of the translation.
    pub outcome: Outcome,
    /// Differences of the translation.
    pub differences: Vec<String>,
    /// The reason why it was not translated or need not be.
    pub reason: Option<String>,
    /// Paths of the rules in the file that contain it.
    #[serde(skip)]
    pub paths: Vec<Path>,
    /// Differences that change how many packets of one source pass.
    #[serde(skip)]
    pub effects: Vec<Effect>,
    /// True if it is for forwarded packets.
    #[serde(skip)]
    pub forwarded: bool,
}

/// A difference that changes how many packets of one source pass, with everything that determines
/// its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Letter B: tokens arrive in ticks of the kernel's clock, and those beyond the burst are lost.
    Ticks,
    /// Letter C: bytes are those of IP packets, counted in pieces.
    Bytes {
        /// Bytes of a piece.
        piece: u64,
        /// Bytes that a bucket holds, or reaches while it is first used up.
        most: u64,
    },
    /// Letter K: a bucket becomes full again.
    Forgotten {
        /// Milliseconds after which it does.
        milliseconds: u64,
        /// True if that happens regardless of traffic; otherwise after so long without packets.
        always: bool,
    },
    /// Letter N: rejected packets count as well.
    Refused,
    /// Letter O: a packet is charged to each limit before the one that drops it.
    Several,
}

/// Outcome of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is in the text, with its differences.
    Translated,
    /// It is in the text only as a comment, with the reason.
    NotTranslated,
    /// It is neither a limit nor a list, and stays in the firewall.
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
