//! The arguments of `allow`, `deny` and `unlist`.

use std::path::PathBuf;

use limiter_api::arguments::some_seconds;

use crate::shell::completion_values;

/// Addresses and prefixes.
#[derive(Debug, clap::Args)]
pub(crate) struct Whom {
    /// Whom, as in 192.0.2.7 or 192.0.2.0/24
    #[arg(
        value_name = "ADDRESS|PREFIX", required_unless_present = "file", add = completion_values::listed()
    )]
    pub(crate) sources: Vec<String>,
    /// A file with one address or prefix a line, and behind it, if it is to be listed for a time,
    /// that time, as in `192.0.2.7 10m`; `#` and `;` begin a comment; or what `cscli decisions list
    /// -o json` or `-o raw` prints; `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The program or list that the entries are of: it replaces and takes off its own alone, and
    /// none of a person. `person` is none [default: for new entries of a file that file, else a
    /// person]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Do it even if that limits or drops this SSH session
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `allow` and `deny`.
#[derive(Debug, clap::Args)]
pub(crate) struct Listing {
    #[command(flatten)]
    pub(crate) whom: Whom,
    /// Take off the list what came by this file, or this `--by`, before and is not named any more
    #[arg(long, requires = "file")]
    pub(crate) replace: bool,
    /// Refuse a file that has lines which cannot be read, or sources that are not to be listed
    #[arg(long, requires = "file")]
    pub(crate) strict: bool,
    /// For how long, as in 10m, 2h or 1d [default: for ever]
    #[arg(long = "for", value_name = "TIME", value_parser = some_seconds)]
    pub(crate) seconds: Option<u64>,
    /// The reason for it, which `lists`, `show` and `explain` report
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}
