//! `cargo xtask accuracy`: measures delivered against configured rates and writes
//! `docs/accuracy.md` and its chart.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::{measure, workspace};

/// What the measurement writes.
const FILES: [&str; 2] = ["accuracy.md", "accuracy.svg"];

/// What `accuracy` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Fewer loads and shorter measurements: under two minutes instead of ten
    #[arg(long)]
    quick: bool,
}

/// Measures, and puts the results into the checkout as this user.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let options: &[String] = if arguments.quick { &["--quick".to_owned()] } else { &[] };
    let (code, output) = measure::run("accuracy", "limiter-accuracy", options)?;
    // A limit that was not held is published too, and is the exit code.
    let docs = workspace::root()?.join("docs");
    for name in FILES {
        let (from, to) = (output.path().join(name), docs.join(name));
        if fs::exists(&from)? {
            fs::create_dir_all(&docs)
                .and_then(|()| fs::write(&to, fs::read(&from)?))
                .with_context(|| format!("cannot write {}", to.display()))?;
            println!("{}", to.display());
        }
    }
    Ok(code)
}
