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
pub fn rate(per_second: Option<f64>, count: &str) -> String {
    let Some(rate) = per_second else {
        return "-".to_owned();
    };
    // A rate of exactly 1 may be rounded to a little less.
    let unit = Unit::ALL
        .into_iter()
        .find(|unit| rate * unit.seconds() as f64 > 0.9999)
        .unwrap_or(Unit::Week);
    let (value, unit) = (rate * unit.seconds() as f64, unit.short());
    let counted = counted_in(count);
    if value >= 1000.0 {
        format!("{value:.1}{counted}/{unit}")
    } else {
        format!("{value:.4}{counted}/{unit}")
    }
}

/// The unit behind a number of what a limit counts: none of packets.
pub fn counted_in(count: &str) -> &'static str {
    match count {
        "bytes" => " B",
        "syns" => " syns",
        "flows" => " flows",
        _ => "",
    }
}

/// Bits a second, in three digits or so: `13.1 Mbit/s`.
pub fn bits(per_second: f64) -> String {
    const UNITS: [&str; 5] = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    let (mut value, mut unit) = (per_second, 0);
    // What would be rounded up to 1,000 is 1 of the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit > 0 && value < 99.95 {
        format!("{value:.1} {name}")
    } else {
        format!("{value:.0} {name}")
    }
}

/// A length of time of whole seconds, in at most two units: `45 s`, `16 min 40 s`, `8 h`.
pub fn seconds(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let ((large, unit), (small, smaller)) = match (days, hours, minutes) {
        (0, 0, 0) => return format!("{seconds} s"),
        (0, 0, _) => ((minutes, "min"), (seconds % 60, "s")),
        (0, ..) => ((hours, "h"), (minutes % 60, "min")),
        _ => ((days, "d"), (hours % 24, "h")),
    };
    let large = number(large);
    if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {smaller}") }
}

/// A length of time in its natural unit, from a minute on in whole seconds.
pub fn duration(nanos: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    if nanos == 0 {
        return "0 s".to_owned();
    }
    if nanos >= 60_000_000_000 {
        return seconds(nanos.saturating_add(500_000_000) / 1_000_000_000);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody reads 28,800 s as 8 hours, nor 1.984 min.
    #[test]
    fn times_have_two_units_at_most() {
        for (time, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (1_000, "16 min 40 s"),
            (28_800, "8 h"),
            (28_790, "7 h 59 min"),
            (86_400, "1 d"),
            (90_000, "1 d 1 h"),
            (31_557_600, "365 d 6 h"),
        ] {
            assert_eq!(seconds(time), text);
        }
        for (nanos, text) in [
            (0, "0 s"),
            (999, "999 ns"),
            (907_807_000, "907.807 ms"),
            (59_960_000_000, "59.960 s"),
            (119_040_000_000, "1 min 59 s"),
            (26_029_000_000_000, "7 h 13 min"),
        ] {
            assert_eq!(duration(nanos), text);
        }
    }

    #[test]
    fn bits_have_three_digits_or_so() {
        for (per_second, text) in [
            (0.0, "0 bit/s"),
            (999.4, "999 bit/s"),
            (999.5, "1.0 kbit/s"),
            (12_340.0, "12.3 kbit/s"),
            (999_600.0, "1.0 Mbit/s"),
            (123_400_000.0, "123 Mbit/s"),
            (99.97e9, "100 Gbit/s"),
            (5e15, "5000 Tbit/s"),
        ] {
            assert_eq!(bits(per_second), text);
        }
    }

    #[test]
    fn a_rate_of_bytes_is_told_from_one_of_packets() {
        for (per_second, count, text) in [
            (250_000.0, "bytes", "250000.0 B/s"),
            (250_000.0, "packets", "250000.0/s"),
            (5.0 / 60.0, "syns", "5.0000 syns/min"),
        ] {
            assert_eq!(rate(Some(per_second), count), text);
        }
    }
}
