//! The pins of another limiter that limits an interface.

use std::fmt;
use std::path::PathBuf;

/// The pins of another limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherPins {
    /// Pin directory of the other instance.
    pub directory: PathBuf,
    /// Interfaces that the other instance limits.
    pub interfaces: Vec<String>,
}

impl fmt::Display for OtherPins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (directory, names) = (self.directory.display(), self.interfaces.join(", "));
        write!(f, "`limiter detach --pin-dir {directory}`, which takes the limits off {names}")
    }
}
