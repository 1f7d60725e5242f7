//! The workflow of CI: its gate requires every other job, or one could fail in silence.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::fs;

const WORKFLOW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.github/workflows/ci.yml");

/// Names of jobs, and those that the gate needs.
fn jobs_and_needs(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (_, jobs) = text.split_once("\njobs:\n").unwrap();
    let names = jobs.lines().filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'));
    let names: Vec<&str> = names.filter(|name| !name.starts_with([' ', '#'])).collect();
    let (_, gate) = jobs.split_once("\n  gate:\n").unwrap();
    let needs = gate.lines().find_map(|line| line.trim().strip_prefix("needs: [")).unwrap();
    (names, needs.trim_end_matches(']').split(", ").collect())
}

#[test]
fn the_gate_needs_every_other_job() {
    let text = fs::read_to_string(WORKFLOW).unwrap();
    let (mut names, needs) = jobs_and_needs(&text);
    names.retain(|name| *name != "gate");
    assert!(names.len() >= 3, "{names:?}");
    assert_eq!(names, needs);
}

#[test]
fn a_job_that_the_gate_forgets_is_found() {
    let text = "on: x\n\njobs:\n  # One.\n  a:\n    steps: []\n  b:\n    steps: []\n\n  gate:\n    \
         needs: [a]\n";
    assert_eq!(jobs_and_needs(text), (vec!["a", "b", "gate"], vec!["a"]));
}
