//! Interfaces that stay limited though this start was not asked to limit them.

use std::fmt;
use std::path::PathBuf;

/// An interface that an earlier start attached and this one was not asked to. It uses the same
/// maps, and the earlier start's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// The interface's name: the last one known, if it is not here.
    pub name: String,
    /// The previous name, if it was renamed.
    pub was: Option<String>,
    /// True if the interface is in this network namespace.
    pub here: bool,
    /// The pin that keeps it limited.
    pub pin: PathBuf,
}

impl LeftBehind {
    /// How to end the limits there, or to continue them under this start.
    pub fn remedy(&self) -> String {
        if self.here {
            format!("name it with --iface, or run `limiter detach --iface {}`", self.name)
        } else {
            format!("remove its pin {} to end that", self.pin.display())
        }
    }
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(was) = &self.was {
            write!(f, ", which was {was},")?;
        }
        if self.here {
            write!(f, " is still limited as an earlier start left it")
        } else {
            write!(
                f,
                " is in another network namespace, and still limited there as an earlier start \
                 left it"
            )
        }
    }
}
