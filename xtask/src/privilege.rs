//! Root, or the way to it.

use std::io::{self, IsTerminal as _};
use std::process::{Command, Stdio};

use crate::process;

/// How a command that needs root can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    Root,
    /// sudo works, with or without asking somebody for a password.
    Sudo,
    /// Neither: not root, and no sudo that could be answered.
    None,
}

impl Privilege {
    /// Looks once; asks for nothing.
    pub(crate) fn find() -> Self {
        if rustix::process::geteuid().is_root() {
            Self::Root
        } else if process::find("sudo").is_some() && (io::stdin().is_terminal() || sudo_is_silent())
        {
            Self::Sudo
        } else {
            Self::None
        }
    }
}

/// True if sudo runs without a password.
fn sudo_is_silent() -> bool {
    Command::new("sudo")
        .args(["--non-interactive", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
