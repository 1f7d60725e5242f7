//! The width of pages: prose has at most 100 columns, as .editorconfig says.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::workspace;

/// Columns of a line of prose.
const MOST: usize = 100;

/// Pages that are not looked at: lines of the changelog are written by many at once, and the sections of
/// ARCHITECTURE.md follow the code, which is being moved.
const LEFT_OUT: [&str; 2] = ["CHANGELOG.md", "ARCHITECTURE.md"];

/// Lines of prose that are too wide, as `PAGE:LINE: COLUMNS columns`.
pub(crate) fn too_wide() -> Result<Vec<String>> {
    let root = workspace::root()?;
    let mut found = Vec::new();
    for page in pages(&root)? {
        let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let name = page.strip_prefix(&root).unwrap_or(&page).display();
        found.extend(
            wide_lines(&text)
                .into_iter()
                .map(|(line, columns)| format!("{name}:{line}: {columns} columns")),
        );
    }
    Ok(found)
}

fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for directory in [root.to_owned(), root.join("docs")] {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            let is_page = path.extension().is_some_and(|extension| extension == "md");
            if is_page && !LEFT_OUT.iter().any(|name| path.ends_with(name)) {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Lines that are too wide, from 1, and their columns. Tables, code, headings, comments, pictures,
/// targets of links and parts that a command made may be wider.
fn wide_lines(page: &str) -> Vec<(usize, usize)> {
    let (mut in_code, mut is_made) = (false, page.contains("; do not edit. "));
    let mut wide = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let text = line.trim_start();
        if text.starts_with("```") {
            in_code = !in_code;
        }
        if text.starts_with("<!-- made by ") {
            is_made = text.ends_with("begin -->");
        }
        let may_be_wider =
            ["|", "#", "<!--", "![", "<"].iter().any(|begin| text.starts_with(begin));
        let columns = line.chars().count();
        if !in_code && !is_made && !may_be_wider && columns > MOST && can_break(text) {
            wide.push((number, columns));
        }
    }
    wide
}

/// Whether there is a blank outside of a link, after which the line could go on below.
fn can_break(text: &str) -> bool {
    let text = text.trim_start_matches("- ");
    let (mut in_text, mut in_target) = (false, false);
    let mut before = ' ';
    for c in text.chars() {
        match c {
            '[' => in_text = true,
            ']' => in_text = false,
            '(' if before == ']' => in_target = true,
            ')' => in_target = false,
            ' ' if !in_text && !in_target && before != ':' => return true,
            _ => {}
        }
        before = c;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_prose_is_found() {
        let words = "word ".repeat(21);
        assert_eq!(words.len(), 105);
        for page in [format!("x\n{words}\n"), format!("x\n- {words}\n"), format!("x\n  {words}\n")]
        {
            let columns = page.lines().nth(1).map(str::len);
            assert_eq!(wide_lines(&page), [(2, columns.unwrap_or_default())], "{page}");
        }
        assert_eq!(wide_lines(&"é ".repeat(50)), []);
    }

    #[test]
    fn what_has_no_place_to_break_may_be_wider() {
        let (words, link) = ("word ".repeat(21), format!("[a b](https://{})", "x".repeat(100)));
        for page in [
            format!("| {words} |\n"),
            format!("```text\n{words}\n```\n"),
            format!("## {words}\n"),
            format!("![{words}](a.svg)\n"),
            format!("<!-- made by x: begin -->\n{words}\n<!-- made by x: end -->\n"),
            format!("Made by `x`; do not edit. Figures.\n{words}\n"),
            format!("- {link}\n"),
            format!("[name]: {}\n", "x".repeat(100)),
        ] {
            assert_eq!(wide_lines(&page), [], "{page}");
        }
        assert_eq!(wide_lines(&format!("see {link}\n")).len(), 1);
    }

    #[test]
    fn no_page_has_wide_prose() {
        assert_eq!(too_wide().unwrap(), [""; 0]);
    }
}
