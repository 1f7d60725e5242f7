//! `limiter diff`, `apply` and `export`, as far as they need no daemon.

use limiter_api::rules::{ChangedRule, RuleLine, RulesDiff};

use super::*;
use crate::changes::rule_sets;
use crate::failure::Failure;

fn line(subject: &str, text: &str) -> RuleLine {
    RuleLine { subject: subject.into(), text: text.into() }
}

#[test]
fn a_difference_is_reported_line_by_line() {
    let diff = RulesDiff {
        generation: 7,
        same: false,
        added: vec![line("budget slow", "9/s burst 9")],
        removed: vec![line("rule for vlan", "unlimited")],
        changed: vec![ChangedRule {
            subject: "rule for every source".into(),
            old: "1/s burst 1".into(),
            new: "2/s burst 2".into(),
        }],
        unchanged: 3,
        edits: vec![line("rule for 192.0.2.1", "5/s burst 5")],
        requests: Vec::new(),
    };
    assert_eq!(
        rule_sets::text(&diff, false),
        "\
- rule for vlan: unlimited
~ rule for every source: 1/s burst 1 -> 2/s burst 2
+ budget slow: 9/s burst 9
1 added, 1 removed, 1 changed, 3 unchanged
kept from `limiter set`: rule for 192.0.2.1: 5/s burst 5
"
    );
    let coloured = rule_sets::text(&diff, true);
    assert!(coloured.contains("\x1b[31m- rule for vlan: unlimited\x1b[0m\n"), "{coloured:?}");
    assert!(coloured.contains("\x1b[32m+ budget"), "{coloured:?}");
}

#[test]
fn mistakes_of_files_need_no_daemon_to_be_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.yaml");
    std::fs::write(&file, "descriptors: [{key: remote_adress}]\n").unwrap();
    let file = file.display();
    for command in ["diff", "apply"] {
        let text = failure(&format!("limiter {command} {file} --socket /nowhere/s"));
        assert!(text.contains("did you mean \"remote_address\"?"), "{text}");
    }
    std::fs::write(directory.path().join("r.yaml"), "descriptors: []\n").unwrap();
    let args = parse(&format!("limiter diff {file} --socket /nowhere/s")).unwrap();
    let failure = execute(&args, &Fake::default()).unwrap_err();
    assert!(matches!(&failure, Failure::Diff(_)), "{failure:?}");
    assert!(failure.to_string().starts_with("no daemon at /nowhere/s"), "{failure}");
    for line in ["limiter diff", "limiter apply", "limiter check", "limiter export x"] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}
