//! `limiter check`.

use std::fmt::Write as _;

use super::Answer;
use super::args::{Check, Output};
use super::failure::Failure;
use crate::daemon::check::{self, Checked};
use crate::render::{self, Render, line, push, rate, table, warnings};
use crate::rules::plain::clean;

/// Checks rule files; a mistake is an answer, with exit code 2.
pub(super) fn check(what: &Check, output: Output) -> Result<Answer, Failure> {
    let checked = check::check(&what.files, what.max_frame, what.max_rules);
    let mut answer = Answer { code: if checked.ok { 0 } else { 2 }, ..Answer::default() };
    match output.document(&checked)? {
        Some(text) => answer.text = text,
        None if checked.ok => answer.text = render::text(&checked),
        None => {
            answer.errors = checked.errors.into_iter().map(|error| error.message).collect();
        }
    }
    Ok(answer)
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

impl Render for Checked {
    fn render(&self, text: &mut String) {
        // A string takes everything.
        let _: std::fmt::Result = writeln!(
            text,
            "ok: {} with {} in {}, {}",
            counted(self.files.len(), "file"),
            counted(self.rules, "rule"),
            counted(self.tables.len(), "table"),
            counted(self.budgets.len(), "budget"),
        );
        if !self.tables.is_empty() {
            let mut tables = table(&["TABLE", ">RULES"]);
            for table in &self.tables {
                tables.add_row([table.keys.clone(), table.rules.to_string()]);
            }
            text.push('\n');
            push(text, &tables);
        }
        if !self.sentences.is_empty() {
            text.push('\n');
        }
        for sentence in &self.sentences {
            line(text, format_args!("{}", clean(sentence)));
        }
        let more = (self.rules + self.budgets.len()).saturating_sub(self.sentences.len());
        if more > 0 {
            line(text, format_args!("and {more} more"));
        }
        if !self.rates.is_empty() {
            let mut rates = table(&["RATE NOT HELD TO 0.1 %", "LIMIT", ">WRITTEN", ">EFFECTIVE"]);
            for off in &self.rates {
                rates.add_row([
                    off.rule.clone(),
                    off.limit.clone(),
                    rate(Some(off.configured_per_second)),
                    rate(Some(off.effective_per_second)),
                ]);
            }
            text.push('\n');
            push(text, &rates);
        }
        if !self.interfaces.is_empty() {
            let names = self.interfaces.join(", ");
            line(text, format_args!("not looked for on this machine: the interfaces {names}"));
        }
        warnings(text, &self.warnings);
    }
}
