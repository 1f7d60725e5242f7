//! Answers as text for people. Numbers are exact and stand right. Names stay within their place in
//! a line: [`clean`].

use std::fmt::Write as _;

use comfy_table::CellAlignment;
use comfy_table::presets::NOTHING;

use super::sources::{other_rules, question, without_rule};
use crate::control::api::lists::ListName;
use crate::control::api::{
    Brake, Changed, Counts, Detached, InterfaceState, LimitEntry, Limits, Outcomes, Reloads,
    RuleCounts, SourceView, Stats, Status,
};
use crate::rules::Unit;
use crate::rules::plain::clean;

/// An answer with a form for people.
pub(super) trait Render {
    /// Appends it to `text`.
    fn render(&self, text: &mut String);
}

/// The whole form, ending with a line break.
pub(super) fn text(answer: &impl Render) -> String {
    let mut text = String::new();
    answer.render(&mut text);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// 1234567 as 1,234,567.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn optional(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// A rate in the shortest unit of time in which it is at least 1, to one part in 10,000 at least.
#[expect(clippy::cast_precision_loss, reason = "a week has few seconds")]
pub(super) fn rate(per_second: Option<f64>) -> String {
    let Some(rate) = per_second else {
        return "-".to_owned();
    };
    // A rate of exactly 1 may be rounded to a little less.
    let unit = Unit::ALL
        .into_iter()
        .find(|unit| rate * unit.seconds() as f64 > 0.9999)
        .unwrap_or(Unit::Week);
    let (value, unit) = (rate * unit.seconds() as f64, unit.short());
    if value >= 1000.0 { format!("{value:.1}/{unit}") } else { format!("{value:.4}/{unit}") }
}

/// A length of time in its natural unit.
pub(super) fn duration(nanos: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    for (size, unit) in UNITS {
        if nanos >= size {
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let value = nanos as f64 / size as f64;
            return format!("{value:.3} {unit}");
        }
    }
    format!("{nanos} ns")
}

fn counts(Counts { packets, bytes }: Counts) -> [String; 2] {
    [number(packets), number(bytes)]
}

/// A table of clean cells.
pub(super) struct Table(comfy_table::Table);

impl Table {
    /// Adds a row, of which cells may be missing at its end.
    pub(super) fn add_row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0.add_row(cells.into_iter().map(|cell| clean(cell.as_ref())));
    }
}

/// A table without lines; columns named with a leading `>` stand right.
pub(super) fn table(columns: &[&str]) -> Table {
    let mut table = comfy_table::Table::new();
    table.load_style(NOTHING);
    table.set_header(columns.iter().map(|name| name.trim_start_matches('>').to_owned()));
    for (index, name) in columns.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if name.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    Table(table)
}

pub(super) fn push(text: &mut String, table: &Table) {
    for line in table.0.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Appends one line, whatever is in it.
pub(super) fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.push_str(&clean(&line.to_string()));
    text.push('\n');
}

pub(super) fn warnings(text: &mut String, warnings: &[String]) {
    for warning in warnings {
        line(text, format_args!("warning: {warning}"));
    }
}

