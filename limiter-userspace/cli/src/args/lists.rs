//! The arguments of `allow`, `deny` and `unlist`.

use std::path::PathBuf;
use std::time::Duration;

use crate::living;

/// Addresses and prefixes.
#[derive(Debug, clap::Args)]
pub(crate) struct Whom {
    /// Whom, as in 192.0.2.7 or 192.0.2.0/24
    #[arg(
        value_name = "ADDRESS|PREFIX", required_unless_present = "file", add = living::listed()
    )]
    pub(crate) sources: Vec<String>,
    /// A file with one address or prefix a line, and behind it, if it is to be listed for a time,
    /// that time, as in `192.0.2.7 10m`; `#` begins a comment; `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Do it even if that limits or drops this SSH session
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `allow` and `deny`.
#[derive(Debug, clap::Args)]
pub(crate) struct Listing {
    #[command(flatten)]
    pub(crate) whom: Whom,
    /// Take off the list, afterwards, all that the file does not name
    #[arg(long, requires = "file")]
    pub(crate) replace: bool,
    /// For how long, as in 10m, 2h or 1d [default: for ever]
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) time: Option<Duration>,
    /// The reason for it, which `lists`, `show` and `explain` tell
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}
