//! The table of a comparison: packets that were offered, packets that passed on either side, and
//! whether a difference was named.

use std::collections::BTreeSet;

use anyhow::Result;
use limiter_import::Imported;
use limiter_text::plain::clean;
use serde_json::json;

use crate::sandbox::format::{table, thousands};

/// Letters of the differences by which fewer packets of one source may pass there than here, and
/// those by which more may.
const FEWER: [char; 7] = ['B', 'C', 'F', 'H', 'N', 'O', 'Q'];
const MORE: [char; 6] = ['C', 'F', 'H', 'K', 'O', 'Q'];

/// Part of the offered packets that may differ because the times of both sides do, and the least.
const APART: u64 = 50;
const LEAST: u64 = 1;

/// A load of a rule, and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) rule: String,
    pub(super) load: &'static str,
    pub(super) offered: u64,
    pub(super) old: u64,
    pub(super) new: u64,
    pub(super) arithmetic: u64,
    /// Letters of the differences that `limiter import` named.
    pub(super) named: BTreeSet<char>,
    /// True if no packet of any load passed there.
    pub(super) dropped: bool,
}

/// Judgement of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Same,
    /// Both differ, and import said so: by these letters.
    Named(String),
    /// Both differ, and nothing that import said explains it.
    Unnamed,
    /// Nothing passes there at any rate: other rules, which stay, drop these packets.
    Dropped,
    /// limiter does not what the arithmetic says.
    Wrong,
}

impl Row {
    pub(super) fn finding(&self) -> Finding {
        let apart = LEAST.max(self.offered / APART);
        if self.new.abs_diff(self.arithmetic) > apart {
            return Finding::Wrong;
        }
        if self.dropped {
            return Finding::Dropped;
        }
        if self.new.abs_diff(self.old) <= apart {
            return Finding::Same;
        }
        let letters: &[char] = if self.old < self.new { &FEWER } else { &MORE };
        let named: Vec<String> = letters
            .iter()
            .filter(|letter| self.named.contains(letter))
            .map(ToString::to_string)
            .collect();
        if named.is_empty() { Finding::Unnamed } else { Finding::Named(named.join(", ")) }
    }

    fn judged(&self) -> String {
        match self.finding() {
            Finding::Same => "same".to_owned(),
            Finding::Named(letters) => format!("differs, as named: {letters}"),
            Finding::Unnamed => "DIFFERS, and import did not say so".to_owned(),
            Finding::Dropped => "other rules there drop all of it: not compared".to_owned(),
            Finding::Wrong => "limiter is NOT what its arithmetic says".to_owned(),
        }
    }

    /// The row while the comparison goes on.
    pub(super) fn line(&self) -> String {
        let Self { rule, load, offered, old, new, .. } = self;
        format!("{rule}, {load}: {old} and {new} of {offered} passed")
    }
}

/// The whole comparison.
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

    /// Marks the rules of which nothing passed there.
    pub(super) fn note_dropped(&mut self) {
        let passed: BTreeSet<String> =
            self.rows.iter().filter(|row| row.old > 0).map(|row| row.rule.clone()).collect();
        for row in &mut self.rows {
            row.dropped = !passed.contains(&row.rule);
        }
    }

    /// True if nothing differs but what was named.
    pub(super) fn is_as_named(&self) -> bool {
        self.rows.iter().all(|row| !matches!(row.finding(), Finding::Unnamed | Finding::Wrong))
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
        let as_said = if self.is_as_named() { "nothing" } else { "something" };
        let translated = self.translated;
        text + &format!(
            "{translated} rules were translated; {as_said} differs that was not named. \
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
        let row = |old, new, arithmetic, named: &str| Row {
            rule: "line 1".to_owned(),
            load: "2 x",
            offered: 200,
            old,
            new,
            arithmetic,
            named: named.chars().collect(),
            dropped: false,
        };
        assert_eq!(row(100, 103, 104, "").finding(), Finding::Same);
        assert_eq!(row(80, 103, 104, "AGI").finding(), Finding::Unnamed);
        assert_eq!(row(80, 103, 104, "BGC").finding(), Finding::Named("B, C".to_owned()));
        // Ticks let less pass there, never more.
        assert_eq!(row(120, 103, 104, "BK").finding(), Finding::Named("K".to_owned()));
        assert_eq!(row(120, 103, 104, "BN").finding(), Finding::Unnamed);
        assert_eq!(row(100, 100, 110, "B").finding(), Finding::Wrong);
        let dropped = Row { dropped: true, ..row(0, 100, 100, "B") };
        assert_eq!(dropped.finding(), Finding::Dropped);
    }
}
