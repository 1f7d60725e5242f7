//! The ends of limits made by `limiter set --for`: the edit and its time.
//!
//! They have a file of their own beside the edits, because edits are a rule file, and rules have no
//! ends. A line names the rule with all of its terms: so an end that was written without its edit
//! does not apply to another limit.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use limiter_rules::model::terms_kept;
use limiter_rules::{Path, Rule};
use serde::{Deserialize, Serialize};

use super::layers::Layers;
use crate::disk::own_files::is_absent;
use crate::disk::state_dir::{Damage, StateDir, StateError};

pub(crate) const ENDS: &str = "ends.json";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    rule: String,
    terms: String,
    /// Seconds since 1970, of the wall clock, so that the time goes on during a reboot.
    until: u64,
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Writes the ends of all edits.
pub(crate) fn store(state: &StateDir, layers: &Layers) -> Result<(), StateError> {
    let ends: Vec<End> = layers
        .ends
        .iter()
        .filter_map(|(path, until)| {
            let terms = terms_kept(&layers.edits.get(path)?.terms);
            Some(End { rule: path.to_string(), terms, until: *until })
        })
        .collect();
    if ends.is_empty() && is_absent(&state.path(ENDS)) {
        return Ok(());
    }
    // Text, numbers and lists can always be serialized.
    let text = serde_json::to_string(&ends).unwrap_or_default();
    state.prepare(ENDS, &text)?.publish()
}

/// Reads the ends of edits. A file that cannot be used is reported, and then no edit ends.
pub(crate) fn load(
    state: &StateDir,
    edits: &BTreeMap<Path, std::sync::Arc<Rule>>,
    damages: &mut Vec<Damage>,
) -> Result<BTreeMap<Path, u64>, StateError> {
    let parsed = |text: String| serde_json::from_str(&text).map_err(|error| error.to_string());
    let lost = "limits for a time stay: end them by `limiter unset`";
    let ends: Vec<End> = state.read_whole(ENDS, parsed, lost, damages)?.unwrap_or_default();
    let find = |end: &End| {
        let is = |(path, rule): &(&Path, &std::sync::Arc<Rule>)| {
            path.to_string() == end.rule && terms_kept(&rule.terms) == end.terms
        };
        edits.iter().find(is).map(|(path, _)| (path.clone(), end.until))
    };
    Ok(ends.iter().filter_map(find).collect())
}
