//! Choice of the tests that a guest runs, and for how long: a file of tests/tests says so itself,
//! by a line `// Also on other kernels: 120 s each.` or `// Also on other kernels, and in the quick
//! part: 120 s each.` or `// Also on other kernels, by bench devices: 120 s each.` (or `by bench
//! cards`, of ignored tests). The seconds are those that one test may take, emulated, on a busy
//! machine. A file with a line `// Figures of other kernels, in docs/PAGE: 900 s each.` has ignored
//! tests that measure and say what goes into the page. Any other file is the host's alone.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::workspace;

/// Tests of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The part that fits into `cargo xtask test`.
    Quick,
    /// All but those of [`Scope::Devices`] and [`Scope::Cards`].
    Full,
    /// Figures for the pages, instead of tests.
    Figures,
    /// Those that need the modules of many devices.
    Devices,
    /// Those that need cards.
    Cards,
}

impl Scope {
    /// True where the tests make the tables of docs/devices.md.
    pub(super) fn is_of_tables(self) -> bool {
        matches!(self, Self::Devices | Self::Cards)
    }
}

/// A module of tests for a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The file in tests/tests, without its ending.
    pub module: String,
    /// The least scope that has it.
    pub(super) scope: Scope,
    /// Of figures: the page in docs/ that has them.
    pub page: Option<String>,
    /// Seconds that one test may take, emulated, on a busy machine.
    pub(super) seconds: u32,
}

impl Part {
    /// True if a run has it.
    pub(super) fn is_in(&self, scope: Scope) -> bool {
        self.scope == scope || (self.scope, scope) == (Scope::Quick, Scope::Full)
    }
}

/// The begin of the line of a file that a guest runs.
const MARK: &str = "// Also on other kernels";
const QUICK: &str = ", and in the quick part";
const FIGURES: &str = "// Figures of other kernels, in docs/";
const DEVICES: &str = ", by bench devices";
const CARDS: &str = ", by bench cards";

/// Bounds of the tests on an emulated machine.
pub(super) const BOUNDS: [(&str, &str); 2] =
    [("LIMITER_STEPS", "100000"), ("LIMITER_SHORTER", "5")];

/// The modules of tests that a guest runs, and the names of those that it does not, by name.
pub fn parts() -> Result<(Vec<Part>, Vec<String>)> {
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
        let module = path.file_stem().context("it has no name")?.to_string_lossy().into_owned();
        if path.is_dir() {
            path.push("mod.rs");
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        match part(&module, &text).with_context(|| path.display().to_string())? {
            Some(part) => parts.push(part),
            None if module == "main" => {}
            None => left_out.push(module),
        }
    }
    ensure!(!parts.is_empty(), "no file of {} has a line `{MARK}: ...`", directory.display());
    Ok((parts, left_out))
}

/// Reads the line of a file, if it has one.
fn part(module: &str, text: &str) -> Result<Option<Part>> {
    let after = |mark| text.lines().find_map(move |line| line.strip_prefix(mark));
    let (line, scope, page, rest) = if let Some(line) = after(FIGURES) {
        let (page, rest) = line.split_once(':').with_context(|| format!("no page: `{line}`"))?;
        (line, Scope::Figures, Some(page.to_owned()), rest)
    } else if let Some(line) = after(MARK) {
        let words = [(QUICK, Scope::Quick), (DEVICES, Scope::Devices), (CARDS, Scope::Cards)];
        let said = |(words, scope)| Some((scope, line.strip_prefix(words)?));
        let (scope, rest) = words.into_iter().find_map(said).unwrap_or((Scope::Full, line));
        let rest = rest.strip_prefix(':').with_context(|| format!("no seconds: `{line}`"))?;
        (line, scope, None, rest)
    } else {
        return Ok(None);
    };
    let seconds = rest.strip_prefix(' ').and_then(|rest| rest.strip_suffix(" s each."));
    let seconds = seconds
        .and_then(|seconds| seconds.parse().ok())
        .with_context(|| format!("not `: SECONDS s each.`: `{line}`"))?;
    Ok(Some(Part { module: module.to_owned(), scope, page, seconds }))
}

