//! What the measurements have in common: they are built, and run as root into a directory of their own.

use std::env;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::setup::{self, Tools};
use crate::{process, supervise, workspace};

/// Sets up, builds and runs a measuring program of limiter-tests; returns its exit code, and the
/// directory with what it wrote.
pub(crate) fn run(command: &str, program: &str, options: &[String]) -> Result<(ExitCode, TempDir)> {
    let privilege = Privilege::find();
    if privilege == Privilege::None {
        return Err(Refused::new(
            "the measurement makes network namespaces and loads an XDP program, which needs root, \
             and there is no sudo that could be asked",
            format!("run `cargo xtask {command}` as root or install sudo"),
        )
        .into());
    }
    let toolchain = setup::ensure(Tools::Peers)?;
    let limiter = workspace::build(&toolchain, "limiter-userspace", "limiter", false)?;
    let program = workspace::build(&toolchain, "limiter-tests", program, false)?;
    let output = tempfile::tempdir().context("no directory for the results could be made")?;
    let mut kept = vec![("LIMITER_BIN", limiter.into_os_string())];
    kept.extend(env::var_os("RUST_BACKTRACE").map(|value| ("RUST_BACKTRACE", value)));
    let mut command = process::as_root(privilege, program, &kept);
    command.arg("--output").arg(output.path()).args(options);
    eprintln!("xtask: {}", process::shown(&command));
    let code = supervise::run(&mut command, privilege)?;
    Ok((code, output))
}

/// Puts a part of a page that was measured into the page of the checkout, between its marks.
pub(crate) fn splice_in(command: &str, page: &str, output: &Path) -> Result<()> {
    splice_part(command, page, output, page)
}

/// The same with a part of another name than the page's.
pub(crate) fn splice_part(command: &str, page: &str, output: &Path, part: &str) -> Result<()> {
    let path = workspace::root()?.join("docs").join(page);
    let text = splice(command, &read(&path)?, &read(&output.join(part))?).with_context(|| {
        format!("{} has not the marks of `cargo xtask {command}`", path.display())
    })?;
    write(&path, &text)
}

/// Puts a file that was measured into the checkout.
pub(crate) fn copy(name: &str, output: &Path) -> Result<()> {
    write(&workspace::root()?.join("docs").join(name), &read(&output.join(name))?)
}

/// Whether a page of the checkout has the marks of a command.
#[cfg(test)]
pub(crate) fn has_marks(command: &str, page: &str) -> Result<bool> {
    let page = read(&workspace::root()?.join("docs").join(page))?;
    Ok(splice(command, &page, "").is_some())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// The page with `part` between the marks of a command; `None` when it has none.
fn splice(command: &str, page: &str, part: &str) -> Option<String> {
    let begin = format!("<!-- made by cargo xtask {command}: begin -->\n");
    let end = format!("<!-- made by cargo xtask {command}: end -->\n");
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{part}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = |part: &str| {
            format!(
                "a\n<!-- made by cargo xtask x: begin -->\n{part}<!-- made by cargo xtask x: end -->\nb\n"
            )
        };
        assert_eq!(splice("x", &page("old\n"), "new\n"), Some(page("new\n")));
        assert_eq!(splice("y", &page("old\n"), "new\n"), None);
        assert_eq!(splice("x", "a\n", "new\n"), None);
    }
}
