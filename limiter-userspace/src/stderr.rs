//! Standard error, which may be a file on a full disk: that ends nothing, as `eprintln!` would.

use std::fmt;
use std::io::{self, Write as _};

/// Writes a line, if that is possible.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    // In one call: lines of several processes do not mix.
    let line = format!("{line}\n");
    if let Err(error) = io::stderr().write_all(line.as_bytes()) {
        tracing::debug!(%error, "standard error cannot be written to");
    }
}
