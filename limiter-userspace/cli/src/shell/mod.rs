//! The shell and the terminal: help, completions, wrong arguments, readers that go away.

pub(crate) mod completion_values;
pub(crate) mod hangup;
pub(crate) mod help;
pub(crate) mod shells;
pub(crate) mod usage;
