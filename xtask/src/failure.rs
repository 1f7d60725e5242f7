//! Errors that make exit code 2: something is missing or refused, and there is a remedy.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// Something the command needs and may not or cannot get by itself.
#[derive(Debug)]
pub struct Refused {
    what: String,
    remedy: String,
}

impl Refused {
    /// `what` names the object and the place, `remedy` what to do about it.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

impl Error for Refused {}

/// 2 where the caller can do something about it, 1 for everything else.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.downcast_ref::<Refused>().is_some() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_refusal_is_found_below_its_context() {
        let refused: anyhow::Result<()> = Err(Refused::new("no ip", "install it").into());
        let error = refused.context("setup").unwrap_err();
        assert_eq!(exit_code(&error), ExitCode::from(2));
        assert_eq!(exit_code(&anyhow::anyhow!("broken")), ExitCode::FAILURE);
    }
}
