//! The answer of a command to the shell.

/// Output of a command, and its exit code.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) errors: Vec<String>,
    pub(super) code: u8,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}
