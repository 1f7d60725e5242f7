//! Choice of the tests that a guest runs, and for how long: a file of tests/tests says so itself,
//! by a line `// Also on other kernels: 120 s each.` or `// Also on other kernels, and in the quick
//! part: 120 s each.` The seconds are those that one test may take, emulated, on a busy machine.
//! Any other file is the host's alone.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::workspace;

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The part that fits into `cargo xtask test`.
    Quick,
    /// Everything.
    Full,
}

/// A test binary for a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The file in tests/tests, without its ending.
    pub(super) binary: String,
    /// True if [`Scope::Quick`] has it.
    pub(super) quick: bool,
    /// Seconds that one test may take, emulated, on a busy machine.
    pub(super) seconds: u32,
}

/// The begin of the line of a file that a guest runs.
const MARK: &str = "// Also on other kernels";
const QUICK: &str = ", and in the quick part";

/// Bounds of the tests on an emulated machine.
pub(super) const BOUNDS: [(&str, &str); 2] =
    [("LIMITER_STEPS", "100000"), ("LIMITER_SHORTER", "5")];

/// The test binaries that a guest runs, and the names of those that it does not, by name.
pub(super) fn parts() -> Result<(Vec<Part>, Vec<String>)> {
    let directory = workspace::root()?.join("tests/tests");
    let (mut parts, mut left_out) = (Vec::new(), Vec::new());
    let listing = || format!("listing {}", directory.display());
    let mut entries: Vec<_> = fs::read_dir(&directory)
        .with_context(listing)?
        .collect::<std::io::Result<_>>()
        .with_context(listing)?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let mut path = entry.path();
        let binary = path.file_stem().context("it has no name")?.to_string_lossy().into_owned();
        if path.is_dir() {
            path.push("main.rs");
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        match part(&binary, &text).with_context(|| path.display().to_string())? {
            Some(part) => parts.push(part),
            None => left_out.push(binary),
        }
    }
    ensure!(!parts.is_empty(), "no file of {} has a line `{MARK}: ...`", directory.display());
    Ok((parts, left_out))
}

/// Reads the line of a file, if it has one.
fn part(binary: &str, text: &str) -> Result<Option<Part>> {
    let Some(line) = text.lines().find_map(|line| line.strip_prefix(MARK)) else {
        return Ok(None);
    };
    let (rest, quick) = match line.strip_prefix(QUICK) {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let seconds = rest.strip_prefix(": ").and_then(|rest| rest.strip_suffix(" s each."));
    let seconds = seconds
        .and_then(|seconds| seconds.parse().ok())
        .with_context(|| format!("not `{MARK}[{QUICK}]: SECONDS s each.`: `{MARK}{line}`"))?;
    Ok(Some(Part { binary: binary.to_owned(), quick, seconds }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_whether_and_how_long() {
        let part = |text: &str| part("a", text);
        let is = |quick, seconds| Some(Part { binary: "a".to_owned(), quick, seconds });
        assert_eq!(
            part("//! A.\n\n// Also on other kernels: 60 s each.\n").unwrap(),
            is(false, 60)
        );
        let quick = "// Also on other kernels, and in the quick part: 120 s each.";
        assert_eq!(part(quick).unwrap(), is(true, 120));
        assert_eq!(part("//! A.\n").unwrap(), None);
        part("// Also on other kernels: sometimes.").unwrap_err();
        part("// Also on other kernels and more: 3 s each.").unwrap_err();
    }

    #[test]
    fn the_decisions_and_the_races_are_run_on_every_kernel() {
        let (parts, left_out) = parts().unwrap();
        let has = |name: &str| parts.iter().any(|part| part.binary == name);
        assert!(["verdict", "equivalence", "concurrency", "verifier"].into_iter().all(has));
        assert!(parts.iter().any(|part| part.quick) && !left_out.is_empty());
    }
}
