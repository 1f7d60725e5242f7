//! The table of a comparison: packets offered, packets that passed on either side, and whether
//! `limiter import` reported the difference.

use std::collections::BTreeSet;

use anyhow::Result;
use limiter_import::Imported;
use limiter_text::plain::clean;
use serde_json::json;

use super::effect::Range;
use crate::sandbox::format::{table, thousands};

/// Part of the offered packets (one in `APART`) that may differ because the times of both sides
/// differ, and the least number.
const APART: u64 = 50;
const LEAST: u64 = 1;

/// Text after the place of a rule, for sources that are exempt from it.
pub(super) const EXEMPT: &str = ", exempt";

/// One load of a rule, and its result.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) rule: String,
    pub(super) load: &'static str,
    pub(super) offered: u64,
    pub(super) old: u64,
    pub(super) new: u64,
    pub(super) arithmetic: u64,
    /// Packets that may pass in the other program, given the differences that `limiter import`
    /// reported.
    pub(super) range: Range,
    /// True if the limit gives nothing back while the load lasts: then no result is by chance.
    pub(super) exact: bool,
    /// True if no packet of any load passed in the other program.
    pub(super) dropped: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Same,
    /// The sides differ, and `limiter import` reported the difference by these letters.
    Named(String),
    /// The sides differ, and no reported difference explains it.
    Unnamed,
    /// No packet passes in the other program at any rate: other rules, which stay, drop them.
    Dropped,
    /// limiter does not do what the arithmetic says.
    Wrong,
}

impl Row {
    pub(super) fn finding(&self) -> Finding {
        let apart = if self.exact { 0 } else { LEAST.max(self.offered / APART) };
        if self.new.abs_diff(self.arithmetic) > apart {
            return Finding::Wrong;
        }
        if self.dropped {
            return Finding::Dropped;
        }
        if self.new.abs_diff(self.old) <= apart {
            return Finding::Same;
        }
        let Range { least, most, fewer, more } = &self.range;
        if self.old + apart < *least || self.old > most + apart {
            return Finding::Unnamed;
        }
        let letters = if self.old < self.new { fewer } else { more };
        let letters: Vec<String> = letters.iter().map(ToString::to_string).collect();
        Finding::Named(letters.join(", "))
    }

    fn judged(&self) -> String {
        match self.finding() {
            Finding::Same => "same".to_owned(),
            Finding::Named(letters) => format!("differs, as named: {letters}"),
            Finding::Unnamed => {
                let Range { least, most, .. } = &self.range;
                let by = if least == most {
                    format!("{least}")
                } else {
                    format!("{} to {}", thousands(*least), thousands(*most))
                };
                format!("DIFFERS: by what import said, {by} pass there")
            }
            Finding::Dropped => "other rules there drop all of it: not compared".to_owned(),
            Finding::Wrong => "limiter is NOT what its arithmetic says".to_owned(),
        }
    }

    /// Line for the row while the comparison goes on.
    pub(super) fn line(&self) -> String {
        let Self { rule, load, offered, old, new, .. } = self;
        format!("{rule}, {load}: {old} and {new} of {offered} passed")
    }
}

#[derive(Clone, Debug)]
pub(super) struct Report {
    format: String,
    translated: usize,
    pub(super) rows: Vec<Row>,
    pub(super) left_out: Vec<String>,
}

impl Report {
    pub(super) fn new(imported: &Imported, left_out: Vec<String>) -> Self {
        let (format, translated) = (imported.format.clone(), imported.translated);
        Self { format, translated, rows: Vec::new(), left_out }
    }

    /// Marks the rules with no packet that passed in the other program.
    pub(super) fn note_dropped(&mut self) {
        let passed: BTreeSet<String> =
            self.rows.iter().filter(|row| row.old > 0).map(|row| row.rule.clone()).collect();
        for row in &mut self.rows {
            row.dropped = !passed.contains(&row.rule);
        }
    }

    /// Returns true if something was compared and every difference was reported.
    pub(super) fn is_as_named(&self) -> bool {
        let findings = || self.rows.iter().map(Row::finding);
        findings().all(|finding| !matches!(finding, Finding::Unnamed | Finding::Wrong))
            && findings().any(|finding| finding != Finding::Dropped)
    }

