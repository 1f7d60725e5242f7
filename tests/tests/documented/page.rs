//! A page, read for its headings, tables and links.

use std::fs;

use super::names::workspace;

/// A page by its path in the repository, without the parts that a command made: figures are of one
/// machine, and no test's.
pub(crate) fn written(path: &str) -> String {
    let text = fs::read_to_string(workspace().join(path)).unwrap();
    let mut made = false;
    let mut kept = String::new();
    for line in text.lines() {
        made |= line.starts_with("<!-- made by ") && line.ends_with(": begin -->");
        if !made {
            kept.push_str(line);
            kept.push('\n');
        }
        made &= !(line.starts_with("<!-- made by ") && line.ends_with(": end -->"));
    }
    assert!(!made, "{path}: what a command made has no end");
    kept
}

/// Lines outside of code blocks.
pub(crate) fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The level and the text of a heading.
pub(crate) fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|&byte| byte == b'#').count();
    let text = line.get(level..)?.strip_prefix(' ')?;
    (1..=6).contains(&level).then_some((level, text))
}

/// The anchor of a heading, as GitHub makes it.
pub(crate) fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A row of a table, below the heading that is nearest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The heading, of level 2 or 3.
    pub(crate) section: String,
    pub(crate) cells: Vec<String>,
}

/// The rows of all tables of a page, without heads.
pub(crate) fn rows(page: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let (mut section, mut in_table) = (String::new(), false);
    for line in prose(page).map(str::trim) {
        if let Some((2 | 3, title)) = heading(line) {
            title.clone_into(&mut section);
        }
        if !line.starts_with('|') {
            in_table = false;
            continue;
        }
        let inside = line.strip_prefix('|').and_then(|line| line.strip_suffix('|'));
        let cells: Vec<String> =
            inside.unwrap_or(line).split('|').map(|cell| cell.trim().to_owned()).collect();
        let is_rule = cells.iter().all(|cell| cell.trim_matches(['-', ':']).is_empty());
        if in_table && !is_rule {
            rows.push(Row { section: section.clone(), cells });
        }
        in_table = true;
    }
    rows
}

pub(crate) fn links(page: &str) -> Vec<String> {
    let text: String = prose(page).flat_map(|line| [line, "\n"]).collect();
    // Text in backquotes is no link.
    let text: String = text.split('`').step_by(2).collect::<Vec<_>>().join("x");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

#[test]
fn headings_tables_and_links_are_read() {
    let page = "# T\n\n[a](b.md#c) `[x](y)`\n\n## Who *may*, `x`?\n\n| a | b |\n|---|--:|\n\
                | 1 | 2 |\n\n```text\n# no heading\n| no | row |\n[no](link)\n```\n";
    let row = Row { section: "Who *may*, `x`?".to_owned(), cells: vec!["1".into(), "2".into()] };
    assert_eq!(rows(page), [row]);
    assert_eq!(links(page), ["b.md#c"]);
    assert_eq!(heading("## a b"), Some((2, "a b")));
    assert_eq!(heading("#no"), None);
    assert_eq!(anchor("Who *may*, `x`?"), "who-may-x");
    assert_eq!(anchor("GET /v1/openapi.json"), "get-v1openapijson");
}
