//! `cargo xtask screenshots`: takes the pictures of `limiter top` in `docs/` again.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::{measure, workspace};

/// The pictures.
const PICTURES: [&str; 2] = ["top.svg", "top-source.svg"];

/// What `screenshots` is asked for: nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// Takes them, and puts them into the checkout as this user.
pub(crate) fn main(_arguments: &Arguments) -> Result<ExitCode> {
    let (code, output) = measure::run("screenshots", "limiter-screenshots", &[])?;
    if code != ExitCode::SUCCESS {
        return Ok(code);
    }
    let docs = workspace::root()?.join("docs");
    for picture in PICTURES {
        let to = docs.join(picture);
        fs::read(output.path().join(picture))
            .and_then(|bytes| fs::write(&to, bytes))
            .with_context(|| format!("cannot write {}", to.display()))?;
        println!("{}", to.display());
    }
    Ok(code)
}
