//! The width of lines of code and of pages: at most [`WIDEST`] columns.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{process, workspace};

/// The widest line, in characters.
const WIDEST: usize = 100;

/// Lines that are named, of all that are too wide.
const NAMED: usize = 20;

/// Names the lines that are too wide, and how many there are in each folder; whether there is none.
pub(crate) fn check() -> Result<bool> {
    let root = workspace::root()?;
    let mut git = process::command("git");
    git.args(["ls-files", "*.rs", "*.md"]).current_dir(&root);
    let (mut folders, mut named) = (BTreeMap::new(), 0);
    for name in process::output(&mut git)?.lines() {
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        let lines = if is_page(name) { of_page(&text) } else { of_code(&text) };
        for line in &lines {
            if named < NAMED {
                println!("{name}:{line}: more than {WIDEST} columns");
                named += 1;
            }
        }
        if !lines.is_empty() {
            let folder = name.split_once('/').map_or(".", |(folder, _)| folder).to_owned();
            let counts: &mut [usize; 2] = folders.entry(folder).or_default();
            let count = counts.get_mut(usize::from(is_page(name))).context("two kinds")?;
            *count += lines.len();
        }
    }
    for (folder, [code, pages]) in &folders {
        println!("{folder}: {code} lines of code and {pages} of pages are too wide");
    }
    Ok(folders.is_empty())
}

fn is_page(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "md")
}

fn is_wide(line: &str) -> bool {
    line.chars().count() > WIDEST
}

/// Numbers of the lines of code that are too wide. A link cannot be broken.
fn of_code(text: &str) -> Vec<usize> {
    let wide = |(_, line): &(usize, &str)| is_wide(line) && !line.contains("://");
    text.lines().enumerate().filter(wide).map(|(index, _)| index + 1).collect()
}

/// Numbers of the lines of a page that are too wide. Tables, links, code blocks, and what a command
/// writes between its marks are as they are.
fn of_page(text: &str) -> Vec<usize> {
    let (mut is_code, mut is_made) = (false, false);
    let mut wide = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if line.starts_with("<!-- made by ") {
            is_made = line.ends_with(": begin -->");
        }
        let excepted = is_code
            || is_made
            || line.starts_with('|')
            || line.starts_with("<!--")
            || line.contains("](")
            || line.contains("://");
        if is_wide(line) && !excepted {
            wide.push(index + 1);
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_characters() {
        assert!(!is_wide(&"é".repeat(100)) && is_wide(&"e".repeat(101)));
    }

    #[test]
    fn wide_lines_of_code_are_found() {
        let wide = "x".repeat(101);
        let text = format!("{wide}\nnarrow\n    // {wide}\n// https://a.example/{wide}\n");
        assert_eq!(of_code(&text), [1, 3]);
    }

    #[test]
    fn what_cannot_be_broken_in_a_page_is_left_alone() {
        let wide = "x ".repeat(60);
        let page = format!(
            "{wide}\n| {wide} |\n```console\n{wide}\n```\n[{wide}](a.md)\n\
             <!-- made by cargo xtask x: begin -->\n{wide}\n\
             <!-- made by cargo xtask x: end -->\n{wide}\n"
        );
        assert_eq!(of_page(&page), [1, 10]);
    }
}
