//! Commands that read and write rule files.

pub(crate) mod check;
#[cfg(feature = "requests")]
pub(crate) mod check_requests;
pub(crate) mod export;
pub(crate) mod first_rules;
#[cfg(feature = "import")]
pub(crate) mod import;
