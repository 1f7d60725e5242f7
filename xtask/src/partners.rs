//! `cargo xtask partners`: limiter beside the real proxies, stores, engines and others that its
//! pages name, and the table of docs/tested-on.md.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::setup::{self, Tools};
use crate::{process, supervise, workspace};

/// The page, in the checkout.
const PAGE: &str = "docs/tested-on.md";
const BEGIN: &str = "<!-- made by cargo xtask partners --update: begin -->\n";
const END: &str = "<!-- made by cargo xtask partners --update: end -->\n";

/// Target of the tests.
pub(crate) const TESTS: &str = "partners";

/// Options of `partners`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only tests whose name contains this, as `envoy`
    name: Option<String>,
    /// Write what was seen into docs/tested-on.md; a partner that was not run keeps its row
    #[arg(long)]
    update: bool,
}

/// Sets up, builds, and runs the tests one after the other as root. Exit codes: 1 if one failed, 2
/// if none failed and a partner could not be had.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let privilege = Privilege::find();
    if privilege == Privilege::None {
        return Err(Refused::new(
            "the partners run in namespaces, which needs root, and there is no sudo that could be \
             asked",
            "run `cargo xtask partners` as root or install sudo",
        )
        .into());
    }
    let toolchain = setup::ensure(Tools::Partners)?;
    let mut cargo = workspace::cargo(&toolchain)?;
    cargo.arg("build").args(workspace::host()).args([
        "--bin",
        "limiter",
        "--bin",
        "limiter-cni",
        "--test",
        TESTS,
    ]);
    let built = workspace::executables(&mut cargo)?;
    let find = |wanted: &str| {
        let found = built.iter().find(|(name, _)| name == wanted);
        let (_, path) = found.with_context(|| format!("no program {wanted} was built"))?;
        anyhow::Ok(path.clone())
    };
    let rows = tempfile::tempdir().context("no directory for the rows could be made")?;
    let kept = [
        ("LIMITER_BIN", find("limiter")?.into_os_string()),
        ("LIMITER_PARTNERS", rows.path().into()),
    ];
    let mut tests = process::as_root(privilege, find(TESTS)?, &kept);
    tests.args(["--ignored", "--test-threads=1", "--nocapture"]).args(&arguments.name);
    let code = supervise::run(&mut tests, privilege)?;
    let seen = read(rows.path())?;
    if seen.is_empty() && code == ExitCode::SUCCESS {
        return Err(Refused::new(
            "no test has that in its name",
            "see the names in `tests/partners`",
        )
        .into());
    }
    for (partner, row) in &seen {
        println!("{partner} {}: {}", row.version, row.verdict);
    }
    let count = |begin: &str| seen.values().filter(|row| row.verdict.starts_with(begin)).count();
    let [held, failed, not_run] = [HOLDS, FAILS, NOT_RUN].map(count);
    if arguments.update {
        let path = workspace::root()?.join(PAGE);
        let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        fs::write(&path, written(&page, seen)?).with_context(|| path.display().to_string())?;
        println!("{PAGE}");
    }
    println!("partners: {held} hold, {failed} fail, {not_run} NOT RUN");
    Ok(if code != ExitCode::SUCCESS {
        ExitCode::FAILURE
    } else if not_run > 0 {
        ExitCode::from(2)
    } else {
        code
    })
}

/// Beginnings of the verdicts that tests/partners/partner.rs writes.
const HOLDS: &str = "holds";
const FAILS: &str = "**fails**";
const NOT_RUN: &str = "not run";

/// What was seen of a partner.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    version: String,
    date: String,
    tried: String,
    verdict: String,
}

/// The rows that the tests wrote, by partner.
fn read(directory: &Path) -> Result<BTreeMap<String, Row>> {
    let mut rows = BTreeMap::new();
    for entry in fs::read_dir(directory).context("the rows cannot be listed")? {
        let path = entry.context("the rows cannot be listed")?.path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let row: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let cell = |name: &str| {
            let text = row.get(name).and_then(Value::as_str).unwrap_or_default();
            text.replace('|', "\\|")
        };
        let [version, date, tried, verdict] = ["version", "date", "tried", "verdict"].map(cell);
        rows.insert(cell("partner"), Row { version, date, tried, verdict });
    }
    Ok(rows)
}

/// The page with rows in the place of those of the same partners. What was not run this time and
/// was before keeps its row, which has its date.
fn written(page: &str, seen: BTreeMap<String, Row>) -> Result<String> {
    let no_table = || format!("{PAGE} has no table of partners");
    let (before, rest) = page.split_once(BEGIN).with_context(no_table)?;
    let (table, after) = rest.split_once(END).with_context(no_table)?;
    let row = |line: &str| -> Option<(String, Row)> {
        let mut cells =
            line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").map(str::to_owned);
        let partner = cells.next()?;
        let [version, date, tried, verdict] =
            [cells.next()?, cells.next()?, cells.next()?, cells.next()?];
        Some((partner, Row { version, date, tried, verdict }))
    };
    let mut rows: BTreeMap<String, Row> = table.lines().skip(2).filter_map(row).collect();
    for (partner, row) in seen {
        if !row.verdict.starts_with(NOT_RUN) || !rows.contains_key(&partner) {
            rows.insert(partner, row);
        }
    }
    let line = |(partner, row): (String, Row)| {
        let cells = [partner, row.version, row.date, row.tried, row.verdict];
        format!("| {} |\n", cells.join(" | "))
    };
    let lines: Vec<String> = rows.into_iter().map(line).collect();
    Ok([before, BEGIN, HEAD, &lines.concat(), END, after].concat())
}

const HEAD: &str =
    "| partner | version | date | what was tried | verdict |\n|---|---|---|---|---|\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: &str) -> Row {
        let [version, date, tried] = ["1", "2026-11-29", "it"].map(str::to_owned);
        Row { version, date, tried, verdict: verdict.to_owned() }
    }

    #[test]
    fn rows_are_replaced_and_none_is_lost_for_what_could_not_be_had() {
        let empty = format!("a\n{BEGIN}{HEAD}{END}b\n");
        let seen = |verdicts: &[(&str, &str)]| {
            verdicts.iter().map(|&(name, verdict)| (name.to_owned(), row(verdict))).collect()
        };
        let page = written(&empty, seen(&[("x", HOLDS), ("y", "not run: no network")])).unwrap();
        let rows = "| x | 1 | 2026-11-29 | it | holds |\n\
                    | y | 1 | 2026-11-29 | it | not run: no network |\n";
        assert_eq!(page, format!("a\n{BEGIN}{HEAD}{rows}{END}b\n"));
        let later = written(&page, seen(&[("x", "not run: gone"), ("y", "**fails**: z")])).unwrap();
        assert!(later.contains("| x | 1 | 2026-11-29 | it | holds |"), "{later}");
        assert!(later.contains("| y | 1 | 2026-11-29 | it | **fails**: z |"), "{later}");
        assert!(written("no table", seen(&[])).is_err());
    }

    #[test]
    fn the_page_is_as_it_would_be_written() {
        let page = fs::read_to_string(workspace::root().unwrap().join(PAGE)).unwrap();
        assert_eq!(written(&page, BTreeMap::new()).unwrap(), page);
    }
}
