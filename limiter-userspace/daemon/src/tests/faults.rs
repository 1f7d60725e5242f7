//! Changes that cannot be stored, over the data path in memory.

use std::num::NonZeroU32;

use limiter_api::rules::{ApplyRules, Document};

use super::*;

/// The disk fills up between the two steps of storing: the second one, onto a directory, fails for
/// root as well.
#[test]
fn confirmed_rules_that_cannot_be_stored_are_taken_back() {
    let mut daemon = Daemon::start(&[]);
    let before = daemon.rules();
    let text =
        "descriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 5}}]";
    let documents = vec![Document { name: "tried.yaml".to_owned(), text: text.to_owned() }];
    let confirm_seconds = NonZeroU32::new(60);
    let rules = ApplyRules { documents, confirm_seconds, force: true, session: None };
    daemon.service.apply_rules(&rules).unwrap();
    assert_eq!(daemon.rules(), ["every source 5/day file"]);
    let applied = daemon.directory.path().join("state/applied.json");
    fs::create_dir(&applied).unwrap();
    let error = daemon.service.confirm().unwrap_err().to_string();
    assert!(error.contains("cannot save the state") && error.contains("taken back"), "{error}");
    assert_eq!(daemon.rules(), before);
    let status = daemon.service.status().unwrap();
    assert!(status.trial.is_none() && !status.last_trial.unwrap().confirmed);
    fs::remove_dir(&applied).unwrap();
    daemon.service.apply_rules(&rules).unwrap();
    daemon.service.confirm().unwrap();
    assert_eq!(daemon.restart(&[]).rules(), ["every source 5/day file"]);
}

/// No half-written file remains, whatever failed.
#[test]
fn a_file_that_cannot_be_replaced_leaves_nothing_beside_it() {
    let mut daemon = Daemon::start(&[]);
    let state = daemon.directory.path().join("state");
    fs::create_dir(state.join("edits.json")).unwrap();
    let before = daemon.rules();
    assert!(matches!(daemon.set("192.0.2.9", "5/s", None), Err(Refusal::Failed(_))));
    assert_eq!(daemon.rules(), before);
    let mut names: Vec<String> = fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["edits.json", "lock", "taken.json"]);
}