impl Render for Status {
    fn render(&self, text: &mut String) {
        let mut table = table(&["", ""]);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("version", self.version.clone());
        row("pid", self.pid.to_string());
        for interface in &self.interfaces {
            let (name, mode, id) = (&interface.name, &interface.mode, interface.program_id);
            let adopted = if interface.adopted { ", adopted" } else { "" };
            let was = interface.was.as_ref().map_or_else(String::new, |was| format!(", was {was}"));
            let limited = format!("{name} {mode}, program {id}{adopted}{was}");
            let text = match (interface.state, interface.attached) {
                (InterfaceState::Elsewhere, _) => {
                    format!("{limited}, limited in another network namespace")
                }
                (InterfaceState::Unseen, _) => format!(
                    "{name}{was}, not here: whether it is limited in another network namespace \
                     cannot be seen"
                ),
                (_, true) => limited,
                (_, false) => format!("{name}, not attached: packets pass"),
            };
            row("interface", text);
        }
        row("limits", if self.brake { "off: every packet passes" } else { "on" }.to_owned());
        let edits = self.edits;
        row("rules", format!("{} in force, {edits} of them by `limiter set`", self.rules));
        row("generation", self.generation.to_string());
        for file in &self.rules_files {
            row("rule file", file.clone());
        }
        if let Some(trial) = self.trial {
            let left = trial.seconds_left;
            row("on trial", format!("for {left} s more, then the rules before: `limiter confirm`"));
        }
        if let Some(end) = &self.last_trial {
            let how = end.reason.as_deref().unwrap_or("confirmed");
            row(
                "last trial",
                if end.confirmed { how.to_owned() } else { format!("taken back: {how}") },
            );
        }
        if self.applied {
            row("applied", "other rules, by `limiter apply`, until a reload".to_owned());
        }
        row("last reload", self.last_reload.error.clone().unwrap_or_else(|| "ok".to_owned()));
        let Reloads { ok, failed } = self.reloads;
        row("reloads", format!("{} ok, {} refused", number(ok), number(failed)));
        let watching = self.watch.map_or_else(
            || "off".to_owned(),
            |watch| format!("for changes, and read every {} s", watch.every_seconds),
        );
        row("watched", watching);
        for prefix in &self.management {
            row("never limited", prefix.clone());
        }
        for rule in &self.over_soft_limit {
            row("over soft limit", rule.clone());
        }
        for table in &self.no_room_for {
            row("no room for", format!("new {table}: a flood, or too small a table"));
        }
        let (v4, v6) = (u64::from(self.sources.max_v4), u64::from(self.sources.max_v6));
        row("room for", format!("{} IPv4 and {} IPv6 sources", number(v4), number(v6)));
        push(text, &table);
        // The header has no names.
        *text = text.trim_start().to_owned();
        warnings(text, &self.warnings);
    }
}

/// Nothing for a rule that drops: 0 would read as "in shadow mode, and harmless".
fn shadowed(shadow: bool, counts: Counts) -> String {
    if shadow { number(counts.packets) } else { String::new() }
}

/// Nothing for a rule that marks nothing.
fn marked(counts: Counts) -> String {
    if counts.packets > 0 { number(counts.packets) } else { String::new() }
}

impl Render for Limits {
    fn render(&self, text: &mut String) {
        if self.limits.is_empty() {
            text.push_str("no rules: nothing is limited\n");
        } else {
            push(text, &entries("SOURCE", &self.limits));
        }
        if !self.budgets.is_empty() {
            text.push('\n');
            push(text, &entries("BUDGET", &self.budgets));
        }
        // The change that brought one has told it.
        match self.warnings.len() {
            0 => {}
            1 => text.push_str("1 warning: `limiter status` has it\n"),
            count => line(text, format_args!("{count} warnings: `limiter status` has them")),
        }
    }
}

/// Rules or budgets; each further limit has a line of its own.
fn entries(what: &str, entries: &[LimitEntry]) -> Table {
    let mut table = table(&[
        what,
        "ORIGIN",
        "LIMIT",
        ">BURST",
        ">EFFECTIVE",
        "ACTION",
        ">PASSED",
        ">DROPPED",
        ">SHADOWED",
        ">MARKED",
        "NAME",
    ]);
    for entry in entries {
        let mut lines = lines(entry).into_iter();
        let (limit, burst, effective) = lines.next().unwrap_or_default();
        table.add_row([
            entry.source.clone(),
            entry.origin.name().to_owned(),
            limit,
            burst,
            effective,
            entry.action.clone().unwrap_or_default(),
            number(entry.passed.packets),
            number(entry.dropped.packets),
            shadowed(entry.shadow, entry.shadowed),
            marked(entry.marked),
            entry.name.clone().or_else(|| entry.label.clone()).unwrap_or_default(),
        ]);
        for (limit, burst, effective) in lines {
            let empty = String::new;
            table.add_row([empty(), empty(), limit, burst, effective]);
        }
    }
    table
}

/// Limit, burst and effective rate of each limit; those above soft limits have a line of their own.
fn lines(entry: &LimitEntry) -> Vec<(String, String, String)> {
    if entry.limits.is_empty() {
        let effective = rate(entry.effective_per_second);
        return vec![(entry.limit.clone(), optional(entry.burst), effective)];
    }
    let mut lines = Vec::with_capacity(entry.limits.len());
    for limit in &entry.limits {
        lines.push((limit.rate.clone(), optional(limit.burst), rate(limit.effective_per_second)));
        if let Some(upper) = &limit.upper {
            let text = format!("{} {}", upper.kind, upper.rate);
            lines.push((text, number(upper.burst), rate(upper.effective_per_second)));
        }
    }
    lines
}

