//! The rule files last in force, noted on disk. A start reads the present files, which may be half
//! of an edit: it reports if they differ from the noted ones.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use limiter_api::moment;
use limiter_api::rules::Document;
use limiter_rules::RuleFileError;
use serde::{Deserialize, Serialize};

use crate::disk::own_files::is_absent;
use crate::disk::state_dir::{Damage, Prepared, StateDir, StateError};
use crate::rule_sets::rule_files::{Digest, RuleSource};

const TAKEN: &str = "taken.json";

/// Consequence of an unusable file.
pub(crate) const LOST: &str = "whether the rule files changed before this start is not known";

/// The rule files that were in force, or that `limiter apply` replaced.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Taken {
    digest: String,
    /// Digest of each file by name; empty if the files changed again before they were noted.
    files: BTreeMap<String, String>,
    /// Time at which they were noted, in seconds since 1970.
    at: u64,
}

type Read = Result<Vec<Document>, RuleFileError>;

/// Digests of files, by their names.
fn each(read: &Read) -> BTreeMap<String, String> {
    let documents = read.iter().flatten();
    let digest = |text: &str| Digest::of_bytes(text.as_bytes()).to_string();
    documents.map(|Document { name, text }| (name.clone(), digest(text))).collect()
}

/// Reads the rules, and returns them if they still have this digest.
fn read(source: &RuleSource, digest: Digest) -> Option<Read> {
    Some(source.read()).filter(|read| Digest::of(read) == digest)
}

/// Notes that the rule files with a digest are in force. If that fails, the next start reports a
/// change that did not happen. Rules of the arguments are no file that could change.
pub(crate) fn note(state: &StateDir, source: &RuleSource, digest: Digest) {
    if matches!(source, RuleSource::Given(_)) {
        return;
    }
    let files = read(source, digest).map(|read| each(&read)).unwrap_or_default();
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let taken = Taken { digest: digest.to_string(), files, at };
    // Texts and numbers can always be serialized.
    let text = serde_json::to_string(&taken).unwrap_or_default();
    if let Err(error) = state.prepare(TAKEN, &text).and_then(Prepared::publish) {
        tracing::warn!("which rule files are in force is not noted for the next start: {error}");
    }
}

/// Returns true if the files in force are noted.
pub(crate) fn is_noted(state: &StateDir) -> bool {
    !is_absent(&state.path(TAKEN))
}

/// Message of a start about rule files that differ from those last in force; `None` if they are the
/// same or nothing is noted.
pub(crate) fn changed(
    state: &StateDir,
    source: &RuleSource,
    digest: Digest,
    damages: &mut Vec<Damage>,
) -> Result<Option<String>, StateError> {
    let parsed = |text: String| serde_json::from_str(&text).map_err(|error| error.to_string());
    // Arguments are complete as typed, unlike a file that may be in the middle of an edit.
    if matches!(source, RuleSource::Given(_)) {
        return Ok(None);
    }
    let taken: Option<Taken> = state.read_whole(TAKEN, parsed, LOST, damages)?;
    let Some(Taken { digest: before, files, at }) = taken else { return Ok(None) };
    if before == digest.to_string() {
        return Ok(None);
    }
    let now = read(source, digest).map(|read| each(&read)).unwrap_or_default();
    let names = if now.is_empty() || files.is_empty() {
        format!("{} changed", source.names())
    } else {
        differences(&files, &now)
    };
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at.min(u64::from(u32::MAX)));
    let at = moment::local(&humantime::format_rfc3339_seconds(at).to_string());
    Ok(Some(format!(
        "{names} on disk since the rules were last put in force, {at}; this start took what is \
         there: look at `limiter list`, and `limiter reload` ends this notice"
    )))
}

/// Describes the files that were changed, added and removed.
fn differences(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> String {
    let other = |name: &&String| before.get(*name).is_some_and(|old| now.get(*name) != Some(old));
    let changed = before.keys().filter(|name| now.contains_key(*name)).filter(other);
    let came = now.keys().filter(|name| !before.contains_key(*name));
    let went = before.keys().filter(|name| !now.contains_key(*name));
    let reported = |names: Vec<&str>, what: &str| {
        (!names.is_empty()).then(|| format!("{} {what}", names.join(", ")))
    };
    let all = [
        reported(changed.map(String::as_str).collect(), "changed"),
        reported(came.map(String::as_str).collect(), "came"),
        reported(went.map(String::as_str).collect(), "went"),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    // The files are the same, in another order.
    if all.is_empty() { "the order of the rule files changed".to_owned() } else { all.join("; ") }
}
