//! `cargo xtask floods`: measures what conforming sources get in a flood, beside hashlimit and nft, and
//! writes its part of `docs/floods.md` and its chart.

use std::process::ExitCode;

use anyhow::Result;

use crate::measure;

const PAGE: &str = "floods.md";
const PICTURE: &str = "floods.svg";

/// The words behind `cargo xtask`.
const COMMAND: &str = "floods";

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
    measure::splice_in(COMMAND, PAGE, output.path())?;
    measure::copy(PICTURE, output.path())?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_its_marks() {
        assert!(measure::has_marks(COMMAND, PAGE).unwrap());
    }
}
