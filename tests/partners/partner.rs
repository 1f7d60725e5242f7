//! What is seen of a partner: a row of docs/tested-on.md.

use std::fmt;
use std::path::Path;
use std::{env, fs};

use anyhow::{Context as _, Result};
use limiter_tests::command;
use limiter_tests::root::require_root;
use serde_json::json;

/// Directory for the rows, which `cargo xtask partners` reads.
const ROWS: &str = "LIMITER_PARTNERS";

/// Why a partner could not be had on this machine, which is no verdict on limiter.
#[derive(Debug)]
pub(crate) struct NotRun(pub(crate) String);

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not run: {}", self.0)
    }
}

impl std::error::Error for NotRun {}

/// Tries a partner and writes its row. `work` sets the version as soon as it knows it; `tried` says
/// what it does.
pub(crate) fn tried(
    name: &str,
    tried: &str,
    work: impl FnOnce(&mut String) -> Result<()>,
) -> Result<()> {
    require_root();
    let mut version = String::new();
    let result = work(&mut version);
    let verdict = match &result {
        Ok(()) => "holds".to_owned(),
        Err(error) => match error.downcast_ref::<NotRun>() {
            Some(why) => why.to_string(),
            None => format!("**fails**: {error:#}"),
        },
    };
    let date = command::run("date", ["-u", "+%F"])?;
    let row = json!({
        "partner": name, "version": version.trim(), "date": date.trim(), "tried": tried,
        "verdict": verdict.split_whitespace().collect::<Vec<_>>().join(" "),
    });
    let Some(rows) = env::var_os(ROWS) else { return result };
    let file = Path::new(&rows).join(format!("{}.json", name.replace(['/', ' '], "-")));
    fs::write(&file, row.to_string()).with_context(|| file.display().to_string())?;
    match result {
        // The row says it, and `cargo xtask partners` counts it as not run.
        Err(error) if error.is::<NotRun>() => Ok(()),
        result => result,
    }
}
