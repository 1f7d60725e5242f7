//! `cargo xtask floods`: measures what conforming sources get in a flood, beside hashlimit and nft, and
//! writes its part of `docs/floods.md` and its chart.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::{measure, workspace};

const PAGE: &str = "floods.md";
const PICTURE: &str = "floods.svg";

/// Between these two lines the page is the measurement's.
const BEGIN: &str = "<!-- made by cargo xtask floods: begin -->\n";
const END: &str = "<!-- made by cargo xtask floods: end -->\n";

/// What `floods` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Fewer floods, shorter and once: under a minute instead of six
    #[arg(long)]
    quick: bool,
    /// Entries of every table [default: 16384]
    #[arg(long, value_name = "N")]
    entries: Option<u32>,
}

/// Measures, and puts the results into the checkout as this user.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let mut options = Vec::new();
    if let Some(entries) = arguments.entries {
        options.extend(["--entries".to_owned(), entries.to_string()]);
    }
    if arguments.quick {
        options.push("--quick".to_owned());
    }
    let (code, output) = measure::run("floods", "limiter-floods", &options)?;
    if code != ExitCode::SUCCESS {
        return Ok(code);
    }
    let docs = workspace::root()?.join("docs");
    let page = docs.join(PAGE);
    let text = splice(&read(&page)?, &read(&output.path().join(PAGE))?)
        .with_context(|| format!("{} has not the lines {BEGIN}{END}", page.display()))?;
    let picture = read(&output.path().join(PICTURE))?;
    for (path, text) in [(page, text), (docs.join(PICTURE), picture)] {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(code)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The page with `part` between its marks; `None` when it has none.
fn splice(page: &str, part: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{part}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("a\n{BEGIN}old\n{END}b\n");
        let expected = format!("a\n{BEGIN}new\n{END}b\n");
        assert_eq!(splice(&page, "new\n"), Some(expected));
        assert_eq!(splice("a\n", "new\n"), None);
    }

    #[test]
    fn the_page_has_its_marks() {
        let page = workspace::root().unwrap().join("docs").join(PAGE);
        assert!(splice(&read(&page).unwrap(), "").is_some());
    }
}
