//! The lines of comments and of pages: at most [`WIDEST`] columns, and no item of a list inside a
//! paragraph. And the pages for users: short, and with a command near the top.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{process, workspace};

/// The widest line, in characters.
const WIDEST: usize = 100;

/// Lines that are named, of all that are too wide.
const NAMED: usize = 20;

/// The list of pages, and what begins its part that is not for users.
const INDEX: &str = "docs/README.md";
const REST: &str = "\n## For developers\n";

/// Most words of a page for users: what is read in nine minutes.
const LONGEST: usize = 1800;

/// Most words before the first block of such a page, which has its command or its file.
const LEAD: usize = 250;

/// Pages that may be longer, or begin with tables: nobody reads them from the top.
const LOOKED_UP: [(&str, &str); 11] = [
    ("rules-reference.md", "fields and keys of rule files, by name"),
    ("requests-reference.md", "the fine print of requests, by subject"),
    ("operations-reference.md", "reasons, files and variables, by name"),
    ("algorithms.md", "what each algorithm promises, one by one"),
    ("packets.md", "a row for each kind of packet"),
    ("floods.md", "what happens in each table that is full"),
    ("shaping-figures.md", "tables that a measurement writes"),
    ("devices.md", "tables that a test writes"),
    ("tested-on.md", "a table that a test writes"),
    ("performance.md", "tables that a measurement writes"),
    ("accuracy.md", "tables that a measurement writes"),
];

/// Names the lines that are too wide, with how many there are in each folder, the lines that
/// break a list, and the pages that are too long; whether there is none of these.
pub(crate) fn check() -> Result<bool> {
    let root = workspace::root()?;
    let mut git = process::command("git");
    git.args(["ls-files", "*.rs", "*.md"]).current_dir(&root);
    let (mut folders, mut named, mut broken) = (BTreeMap::new(), 0, 0);
    let mut long = 0;
    for name in for_users(&fs::read_to_string(root.join(INDEX))?) {
        let path = format!("docs/{name}");
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        for what in too_long(&text) {
            println!("{path}: {what}");
            long += 1;
        }
    }
    for name in process::output(&mut git)?.lines() {
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        let lines = if is_page(name) { of_page(&text) } else { of_code(&text) };
        for line in if is_page(name) { broken_lists(&text) } else { Vec::new() } {
            println!("{name}:{line}: an item of a list inside a paragraph: begin a line with it");
            broken += 1;
        }
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
        println!("{folder}: {code} comments and {pages} lines of pages are too wide");
    }
    Ok(folders.is_empty() && broken == 0 && long == 0)
}

/// Pages of docs/ that the list has for users, without those that are looked up.
fn for_users(index: &str) -> Vec<&str> {
    let part = index.split(REST).next().unwrap_or_default();
    let links = part.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let mut pages: Vec<&str> = links.filter(|link| is_page(link) && !link.contains('/')).collect();
    pages.retain(|page| LOOKED_UP.iter().all(|(name, _)| name != page));
    pages.sort_unstable();
    pages.dedup();
    pages
}

/// What of a page is too long: all of it, or what is before its first block. Directives that its
/// readers do not see do not count.
fn too_long(page: &str) -> Vec<String> {
    let (all, before) = (words(page), page.split_once("```").map(|(before, _)| words(before)));
    let mut what = Vec::new();
    if all > LONGEST {
        what.push(format!("{all} words, and a page for users has {LONGEST}: cut or split it"));
    }
    if let Some(before) = before.filter(|before| *before > LEAD) {
        what.push(format!("{before} words before its first command: at most {LEAD}"));
    }
    what
}

/// Words of a page, without comments of HTML and without signs alone, as those of tables.
fn words(page: &str) -> usize {
    let shown = page.split("<!--").enumerate().map(|(number, part)| match number {
        0 => part,
        _ => part.split_once("-->").map_or("", |(_, behind)| behind),
    });
    shown
        .flat_map(str::split_whitespace)
        .filter(|word| word.contains(char::is_alphanumeric))
        .count()
}

