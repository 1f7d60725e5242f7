//! The documents of whole rule sets.

use serde::{Deserialize, Serialize};

/// One rule file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// What errors call it: its path.
    pub name: String,
    /// What is in it.
    pub text: String,
}
