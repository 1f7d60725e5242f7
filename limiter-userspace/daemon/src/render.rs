//! Answers as text for people. Numbers are exact and stand right. Names stay within their place in
//! a line: [`clean`].

use comfy_table::CellAlignment;
use comfy_table::presets::NOTHING;
use limiter_common::verdict::Reason;
use limiter_rules::Unit;
use limiter_text::plain::clean;

/// An answer with a form for people.
pub trait Render {
    /// Appends it to `text`.
    fn render(&self, text: &mut String);
}

/// The whole form, ending with a line break.
pub fn text(answer: &impl Render) -> String {
    let mut text = String::new();
    answer.render(&mut text);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// 1234567 as 1,234,567.
pub fn number(number: u64) -> String {
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

/// A rate in the shortest unit of time in which it is at least 1, to one part in 10,000 at least.
#[expect(clippy::cast_precision_loss, reason = "a week has few seconds")]
pub fn rate(per_second: Option<f64>) -> String {
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
pub fn duration(nanos: u64) -> String {
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

/// A table of clean cells.
pub struct Table(comfy_table::Table);

impl Table {
    /// Adds a row, of which cells may be missing at its end.
    pub fn add_row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0.add_row(cells.into_iter().map(|cell| clean(cell.as_ref())));
    }
}

/// A table without lines; columns named with a leading `>` stand right.
pub fn table(columns: &[&str]) -> Table {
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

/// Appends a table.
pub fn push(text: &mut String, table: &Table) {
    for line in table.0.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Appends one line, whatever is in it.
pub fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.push_str(&clean(&line.to_string()));
    text.push('\n');
}

/// Appends a line for each warning.
pub fn warnings(text: &mut String, warnings: &[String]) {
    for warning in warnings {
        line(text, format_args!("warning: {warning}"));
    }
}

/// A reason in a column: of what passed in shadow mode, that it would not have.
pub fn shown_reason(reason: &str) -> String {
    let would = if would_drop(reason) { " (would drop)" } else { "" };
    format!("{reason}{would}")
}

/// True of the reason of packets that a rule in shadow mode would drop.
pub fn would_drop(reason: &str) -> bool {
    reason == Reason::Shadow.name()
}

/// A rule in a column: the name that its author gave it, else what it is for.
pub fn titled(rule: Option<&str>, name: Option<&str>) -> String {
    name.or(rule).unwrap_or("-").to_owned()
}
