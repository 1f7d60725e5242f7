//! Reports as data, for `bench/results`, out of which `cargo xtask plots` makes the tables of
//! pages.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Writes a report into `directory`, as the file of its name.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write(directory: &Path, name: &str, report: &str) -> Result<()> {
    let path = directory.join(format!("{name}.tsv"));
    fs::write(&path, of(report)).with_context(|| format!("cannot write {}", path.display()))
}

/// The rows of a report in Markdown, with tabs between their cells. Headings stay as they are, and
/// text becomes comments.
pub fn of(report: &str) -> String {
    let mut text = String::new();
    for line in report.lines() {
        let line = match line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) {
            Some(row) if row.chars().all(|c| "|-: ".contains(c)) => continue,
            Some(row) => {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                cells.join("\t").replace("**", "").trim_end().to_owned()
            }
            None if line.is_empty() || line.starts_with('#') => line.to_owned(),
            None => format!("# {line}"),
        };
        if !line.is_empty() || !text.ends_with("\n\n") {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cells_between_tabs() {
        let report = "Text.\n\n\n### A\n\n| | a | b |\n|---|--:|--:|\n| x, y | **1** (2) | |\n";
        assert_eq!(of(report), "# Text.\n\n### A\n\n\ta\tb\nx, y\t1 (2)\n");
        assert_eq!(of("| | |\n|---|---|\n| date | today |\n"), "date\ttoday\n");
    }
}