/// Numbers of the lines of a page in which a sentence ends and an item of a list begins, as when a
/// list was taken for a paragraph. Tables, code and parts that a command made may have such.
fn broken_lists(page: &str) -> Vec<usize> {
    let mut in_code = false;
    let mut is_broken = |line: &str| {
        let text = line.trim_start();
        in_code ^= text.starts_with("```");
        let ends = [". - ", "; - ", ": - "].iter().any(|item| text.contains(item));
        !in_code && !text.starts_with(['|', '<']) && ends
    };
    (1..).zip(page.lines()).filter(|(_, line)| is_broken(line)).map(|(number, _)| number).collect()
}

fn is_page(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "md")
}

fn is_wide(line: &str) -> bool {
    line.chars().count() > WIDEST
}

/// Numbers of the comments in code that are too wide. A link or a row of a table cannot be broken.
/// The rest is held by rustfmt, where it can: a text has no place to break, and a macro may have
/// none.
fn of_code(text: &str) -> Vec<usize> {
    let wide = |(_, line): &(usize, &str)| {
        let comment = line.trim_start().strip_prefix("//");
        let words = comment.map(|comment| comment.trim_start_matches(['/', '!', ' ']));
        is_wide(line)
            && words.is_some_and(|words| !words.starts_with('|') && !words.contains("://"))
    };
    text.lines().enumerate().filter(wide).map(|(index, _)| index + 1).collect()
}

/// Numbers of the lines of a page that are too wide. Tables, code, headings, comments, pictures,
/// targets of links and parts that a command made may be wider.
fn of_page(page: &str) -> Vec<usize> {
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
        if !in_code && !is_made && !may_be_wider && is_wide(line) && can_break(text) {
            wide.push(number);
        }
    }
    wide
}

/// True if there is a blank outside of a link, after which the line could go on below.
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
    fn columns_are_characters() {
        assert!(!is_wide(&"é".repeat(100)) && is_wide(&"e".repeat(101)));
    }

    #[test]
    fn wide_comments_are_found() {
        let wide = "x".repeat(101);
        let text =
            format!("{wide}\nnarrow\n    // {wide}\n// https://a.example/{wide}\n//! | {wide} |\n");
        assert_eq!(of_code(&text), [3]);
    }

    #[test]
    fn wide_prose_is_found() {
        let words = "word ".repeat(21);
        assert_eq!(words.len(), 105);
        for page in [format!("x\n{words}\n"), format!("x\n- {words}\n"), format!("x\n  {words}\n")]
        {
            assert_eq!(of_page(&page), [2], "{page}");
        }
        assert_eq!(of_page(&"é ".repeat(50)), [0; 0]);
    }

    #[test]
    fn long_pages_for_users_are_found() {
        let page = |before: usize, all: usize| {
            let (before, behind) = ("word ".repeat(before), "| word |\n".repeat(all - before));
            format!("{before}\n```\n{behind}```\n<!-- here: a b -->\n")
        };
        assert_eq!(too_long(&page(LEAD, LONGEST)), [""; 0]);
        assert_eq!(too_long(&page(LEAD + 1, LONGEST + 1)).len(), 2);
        assert_eq!(too_long(&"word ".repeat(LEAD + 1)), [""; 0], "without a command");
        let index = "[a](b.md#c) [x](../README.md)\n[rules](rules-reference.md) [d](d.md)\n[b](b.md)\n\n## For \
                     developers\n[e](e.md)\n";
        assert_eq!(for_users(&index.replace("#c", "")), ["b.md", "d.md"]);
    }

    #[test]
    fn lists_inside_paragraphs_are_found() {
        let page = "- one.\n- two. - three\nfour:\n- five - six\n| a. - b |\n```\na. - b\n```\n";
        assert_eq!(broken_lists(page), [2]);
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
            assert_eq!(of_page(&page), [0; 0], "{page}");
        }
        assert_eq!(of_page(&format!("see {link}\n")).len(), 1);
    }
}