    /// Rules with packets that passed in the other program.
    fn compared(&self) -> usize {
        let rows = self.rows.iter().filter(|row| row.finding() != Finding::Dropped);
        rows.map(|row| row.rule.trim_end_matches(EXEMPT)).collect::<BTreeSet<_>>().len()
    }

    pub(super) fn text(&self) -> String {
        let header =
            ["rule", "load", "offered", &self.format, "limiter", "arithmetic", "comparison"];
        let rows = self.rows.iter().map(|row| {
            vec![
                clean(&row.rule),
                row.load.to_owned(),
                thousands(row.offered),
                thousands(row.old),
                thousands(row.new),
                thousands(row.arithmetic),
                row.judged(),
            ]
        });
        let mut text = table(&header, &[2, 3, 4, 5], rows) + "\n";
        for left_out in &self.left_out {
            text.push_str("not tried: ");
            text.push_str(&clean(left_out));
            text.push('\n');
        }
        let (translated, compared) = (self.translated, self.compared());
        let said = match (self.is_as_named(), compared) {
            (true, _) => "nothing differs by more than was named",
            (false, 0) => "there is nothing to say of the others",
            (false, _) => "something differs by more than was named",
        };
        text + &format!(
            "{translated} rules were translated, {compared} of them compared: {said}. \
             docs/import.md has the letters.\n"
        )
    }

    pub(super) fn json(&self) -> Result<String> {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                let (finding, letters) = match row.finding() {
                    Finding::Same => ("same", String::new()),
                    Finding::Named(letters) => ("named", letters),
                    Finding::Unnamed => ("unnamed", String::new()),
                    Finding::Dropped => ("dropped_by_others", String::new()),
                    Finding::Wrong => ("wrong", String::new()),
                };
                json!({
                    "rule": row.rule, "load": row.load, "offered": row.offered,
                    "passed": {"old": row.old, "limiter": row.new, "arithmetic": row.arithmetic},
                    "finding": finding, "letters": letters,
                })
            })
            .collect();
        let document = json!({
            "format": self.format, "translated": self.translated, "rows": rows,
            "not_tried": self.left_out, "as_named": self.is_as_named(),
        });
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_or_it_is_not() {
        let row = |old, new, range: (u64, u64)| Row {
            rule: "line 1".to_owned(),
            load: "2 x",
            offered: 200,
            old,
            new,
            arithmetic: 104,
            range: Range {
                least: range.0,
                most: range.1,
                fewer: ['B', 'N'].into(),
                more: ['K'].into(),
            },
            exact: false,
            dropped: false,
        };
        let named = |letters: &str| Finding::Named(letters.to_owned());
        assert_eq!(row(100, 103, (104, 104)).finding(), Finding::Same);
        assert_eq!(row(80, 103, (104, 104)).finding(), Finding::Unnamed);
        assert_eq!(row(80, 103, (60, 104)).finding(), named("B, N"));
        // A letter excuses no difference in the other direction, and none beyond its size.
        assert_eq!(row(120, 103, (60, 104)).finding(), Finding::Unnamed);
        assert_eq!(row(50, 103, (60, 104)).finding(), Finding::Unnamed);
        assert_eq!(row(120, 103, (60, 130)).finding(), named("K"));
        assert_eq!(row(100, 99, (104, 104)).finding(), Finding::Wrong);
        let dropped = Row { dropped: true, ..row(0, 104, (104, 104)) };
        assert_eq!(dropped.finding(), Finding::Dropped);
        let small =
            |old, new| Row { offered: 4, arithmetic: 1, exact: true, ..row(old, new, (1, 1)) };
        assert_eq!(small(2, 1).finding(), Finding::Unnamed);
        assert_eq!(small(1, 1).finding(), Finding::Same);
        let report = Report {
            format: "iptables".to_owned(),
            translated: 1,
            rows: vec![dropped],
            left_out: Vec::new(),
        };
        assert!(!report.is_as_named(), "nothing was compared");
    }
}
