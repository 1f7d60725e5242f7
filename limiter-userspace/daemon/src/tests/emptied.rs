//! Rule files from which the rules are gone, by mistake or on purpose.

use limiter_api::rules::{ApplyRules, CompareRules, Document};

use super::*;

const NONE: &str = "descriptors: []\n";

/// Rules that limit nobody.
const OPEN: &str = "descriptors: [{key: remote_address, rate_limit: {unlimited: true}}]\n";

const BOTH: [&str; 2] = ["every source 100/s file", "192.0.2.0/24 1000/s file"];

impl Daemon {
    fn force_reload(&mut self) -> Result<Changed, Refusal> {
        self.service.reload_rules(ReloadRules { force: true, ..ReloadRules::default() })
    }

    fn warnings(&self) -> Vec<String> {
        self.service.status().unwrap().warnings
    }
}

#[test]
fn an_emptied_file_lifts_no_limit() {
    let mut daemon = Daemon::start(&["203.0.113.9"]);
    let rules = daemon.rules();
    let path = daemon.directory.path().join("r.yaml").display().to_string();
    for text in ["", "# all of it is gone\n", "---\n", "null\n", "domain: x\n", "descriptors:\n"] {
        daemon.write(text);
        // Force does not help: the file does not state that no rules are intended.
        for answer in [daemon.service.reload(), daemon.force_reload()] {
            let refusal = answer.unwrap_err();
            assert!(matches!(refusal, Refusal::Invalid(_)), "{refusal:?}");
            let refusal = refusal.to_string();
            assert!(refusal.starts_with(&format!("{path}:1:")), "{refusal}");
            assert!(refusal.contains("`descriptors: []`"), "{refusal}");
        }
        let status = daemon.service.status().unwrap();
        assert!(!status.last_reload.ok && status.generation == 1, "{status:?}");
        assert_eq!(daemon.rules(), rules, "{text:?}");
    }
}

#[test]
fn the_last_limit_goes_by_force_only() {
    for text in [NONE, OPEN] {
        let mut daemon = Daemon::start(&["203.0.113.9"]);
        let rules = daemon.rules();
        daemon.write(text);
        let refusal = daemon.service.reload().unwrap_err();
        assert!(matches!(refusal, Refusal::Conflict(_)), "{refusal:?}");
        let refusal = refusal.to_string();
        assert!(refusal.contains("nobody would be limited any more"), "{refusal}");
        assert!(refusal.contains("`limiter reload --force`"), "{refusal}");
        let status = daemon.service.status().unwrap();
        assert_eq!(status.last_reload.error, Some(refusal));
        assert_eq!(daemon.rules(), rules);
        daemon.force_reload().unwrap();
        assert!(daemon.rules().iter().all(|rule| rule.contains("unlimited")));
        // With nothing to lift, no force is needed.
        daemon.service.reload().unwrap();
    }
}

#[test]
fn a_start_without_rules_says_that_nobody_is_limited() {
    let daemon = Daemon::start(&["203.0.113.9"]);
    assert_eq!(daemon.warnings(), [""; 0]);
    daemon.write(NONE);
    let mut daemon = daemon.restart(&["203.0.113.9"]);
    let says = |warnings: &[String]| {
        assert!(
            matches!(warnings, [one] if one.starts_with("nobody is limited: ")),
            "{warnings:?}"
        );
    };
    says(&daemon.warnings());
    daemon.set("192.0.2.7", "1/s", None).unwrap();
    assert_eq!(daemon.warnings(), [""; 0]);
    says(&daemon.unset("192.0.2.7").unwrap().warnings);
}

#[test]
fn applied_rules_are_not_lifted_by_files_without_rules() {
    let mut daemon = Daemon::start(&["203.0.113.9"]);
    daemon.write(NONE);
    daemon.force_reload().unwrap();
    let named = |text: &str| vec![Document { name: "a.yaml".into(), text: text.into() }];
    let apply = |daemon: &mut Daemon, documents| {
        let (force, confirm_seconds, session) = (false, None, None);
        let rules = ApplyRules { documents, force, confirm_seconds, session };
        daemon.service.apply_rules(&rules)
    };
    apply(&mut daemon, named(RULES)).unwrap();
    let rules = daemon.rules();
    assert!(matches!(daemon.service.reload(), Err(Refusal::Conflict(_))));
    assert_eq!(daemon.rules(), rules);
    // Requests without a file, and with an empty file, are refused.
    for documents in [Vec::new(), named(""), named("budgets: []\n")] {
        let compared = daemon.service.compare(&CompareRules { documents: documents.clone() });
        assert!(matches!(compared, Err(Refusal::Invalid(_))), "{compared:?}");
        let applied = apply(&mut daemon, documents);
        assert!(matches!(applied, Err(Refusal::Invalid(_))), "{applied:?}");
    }
    assert_eq!(daemon.rules(), rules);
    // An author of a file that says so means it.
    apply(&mut daemon, named(NONE)).unwrap();
    assert_eq!(daemon.rules(), ["203.0.113.9 unlimited management"]);
    assert_eq!(rules[..2], BOTH);
}
