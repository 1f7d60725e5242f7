//! The answer of a command to the shell.

/// Output of a command, and its exit code.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Text for standard output.
    pub(super) text: String,
    /// Lines for standard error.
    pub(super) errors: Vec<String>,
    /// The exit code.
    pub(super) code: u8,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}
