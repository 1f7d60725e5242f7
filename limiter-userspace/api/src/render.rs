//! Answers as text for people. Numbers of packets are exact, and numbers are aligned to the right.
//! Names cannot leave their place in a line: [`clean`].

use std::cell::Cell;

use comfy_table::CellAlignment;
use comfy_table::presets::NOTHING;
use limiter_common::verdict::Reason;
use limiter_rules::{Unit, rate_text};
use limiter_text::plain::clean;
pub use limiter_text::spoken::{bytes, duration, exact, number, seconds};
use unicode_width::UnicodeWidthStr as _;

/// An answer with a text form for people.
pub trait Render {
    /// Appends the text form to `text`.
    fn render(&self, text: &mut String);
}

/// The whole text form, ending with a line break.
pub fn text(answer: &impl Render) -> String {
    let mut text = String::new();
    answer.render(&mut text);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// `1 rule`, or `3 rules`: without separators, because scripts read it.
pub fn rules(count: usize) -> String {
    format!("{count} {}", if count == 1 { "rule" } else { "rules" })
}

/// `1 request`, or `3,000 requests`.
pub fn counted(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{} {}", number(count), if count == 1 { one } else { many })
}

/// Formats a rate in the shortest unit of time in which it is at least 1, to at least one part in
/// 10,000.
#[expect(clippy::cast_precision_loss, reason = "a week has few seconds")]
pub fn rate(per_second: Option<f64>, count: &str) -> String {
    let Some(rate) = per_second else {
        return "-".to_owned();
    };
    // A rate of exactly 1 may have been rounded to slightly less.
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

/// As [`rate`], in the units of the limit, such as `2mbit/s`; in the default units if the limit
/// names none.
pub fn rate_of(limit: &str, per_second: Option<f64>, count: &str) -> String {
    let like = per_second.and_then(|per_second| rate_text::like(limit, per_second));
    like.unwrap_or_else(|| rate(per_second, count))
}

/// Unit after a number of the limit's counts; empty for packets.
pub fn counted_in(count: &str) -> &'static str {
    match count {
        "bytes" => " B",
        "syns" => " syns",
        "flows" => " flows",
        _ => "",
    }
}

/// Formats bits a second with about three digits: `13.1 Mbit/s`.
pub fn bits(per_second: f64) -> String {
    const UNITS: [&str; 5] = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    let (mut value, mut unit) = (per_second, 0);
    // A value that would be rounded up to 1,000 is shown as 1 of the next unit.
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

/// A table with cleaned cells.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

struct Column {
    name: String,
    /// True if the cells are aligned to the right.
    right: bool,
    /// True if the column is among the first to leave the line when there is no room.
    detail: bool,
}

const GAP: usize = 2;

/// Indentation of the lines below a folded row.
const FOLDED: usize = 4;

impl Table {
    /// Adds a row; cells at its end may be missing.
    pub fn add_row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| clean(cell.as_ref())).collect());
    }

    /// Lines of the columns `shown`, below a line with their names.
    fn lines(&self, shown: &[usize]) -> Vec<String> {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING);
        let columns = || shown.iter().filter_map(|index| self.columns.get(*index));
        table.set_header(columns().map(|column| column.name.clone()));
        for (index, column) in columns().enumerate() {
            if let Some(of_table) = table.column_mut(index) {
                of_table.set_padding((0, 2));
                if column.right {
                    of_table.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        for row in &self.rows {
            table.add_row(shown.iter().map(|index| row.get(*index).map_or("", String::as_str)));
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Width of the widest cell of each column.
    fn widths(&self) -> Vec<usize> {
        let width = |index: usize, column: &Column| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            cells.map(|cell| cell.width()).chain([column.name.width()]).max().unwrap_or(0)
        };
        self.columns.iter().enumerate().map(|(index, column)| width(index, column)).collect()
    }

    /// Splits the columns into those that fit a line of `room` characters and the others. Details
    /// leave first, from the last one backwards; then the other columns, from the last one. The
    /// first column always stays.
    fn fitting(&self, room: usize) -> (Vec<usize>, Vec<usize>) {
        let widths = self.widths();
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let needs = |shown: &[usize]| {
            let cells: usize = shown.iter().filter_map(|index| widths.get(*index)).sum();
            cells + GAP * shown.len().saturating_sub(1)
        };
        while shown.len() > 1 && needs(&shown) > room {
            let detail = |at: &usize| self.columns.get(*at).is_some_and(|column| column.detail);
            let last = shown.iter().rposition(detail).unwrap_or(shown.len() - 1);
            shown.remove(last);
        }
        let folded = (0..self.columns.len()).filter(|index| !shown.contains(index)).collect();
        (shown, folded)
    }

    /// Lines with the cells of the `folded` columns, unless a visible cell of the row already has
    /// the same text.
    fn below(&self, row: &[String], folded: &[usize], room: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for index in folded {
            let (Some(column), Some(cell)) = (self.columns.get(*index), row.get(*index)) else {
                continue;
            };
            let is_said = |at: usize, said: &String| !folded.contains(&at) && said == cell;
            let says = row.iter().enumerate().any(|(at, said)| is_said(at, said));
            if says || matches!(cell.as_str(), "" | "-" | "0") {
                continue;
            }
            let space = if column.name.is_empty() { "" } else { " " };
            let part = format!("{}{space}{cell}", column.name.to_lowercase());
            match lines.last_mut() {
                Some(line) if line.width() + 2 + part.width() <= room => {
                    line.push_str(", ");
                    line.push_str(&part);
                }
                _ => lines.push(format!("{:FOLDED$}{part}", "")),
            }
        }
        lines
    }
}

/// A table without borders. Columns named with a leading `>` are aligned to the right; those with a
/// leading `?` are details, which leave the line first when there is no room.
pub fn table(columns: &[&str]) -> Table {
    let column = |name: &&str| {
        let (name, detail) = name.strip_prefix('?').map_or((*name, false), |name| (name, true));
        let (name, right) = name.strip_prefix('>').map_or((name, false), |name| (name, true));
        Column { name: name.to_owned(), right, detail }
    };
    Table { columns: columns.iter().map(column).collect(), rows: Vec::new() }
}

thread_local! {
    /// Width of the terminal that this thread writes for, because answers pass no width to their
    /// tables.
    static ROOM: Cell<Option<usize>> = const { Cell::new(None) };
}

/// As [`text()`], for lines of `room` characters: columns of a wider table that do not fit stand
/// below each row.
pub fn text_within(answer: &impl Render, room: Option<usize>) -> String {
    let before = ROOM.replace(room);
    let text = text(answer);
    ROOM.set(before);
    text
}

/// Appends a table.
pub fn push(text: &mut String, table: &Table) {
    let room = ROOM.get().unwrap_or(usize::MAX);
    let (shown, folded) = table.fitting(room);
    let mut lines = table.lines(&shown).into_iter();
    let mut add = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    if let Some(head) = lines.next() {
        add(&head);
    }
    // A row without a first cell continues the row before it.
    let mut below: Vec<String> = Vec::new();
    for (line, row) in lines.zip(&table.rows) {
        if row.first().is_some_and(|first| !first.is_empty()) {
            for line in below.drain(..) {
                add(&line);
            }
        }
        add(&line);
        below.extend(table.below(row, &folded, room));
    }
    for line in &below {
        add(line);
    }
}

/// Appends one line, whatever its text contains.
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

/// A reason in a column; for a packet that passed in shadow mode, with the remark that it would
/// have been dropped.
pub fn shown_reason(reason: &str) -> String {
    let means = match reason {
        _ if would_drop(reason) => " (would drop)",
        // Only the queueing discipline knows whether a packet has waited.
        _ if reason == Reason::Delayed.name() => " (asked to wait)",
        _ => "",
    };
    format!("{reason}{means}")
}

/// Returns true for the reason of packets that a rule in shadow mode would drop.
pub fn would_drop(reason: &str) -> bool {
    reason == Reason::Shadow.name()
}

/// What drops packets, in a column: the rule by its name or else by its keys in short; where no
/// rule was asked, the list or the bans.
pub fn dropper(rule: Option<&str>, name: Option<&str>, reason: &str) -> String {
    match (rule, reason) {
        (None, "denied") => "deny list".to_owned(),
        (None, "banned") => "ban".to_owned(),
        (None, "martian") => "martians".to_owned(),
        _ => clean(&name.map_or_else(|| rule.map_or_else(|| "-".to_owned(), short), str::to_owned)),
    }
}

/// The keys of a rule with its port as `--port` takes it: `27015/udp` in place of
/// `protocol=udp destination_port=27015`.
fn short(rule: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in rule.split(' ') {
        let protocol = words.last().and_then(|last| last.strip_prefix("protocol="));
        match word.strip_prefix("destination_port=").zip(protocol) {
            Some((port, protocol)) => {
                let port = format!("{port}/{protocol}");
                words.pop();
                words.push(port);
            }
            None => words.push(word.to_owned()),
        }
    }
    words.join(" ")
}

/// A rule in a column: the name that its author gave it, or else its keys.
pub fn titled(rule: Option<&str>, name: Option<&str>) -> String {
    name.or(rule).unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Rows(Vec<[&'static str; 5]>);

    impl Render for Rows {
        fn render(&self, text: &mut String) {
            let mut table = table(&["SOURCE", "?ORIGIN", ">PASSED", "?>MARKED", "NAME"]);
            for row in &self.0 {
                table.add_row(row);
            }
            push(text, &table);
        }
    }

    /// Little room loses no text, and no line is too long.
    #[test]
    fn a_table_without_room_is_folded() {
        let rows = Rows(vec![
            ["192.0.2.7", "file", "1,234", "0", "office"],
            ["2001:db8::/64", "cli", "5", "17", ""],
        ]);
        let wide = "\
SOURCE         ORIGIN  PASSED  MARKED  NAME
192.0.2.7      file     1,234       0  office
2001:db8::/64  cli          5      17
";
        assert_eq!(text_within(&rows, None), wide);
        assert_eq!(text_within(&rows, Some(45)), wide);
        let without_marked = "\
SOURCE         ORIGIN  PASSED  NAME
192.0.2.7      file     1,234  office
2001:db8::/64  cli          5
    marked 17
";
        assert_eq!(text_within(&rows, Some(44)), without_marked);
        let narrow = "\
SOURCE         PASSED
192.0.2.7       1,234
    origin file, name office
2001:db8::/64       5
    origin cli, marked 17
";
        assert_eq!(text_within(&rows, Some(28)), narrow);
        assert_eq!(text(&rows), wide);
    }

    #[test]
    fn a_rate_is_in_the_units_of_its_limit() {
        for (limit, per_second, text) in [
            ("2mbit/s", 250_000.0, "2mbit/s"),
            ("10 syns/min", 10.0 / 60.0, "10 syns/min"),
            ("sliding_slots 100/5min slots 4 strict", 0.333_3, "99.99/5min"),
            ("1000000/s", 999_999.87, "999999.9/s"),
            ("unlimited", 5.0, "5.0000/s"),
        ] {
            assert_eq!(rate_of(limit, Some(per_second), "packets"), text, "{limit}");
        }
    }

    #[test]
    fn a_rule_without_a_name_has_its_port_in_short() {
        for (rule, text) in [
            ("protocol=udp destination_port=27015", "27015/udp"),
            ("direction=out protocol=tcp destination_port=80-90 x", "direction=out 80-90/tcp x"),
            ("destination_port=53 remote_address", "destination_port=53 remote_address"),
            ("protocol=udp remote_address", "protocol=udp remote_address"),
            ("every source", "every source"),
        ] {
            assert_eq!(dropper(Some(rule), None, "over-limit"), text);
            assert_eq!(dropper(Some(rule), Some("game"), "over-limit"), "game");
        }
        let without =
            ["denied", "banned", "martian", "over-limit"].map(|why| dropper(None, None, why));
        assert_eq!(without, ["deny list", "ban", "martians", "-"]);
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
    fn a_rate_of_bytes_is_distinguished_from_one_of_packets() {
        for (per_second, count, text) in [
            (250_000.0, "bytes", "250000.0 B/s"),
            (250_000.0, "packets", "250000.0/s"),
            (5.0 / 60.0, "syns", "5.0000 syns/min"),
        ] {
            assert_eq!(rate(Some(per_second), count), text);
        }
    }
}