impl Render for Changed {
    fn render(&self, text: &mut String) {
        let Self { generation, rules, .. } = self;
        let _: std::fmt::Result = writeln!(text, "{rules} rules in force, generation {generation}");
        warnings(text, &self.warnings);
    }
}

impl Render for Stats {
    fn render(&self, text: &mut String) {
        let mut totals = table(&["VERDICT", "REASON", ">PACKETS", ">BYTES"]);
        for reason in &self.reasons {
            totals.add_row([
                reason.verdict.clone(),
                reason.reason.clone(),
                number(reason.packets),
                number(reason.bytes),
            ]);
        }
        for (name, sum) in [("passed", self.passed), ("dropped", self.dropped), ("seen", self.seen)]
        {
            let [packets, bytes] = counts(sum);
            totals.add_row(["sum".to_owned(), name.to_owned(), packets, bytes]);
        }
        push(text, &totals);
        text.push('\n');
        let Outcomes { passed, dropped, shadowed, marked } = self.removed;
        let rule = "(removed rules)".to_owned();
        let removed = RuleCounts { rule, passed, dropped, shadowed, marked };
        push(text, &outcomes("RULE", &self.rules.iter().chain([&removed]).collect::<Vec<_>>()));
        if !self.budgets.is_empty() {
            text.push('\n');
            push(text, &outcomes("BUDGET", &self.budgets.iter().collect::<Vec<_>>()));
        }
    }
}

pub(super) fn outcomes(what: &str, rules: &[&RuleCounts]) -> Table {
    let mut table = table(&[
        what,
        ">PASSED",
        ">PASSED BYTES",
        ">DROPPED",
        ">DROPPED BYTES",
        ">SHADOWED",
        ">MARKED",
    ]);
    for rule in rules {
        let row = [
            vec![rule.rule.clone()],
            counts(rule.passed).to_vec(),
            counts(rule.dropped).to_vec(),
            vec![number(rule.shadowed.packets), number(rule.marked.packets)],
        ];
        table.add_row(row.concat());
    }
    table
}

impl Render for SourceView {
    fn render(&self, text: &mut String) {
        let mut table = table(&["", ""]);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("source", self.source.clone());
        if let Some(list) = self.listed {
            let what = match list {
                ListName::Allow => "allow: every packet passes",
                ListName::Deny => "deny: every packet is dropped",
            };
            row("list", what.to_owned());
        }
        if self.martian {
            row("martian", "no host can have this source: every packet is dropped".to_owned());
        }
        if let Some(seconds) = self.banned_seconds {
            row("ban", format!("every packet is dropped for {} s more", number(seconds)));
        }
        row("rule", self.rule.clone().unwrap_or_else(|| without_rule(self).to_owned()));
        if let Some(limit) = &self.limit {
            let effective = match self.effective_per_second {
                Some(_) => format!(" (effective {})", rate(self.effective_per_second)),
                None => String::new(),
            };
            let shadow = if self.shadow { ", in shadow mode: only counted" } else { "" };
            row("limit", format!("{limit}{effective}{shadow}"));
        }
        for limit in self.limits.iter().skip(1) {
            row("and", format!("{} (effective {})", limit.text, rate(limit.effective_per_second)));
        }
        if let Some(action) = self.action.as_deref().filter(|action| *action != "drop") {
            row("over it", action.to_owned());
        }
        if let (Some(remaining), Some(burst)) = (self.remaining, self.burst) {
            let count = self.count.as_deref().unwrap_or("packets");
            row("remaining", format!("{} of {} {count}", number(remaining), number(burst)));
            row("full in", duration(self.full_in_ns));
        }
        if self.tracked {
            row("passed", number(self.passed));
            row("dropped", number(self.dropped));
        } else {
            row("tracked", "no: it has no bucket for a rule on sources now".to_owned());
        }
        if let Some(rules) = other_rules(self) {
            row("others", rules);
            let ask = question(self);
            row("", format!("what they drop is not counted here: `limiter events`, `{ask}`"));
        }
        push(text, &table);
        *text = text.trim_start().to_owned();
    }
}

impl Render for Brake {
    fn render(&self, text: &mut String) {
        text.push_str(if self.engaged {
            "limits are off: every packet passes until `limiter on`\n"
        } else {
            "limits are on\n"
        });
    }
}

impl Render for Detached {
    fn render(&self, text: &mut String) {
        if self.interfaces.is_empty() {
            text.push_str("detached\n");
        } else {
            line(text, format_args!("detached from {}", self.interfaces.join(", ")));
        }
    }
}
