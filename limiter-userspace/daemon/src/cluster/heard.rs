//! The newest change of another node that was taken over, on disk: where nodes have a key, no older
//! change is taken over again after a restart, whatever the store reports.

use serde::{Deserialize, Serialize};

use crate::disk::state_dir::{Damage, StateDir, StateError};

pub(crate) const HEARD: &str = "heard.json";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heard {
    /// Microseconds since 1970, by the clock of the node that made the change.
    newest: u64,
}

/// Reads the time of the newest change; 0 if there was none.
pub(crate) fn load(state: &StateDir, damages: &mut Vec<Damage>) -> Result<u64, StateError> {
    let parsed = |text: String| serde_json::from_str(&text).map_err(|error| error.to_string());
    let lost = "signed changes of other nodes from before this start count again";
    let heard: Option<Heard> = state.read_whole(HEARD, parsed, lost, damages)?;
    Ok(heard.map_or(0, |heard| heard.newest))
}

/// Writes the time of the newest change.
pub(crate) fn store(state: &StateDir, newest: u64) -> Result<(), StateError> {
    // A number can always be serialized.
    let text = serde_json::to_string(&Heard { newest }).unwrap_or_default();
    state.prepare(HEARD, &text)?.publish()
}
