//! Objects of a rule set that its rules name.

use std::collections::BTreeMap;

use serde_json::Value;

use super::set::Set;

/// Objects that rules name, by table and name.
type Named<'a> = BTreeMap<(String, String), &'a Value>;

/// Objects of a rule set that rules refer to.
#[derive(Default)]
pub(super) struct Objects<'a> {
    pub(super) sets: BTreeMap<(String, String), Set<'a>>,
    pub(super) limits: Named<'a>,
    /// Sets that rules add to, with the number of these rules.
    pub(super) filled: BTreeMap<(String, String), usize>,
}
