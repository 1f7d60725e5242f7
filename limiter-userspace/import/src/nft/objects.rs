//! Things of a rule set that its rules name.

use std::collections::BTreeMap;

use serde_json::Value;

use super::set::Set;

/// Objects that rules name, by table and name.
type Named<'a> = BTreeMap<(String, String), &'a Value>;

/// Things of a rule set that rules look into.
#[derive(Default)]
pub(super) struct Objects<'a> {
    pub(super) sets: BTreeMap<(String, String), Set<'a>>,
    pub(super) limits: Named<'a>,
    /// Sets that rules add to, with how many do.
    pub(super) filled: BTreeMap<(String, String), usize>,
}
