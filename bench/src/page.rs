//! Pages of `docs/` with a part that a command measured, between its marks.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Writes the page `name` into `output`, with `part` between the marks of `cargo xtask COMMAND`.
/// The rest of it is that of `output`, if it is there already, else that of `docs`.
///
/// # Errors
///
/// When a file cannot be read or written, or the page has no such marks.
pub fn write(command: &str, name: &str, part: &str, docs: &Path, output: &Path) -> Result<()> {
    let to = output.join(name);
    let from = if to.exists() { to.clone() } else { docs.join(name) };
    let page =
        fs::read_to_string(&from).with_context(|| format!("cannot read {}", from.display()))?;
    let page = splice(command, &page, part).with_context(|| {
        format!("{} has not the marks of `cargo xtask {command}`", from.display())
    })?;
    fs::write(&to, page).with_context(|| format!("cannot write {}", to.display()))
}

/// The page with `part` between the marks of a command; `None` when it has none.
pub fn splice(command: &str, page: &str, part: &str) -> Option<String> {
    let begin = format!("<!-- made by cargo xtask {command}: begin -->\n");
    let end = format!("<!-- made by cargo xtask {command}: end -->\n");
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{part}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::group::Group;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = |part: &str| {
            format!(
                "a\n<!-- made by cargo xtask x: begin -->\n{part}\
                 <!-- made by cargo xtask x: end -->\nb\n"
            )
        };
        assert_eq!(splice("x", &page("old\n"), "new\n"), Some(page("new\n")));
        assert_eq!(splice("y", &page("old\n"), "new\n"), None);
        assert_eq!(splice("x", "a\n", "new\n"), None);
    }

    #[test]
    fn the_pages_have_the_marks_of_every_command() {
        let page = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
            fs::read_to_string(path).unwrap()
        };
        assert!(splice("floods", &page("floods.md"), "").is_some());
        let performance = page("performance.md");
        for group in Group::value_variants() {
            assert!(splice(&group.command(), &performance, "").is_some(), "{group:?}");
        }
    }

    #[test]
    fn parts_of_one_page_are_put_into_it_one_after_the_other() {
        let dir = limiter_tests::work_dir::WorkDir::create("page").unwrap();
        let (docs, output) = (dir.path().join("docs"), dir.path().join("output"));
        fs::create_dir(&docs).unwrap();
        fs::create_dir(&output).unwrap();
        let marks = |name: &str, part: &str| {
            format!(
                "<!-- made by cargo xtask {name}: begin -->\n{part}\
                 <!-- made by cargo xtask {name}: end -->\n"
            )
        };
        fs::write(docs.join("p.md"), marks("a", "") + &marks("b", "")).unwrap();
        write("a", "p.md", "1\n", &docs, &output).unwrap();
        write("b", "p.md", "2\n", &docs, &output).unwrap();
        let page = fs::read_to_string(output.join("p.md")).unwrap();
        assert_eq!(page, marks("a", "1\n") + &marks("b", "2\n"));
    }
}
