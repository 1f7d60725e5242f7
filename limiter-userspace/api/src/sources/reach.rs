//! How far an answer about events of before reaches.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment::Zone;
use crate::render::{line as push_line, number};

/// How far an answer about events of before reaches, and what it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reach {
    /// Begin of the time that was asked for: in RFC 3339, as all times here.
    pub since: Option<String>,
    /// End of the time that was asked for.
    pub until: Option<String>,
    /// Moment that the log reaches back to: nothing is known of before.
    pub from: String,
    /// Moment up to which it reaches: now.
    pub to: String,
    /// Drops of about that time that are in no episode, at most: over the budget of events, lost,
    /// or of more sources than the log has room for. Any source may be among them.
    pub unnamed: u64,
    /// Times of which nothing was written: no daemon ran, or the disk took no lines.
    pub gaps: Vec<Gap>,
    /// Gaps that are not listed.
    pub more_gaps: u64,
    /// True if a rule was asked for that is neither in force nor in the log.
    pub unknown_rule: bool,
    /// Lines of the log that are damaged, of whatever time.
    pub damaged: u64,
    /// Earlier episodes that are asked for, too, and left out: ask for a shorter time.
    pub left_out: u64,
    /// Reason why the log is not written, or not read whole, at present.
    pub trouble: Option<String>,
}

/// A time of which nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gap {
    /// Its begin.
    pub from: String,
    /// Its end.
    pub to: String,
}

impl Reach {
    /// True if no drop of the time that was asked for can be missing, as far as the log reaches.
    pub fn is_whole(&self) -> bool {
        self.unnamed == 0
            && self.gaps.is_empty()
            && self.damaged == 0
            && self.left_out == 0
            && self.trouble.is_none()
    }

    /// Appends how far the answer reaches, which may have nothing.
    pub fn render(&self, zone: &Zone, nothing: bool, text: &mut String) {
        let mut line = |line: String| push_line(text, format_args!("{line}"));
        if self.since.as_ref().is_none_or(|since| *since < self.from) {
            let from = zone.both(&self.from);
            line(format!("the log reaches back to {from}: nothing is known of before"));
        } else if !nothing {
            line("the reported drops are a sample: at least as many were dropped".to_owned());
        }
        if self.unnamed > 0 {
            line(format!(
                "up to {} drops of about that time are in no episode, and may be of any source: \
                 over the budget of events, lost, or of more sources than the log names",
                number(self.unnamed)
            ));
        }
        for Gap { from, to } in &self.gaps {
            let (from, to) = (zone.both(from), zone.both(to));
            line(format!("nothing was written from {from} to {to}: no daemon ran, or no room"));
        }
        if self.more_gaps > 0 {
            line(format!("{} more gaps are not listed", number(self.more_gaps)));
        }
        if self.damaged > 0 {
            line(format!("{} lines of the log are damaged: passed over", number(self.damaged)));
        }
        if self.left_out > 0 {
            line(format!(
                "{} earlier episodes are left out: ask for a shorter time, as with --until",
                number(self.left_out)
            ));
        }
        if let Some(trouble) = &self.trouble {
            line(format!("the log is not whole at present: {trouble}"));
        }
    }
}
