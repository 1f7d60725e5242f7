//! Numbers and tables for a reader.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

/// `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Two numbers as `14 to 15`, or one if they are the same.
pub fn range(least: u64, most: u64) -> String {
    if least == most {
        thousands(least)
    } else {
        format!("{} to {}", thousands(least), thousands(most))
    }
}

/// `delivered` against `expected` in percent: 0 when both are 0, 100 when only `expected` is.
#[expect(clippy::cast_precision_loss, reason = "counts are far under 2^52")]
pub fn error_percent(delivered: u64, expected: u64) -> f64 {
    if expected == 0 {
        return if delivered == 0 { 0.0 } else { 100.0 };
    }
    (delivered as f64 - expected as f64) / expected as f64 * 100.0
}

/// A percentage with its sign: `+0.02 %`.
pub fn percent(value: f64) -> String {
    // Avoids "-0.00".
    let value = if value.abs() < 0.005 { 0.0 } else { value };
    if value == 0.0 { "0.00 %".to_owned() } else { format!("{value:+.2} %") }
}

/// Formats a table; the columns whose indexes are in `right` are aligned to the right.
pub fn table(
    header: &[&str],
    right: &[usize],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for index in right {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// A bar of `width` characters, `done` (0 to 1) of it filled.
pub fn bar(done: f64, width: u32) -> String {
    let filled = (0..width).filter(|n| f64::from(*n) < done * f64::from(width)).count();
    let empty = usize::try_from(width).unwrap_or(0).saturating_sub(filled);
    format!("{}{}", "█".repeat(filled), "░".repeat(empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn errors_have_a_sign() {
        assert_eq!(percent(error_percent(99, 100)), "-1.00 %");
        assert_eq!(percent(error_percent(101, 100)), "+1.00 %");
        assert_eq!(percent(error_percent(100_000, 100_001)), "0.00 %");
        assert_eq!(percent(error_percent(0, 0)), "0.00 %");
        assert_eq!(percent(error_percent(1, 0)), "+100.00 %");
    }

    #[test]
    fn bars_are_as_long_as_asked() {
        for (done, text) in [(0.0, "░░░░"), (0.5, "██░░"), (1.0, "████"), (2.0, "████")]
        {
            assert_eq!(bar(done, 4), text);
        }
    }
}
