//! Figures of other kernels than this machine's: tests that measure say them, and they go into the
//! pages between the marks of the command.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use xtask::arch::Arch;
use xtask::summary::Tally;
use xtask::vm::{self, Part, Prepared, Report, Run, Scope};
use xtask::workspace;

/// The kernel that is measured when none is named.
const KERNEL: &str = "6.12";

/// Begins a line of a test that is to be in its page.
const MARK: &str = "figure:";
const BEGIN: &str = "<!-- made by cargo xtask bench figures: begin -->\n";
const END: &str = "<!-- made by cargo xtask bench figures: end -->\n";

/// Options of `bench figures`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Kernels of Debian's for clouds, as 6.1; without any, 6.12
    #[arg(value_name = "KERNEL", default_values_t = [KERNEL.to_owned()])]
    kernels: Vec<String>,
    /// Architecture of the emulated machines; programs for another one than this machine's are
    /// cross-built
    #[arg(long, value_enum, default_value_t = Arch::Amd64)]
    arch: Arch,
    /// Only tests whose name, as `delay_figures::TEST`, contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

/// Measures, prints what came of it, and writes the figures of every page into it, if no test
/// failed.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let kernels: Vec<&str> = arguments.kernels.iter().map(String::as_str).collect();
    let filter = arguments.filter.as_deref();
    let prepared = Prepared::new(arguments.arch, Scope::Figures, filter)?;
    let tally = publish(&prepared.run(&kernels)?)?;
    println!("{tally}");
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn publish(run: &Run) -> Result<Tally> {
    let tally = run.show();
    if tally.failed == 0 {
        let docs = workspace::root()?.join("docs");
        write(&run.reports, &vm::parts()?.0, &docs)?;
    }
    Ok(tally)
}

fn write(reports: &[Report], parts: &[Part], docs: &Path) -> Result<()> {
    let mut pages: Vec<&str> = parts.iter().filter_map(|part| part.page.as_deref()).collect();
    pages.dedup();
    for page in pages {
        let of_page = |test: &str| {
            let module = test.split("::").next();
            parts
                .iter()
                .any(|part| Some(&*part.module) == module && part.page.as_deref() == Some(page))
        };
        let mut part = String::new();
        for report in reports {
            let tests = report.outcomes.iter().filter(|outcome| of_page(&outcome.test));
            let figures: String = tests.map(|outcome| said(&outcome.said)).collect();
            if !figures.is_empty() {
                part.extend(["\nLinux ", &report.release, ", emulated:\n\n", &figures]);
            }
        }
        if part.is_empty() {
            continue;
        }
        println!("{part}");
        let path = docs.join(page);
        let reading = || format!("cannot read {}", path.display());
        let text = fs::read_to_string(&path).with_context(reading)?;
        let text = splice(&text, &part)
            .with_context(|| format!("{} has not the marks `{}`", path.display(), BEGIN.trim()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// The lines that are to be in the page.
fn said(output: &str) -> String {
    let lines = output.lines().filter_map(|line| line.strip_prefix(MARK));
    lines.flat_map(|line| [line.trim(), "\n"]).collect()
}

/// The page with other figures; none if it has no place for them.
fn splice(page: &str, part: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{part}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_meant_for_the_page_comes_into_it() {
        let output = "running 1 test\nfigure: | a |\nb\nfigure:\nfigure: | c |\n";
        assert_eq!(said(output), "| a |\n\n| c |\n");
        let page = |part: &str| format!("a\n{BEGIN}{part}{END}b\n");
        assert_eq!(splice(&page("old\n"), "new\n"), Some(page("new\n")));
        assert_eq!(splice("a\n", "new\n"), None);
    }

    #[test]
    fn every_page_of_figures_has_a_place_for_them() {
        let docs = workspace::root().unwrap().join("docs");
        let (parts, _) = vm::parts().unwrap();
        let pages: Vec<String> = parts.into_iter().filter_map(|part| part.page).collect();
        assert!(!pages.is_empty());
        for page in pages {
            let text = fs::read_to_string(docs.join(&page)).unwrap();
            assert!(splice(&text, "").is_some(), "{page}");
        }
    }
}