/// The tests of the parts, in the order of the parts, and the seconds that each may take: of the
/// output of libtest's `--list --format terse`.
pub(super) fn plan<'a>(
    list: &'a str,
    parts: &'a [Part],
) -> impl Iterator<Item = (&'a str, u32)> + use<'a> {
    let tests = || list.lines().filter_map(|line| line.strip_suffix(": test"));
    let is_of = |test: &str, part: &Part| test.split("::").next() == Some(&part.module);
    parts.iter().flat_map(move |part| {
        tests().filter(move |test| is_of(test, part)).map(|test| (test, part.seconds))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_whether_and_how_long() {
        let part = |text: &str| part("a", text);
        let is = |scope, page: Option<&str>, seconds| {
            let page = page.map(str::to_owned);
            Some(Part { module: "a".to_owned(), scope, page, seconds })
        };
        let full = part("//! A.\n\n// Also on other kernels: 60 s each.\n").unwrap();
        assert_eq!(full, is(Scope::Full, None, 60));
        let quick = "// Also on other kernels, and in the quick part: 120 s each.";
        assert_eq!(part(quick).unwrap(), is(Scope::Quick, None, 120));
        let devices = "// Also on other kernels, by bench devices: 240 s each.";
        assert_eq!(part(devices).unwrap(), is(Scope::Devices, None, 240));
        let figures = "// Figures of other kernels, in docs/a.md: 900 s each.";
        assert_eq!(part(figures).unwrap(), is(Scope::Figures, Some("a.md"), 900));
        assert_eq!(part("//! A.\n").unwrap(), None);
        part("// Also on other kernels: sometimes.").unwrap_err();
        part("// Also on other kernels and more: 3 s each.").unwrap_err();
    }

    #[test]
    fn tests_are_of_their_module_by_its_whole_name() {
        let part = |module: &str, seconds| {
            let (module, scope) = (module.to_owned(), Scope::Quick);
            Part { module, scope, page: None, seconds }
        };
        let list = "tables::size::a: test\nverdict::b: test\nverdict_of::c: test\nd: benchmark\n";
        let parts = [part("verdict", 60), part("tables", 30)];
        let planned: Vec<_> = plan(list, &parts).collect();
        assert_eq!(planned, [("verdict::b", 60), ("tables::size::a", 30)]);
    }

    /// A file that no line `mod` names would be neither compiled nor missed.
    #[test]
    fn every_file_of_tests_is_a_module() {
        let main =
            fs::read_to_string(workspace::root().unwrap().join("tests/tests/main.rs")).unwrap();
        let named: Vec<&str> =
            main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
        let (parts, left_out) = parts().unwrap();
        let mut files: Vec<String> = parts.into_iter().map(|part| part.module).collect();
        files.extend(left_out);
        files.sort();
        assert_eq!(named, files);
    }

    #[test]
    fn the_decisions_and_the_races_are_run_on_every_kernel() {
        let (parts, left_out) = parts().unwrap();
        let has = |name: &str| parts.iter().any(|part| part.module == name);
        assert!(["verdict", "equivalence", "concurrency"].into_iter().all(has));
        let quick = |part: &&Part| part.is_in(Scope::Quick);
        let quick: Vec<_> = parts.iter().filter(quick).map(|part| part.module.as_str()).collect();
        assert_eq!(quick, ["verifier"]);
        assert!(!left_out.is_empty());
        let of_devices = |part: &&Part| part.is_in(Scope::Devices);
        let devices: Vec<_> = parts.iter().filter(of_devices).map(|part| &part.module).collect();
        assert_eq!(devices, ["devices_kernels"]);
        let of_cards = |part: &&Part| part.is_in(Scope::Cards);
        let cards: Vec<_> = parts.iter().filter(of_cards).map(|part| &part.module).collect();
        assert_eq!(cards, ["cards_kernels"]);
    }
}
