//! The allow and the deny list of rule files: they come, change and go with the file, and touch no
//! entry of anybody else.

use std::fs;
use std::time::Duration;

use limiter_api::lists::{ListName, SetList, UnsetList};
use limiter_api::rules::{ApplyRules, CompareRules, Document, ExportRules, RuleLine, Session};
use limiter_common::time::Ticks;
use limiter_common::wire::Listed;

use super::*;

/// 2026-01-01.
const WALL: Duration = Duration::from_hours(490_896);

const RULE: &str = "descriptors:\n  - key: remote_address\n    rate_limit: {rate: 100/s}\n";

impl Daemon {
    fn with_lists(lists: &str) -> Self {
        let mut daemon = Self::start(&["10.0.0.0/8"]);
        daemon.fake.state().wall = Some(WALL);
        daemon.file(lists).unwrap();
        daemon
    }

    fn file(&mut self, lists: &str) -> Result<Changed, Refusal> {
        fs::write(self.directory.path().join("r.yaml"), format!("{lists}{RULE}")).unwrap();
        self.service.reload()
    }

    fn apply_lists(&mut self, lists: &str, asked: &ApplyRules) -> Result<Changed, Refusal> {
        let document = Document { name: "new.yaml".into(), text: format!("{lists}{RULE}") };
        self.service.apply_rules(&ApplyRules { documents: vec![document], ..asked.clone() })
    }

    fn on_trial(&mut self, lists: &str) -> Changed {
        let confirm_seconds = std::num::NonZeroU32::new(60);
        self.apply_lists(lists, &ApplyRules { confirm_seconds, ..apply() }).unwrap()
    }

    fn typed(&mut self, list: ListName, source: &str, seconds: Option<u64>) {
        let sources = vec![source.to_owned()];
        self.service.list(&SetList { list, sources, seconds, ..SetList::default() }).unwrap();
    }

    fn by_feed(&mut self, sources: &[&str]) -> Vec<(String, String)> {
        let sources = sources.iter().map(|source| (*source).to_owned()).collect();
        let (list, by) = (ListName::Deny, Some("feed".to_owned()));
        let request = SetList { list, sources, by, replace: true, ..SetList::default() };
        let skipped = self.service.list(&request).unwrap().skipped;
        skipped.into_iter().map(|it| (it.source, it.why)).collect()
    }

    fn unlist_one(&mut self, source: &str) -> Result<(), Refusal> {
        let source = Some(source.to_owned());
        self.service.unlist(&UnsetList { source, ..UnsetList::default() }).map(drop)
    }

    /// The lists in the maps: the packets' view.
    fn verdicts(&self) -> Vec<String> {
        let state = self.fake.state();
        let entries = state.lists.iter().filter_map(|(at, entry)| {
            let verdict = entry.at(state.now)?;
            (verdict != Listed::Management).then(|| format!("{at} {verdict:?}"))
        });
        entries.collect()
    }

    /// `192.0.2.7 allow rule file (reason)`, and why it is not in force.
    fn shown(&self) -> Vec<String> {
        let entries = self.service.lists().unwrap().entries.into_iter();
        let shown = entries.map(|entry| {
            let by = entry.by.as_deref().unwrap_or("a person");
            let reason = entry.reason.map(|it| format!(" ({it})")).unwrap_or_default();
            let not = entry.not_in_force.map(|it| format!(" - {it}")).unwrap_or_default();
            format!("{} {} {by}{reason}{not}", entry.source, entry.list.name())
        });
        shown.collect()
    }

    fn later(&self, time: Duration) {
        let mut state = self.fake.state();
        state.now = state.now.plus(Ticks::from_nanos(u64::try_from(time.as_nanos()).unwrap()));
        let wall = state.wall.unwrap();
        state.wall = Some(wall + time);
    }

    fn all_warnings(&self) -> String {
        self.service.status().unwrap().warnings.join("\n")
    }
}

fn apply() -> ApplyRules {
    ApplyRules { documents: Vec::new(), force: false, confirm_seconds: None, session: None }
}

const LISTS: &str = "allow:
  - {address: 192.0.2.7, reason: monitoring}
  - 198.51.100.0/24
deny:
  - 203.0.113.0/24
";

#[test]
fn the_lists_of_a_file_come_change_and_go_with_it() {
    let mut daemon = Daemon::with_lists(LISTS);
    assert_eq!(
        daemon.shown(),
        [
            "192.0.2.7 allow rule file (monitoring)",
            "198.51.100.0/24 allow rule file",
            "203.0.113.0/24 deny rule file",
        ]
    );
    let all = ["192.0.2.7 Allow", "198.51.100.0/24 Allow", "203.0.113.0/24 Deny"];
    assert_eq!(daemon.verdicts(), all);
    // A refused file changes nothing.
    daemon.file("deny: [192.0.2.0/33]\n").unwrap_err();
    assert_eq!(daemon.verdicts(), all);
    // Others take their place as a whole.
    daemon.file("deny: [192.0.2.7, 192.0.2.8]\n").unwrap();
    assert_eq!(daemon.verdicts(), ["192.0.2.7 Deny", "192.0.2.8 Deny"]);
    // These entries are not saved, because they are in the file.
    daemon.service.housekeep().unwrap();
    let saved = daemon.directory.path().join("state/lists.json");
    assert!(!fs::read_to_string(saved).unwrap_or_default().contains("192.0.2.8"));
    daemon.file("").unwrap();
    assert_eq!(daemon.verdicts(), [""; 0]);
    assert_eq!(daemon.shown(), [""; 0]);
}

#[test]
fn no_entry_of_others_is_touched() {
    let mut daemon = Daemon::with_lists("");
    daemon.typed(ListName::Deny, "192.0.2.7", None);
    assert_eq!(daemon.by_feed(&["198.51.100.9", "203.0.113.9", "192.0.2.99"]), []);
    daemon.file(LISTS).unwrap();
    // At the same prefix a person overrides the file, and the file overrides a program there and
    // inside.
    assert_eq!(
        daemon.shown(),
        [
            "192.0.2.7 deny a person",
            "192.0.2.7 allow rule file (monitoring) - it is denied by hand",
            "192.0.2.99 deny feed",
            "198.51.100.0/24 allow rule file",
            "198.51.100.9 deny feed - it is inside 198.51.100.0/24, which is allowed by the rule \
             file",
            "203.0.113.0/24 deny rule file",
            "203.0.113.9 deny feed",
        ]
    );
    let both = [
        "192.0.2.7 Deny",
        "192.0.2.99 Deny",
        "198.51.100.0/24 Allow",
        "198.51.100.9 Allow",
        "203.0.113.0/24 Deny",
        "203.0.113.9 Deny",
    ];
    assert_eq!(daemon.verdicts(), both);
    // The same holds after a restart, from only the maps and the saved entries.
    let mut daemon = daemon.restart(&["10.0.0.0/8"]);
    assert_eq!(daemon.verdicts(), both);
    // A program may not undo the file, and what agrees with it is kept beneath.
    assert_eq!(
        daemon.by_feed(&["192.0.2.7", "198.51.100.10", "203.0.113.9"]),
        [
            ("192.0.2.7".to_owned(), "it is allowed by the rule file (monitoring)".to_owned()),
            (
                "198.51.100.10".to_owned(),
                "it is inside 198.51.100.0/24, which is allowed by the rule file".to_owned()
            ),
        ]
    );
    // The person's entry is removed, and that of the file is back.
    daemon.unlist_one("192.0.2.7").unwrap();
    assert_eq!(daemon.verdicts()[0], "192.0.2.7 Allow");
    let error = daemon.unlist_one("192.0.2.7").unwrap_err().to_string();
    assert!(error.contains("comes from the rule file") && error.contains("r.yaml:2:5"), "{error}");
    // Without the lists of the file, everything is as others wrote it.
    daemon.typed(ListName::Allow, "192.0.2.1", None);
    daemon.file("").unwrap();
    assert_eq!(daemon.shown(), ["192.0.2.1 allow a person", "203.0.113.9 deny feed"]);
    assert_eq!(daemon.verdicts(), ["192.0.2.1 Allow", "203.0.113.9 Deny"]);
}

#[test]
fn what_a_person_says_for_a_time_uncovers_the_file_after_it() {
    let mut daemon = Daemon::with_lists("allow: [192.0.2.7]\n");
    daemon.typed(ListName::Deny, "192.0.2.7", Some(10));
    assert_eq!(daemon.verdicts(), ["192.0.2.7 Deny"]);
    let view = daemon.service.source("192.0.2.7").unwrap();
    assert_eq!((view.listed, view.listed_by), (Some(ListName::Deny), None));
    assert_eq!(view.listed_beside.len(), 1);
    daemon.later(Duration::from_secs(11));
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.verdicts(), ["192.0.2.7 Allow"]);
    let view = daemon.service.source("192.0.2.7").unwrap();
    assert_eq!(view.listed_by.as_deref(), Some("rule file"));
    assert_eq!(view.listed_beside, []);
}

#[test]
fn entries_end_at_their_time_and_those_of_the_past_are_reported() {
    let mut daemon = Daemon::with_lists("");
    let timed = "allow:
  - {address: 192.0.2.1, until: 2025-12-30}
  - {address: 192.0.2.2, until: 2026-01-01T00:00:10Z}
  - {address: 192.0.2.3, until: 2026-01-01}
";
    let changed = daemon.file(timed).unwrap();
    let end = limiter_api::moment::local("2025-12-31T00:00:00Z");
    let over = format!("the entry 192.0.2.1 of the allow list ended at {end}: remove it");
    assert!(changed.warnings.iter().any(|it| it.contains(&over)), "{:?}", changed.warnings);
    assert_eq!(daemon.verdicts(), ["192.0.2.2 Allow", "192.0.2.3 Allow"]);
    daemon.later(Duration::from_secs(10));
    assert_eq!(daemon.verdicts(), ["192.0.2.3 Allow"], "the program ends it by itself");
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.shown(), ["192.0.2.3 allow rule file"]);
    // A change of the clock moves the ends.
    daemon.fake.state().wall = Some(WALL + Duration::from_hours(25));
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.verdicts(), [""; 0]);
    daemon.fake.state().wall = Some(WALL);
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.verdicts(), ["192.0.2.2 Allow", "192.0.2.3 Allow"]);
}

#[test]
fn a_trial_gives_back_what_it_took() {
    let mut daemon = Daemon::with_lists("allow: [192.0.2.1]\ndeny: [192.0.2.2]\n");
    let before = ["192.0.2.1 Allow", "192.0.2.2 Deny"];
    let tried = "allow: [192.0.2.2, 192.0.2.3]\n";
    let changed = daemon.on_trial(tried);
    // Removed entries could not be restored if the daemon died, so their removal waits.
    assert_eq!(daemon.verdicts(), ["192.0.2.1 Allow", "192.0.2.2 Deny", "192.0.2.3 Allow"]);
    for waits in ["192.0.2.1 stays on the allow list", "192.0.2.2 stays on the deny list"] {
        assert!(changed.warnings.iter().any(|it| it.contains(waits)), "{:?}", changed.warnings);
    }
    // Nobody confirms: the program goes back without the daemon.
    daemon.later(Duration::from_mins(1));
    assert_eq!(daemon.verdicts(), before);
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.verdicts(), before);
    daemon.on_trial(tried);
    daemon.service.revert().unwrap();
    assert_eq!(daemon.verdicts(), before);
    daemon.on_trial(tried);
    daemon.service.confirm().unwrap();
    let after = ["192.0.2.2 Allow", "192.0.2.3 Allow"];
    assert_eq!(daemon.verdicts(), after);
    daemon.later(Duration::from_mins(2));
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.verdicts(), after);
    // Entries on trial when the daemon died are not in force after its start.
    daemon.on_trial("deny: [192.0.2.9]\n");
    let daemon = daemon.restart(&["10.0.0.0/8"]);
    assert_eq!(daemon.verdicts(), after);
}

#[test]
fn nobody_is_locked_out_by_a_file() {
    let mut daemon = Daemon::with_lists("allow: [192.0.2.1]\n");
    daemon.fake.state().own_addresses = vec![("eth0".into(), "198.51.100.9/24".parse().unwrap())];
    let before = daemon.verdicts();
    let peer = "203.0.113.7".parse().unwrap();
    let session = Some(Session { peer, port: None });
    for (lists, words) in [
        (
            "deny: [10.1.2.3]\n",
            "new.yaml:1:8: the entry 10.1.2.3 of the deny list: it is inside \
          the management prefix 10.0.0.0/8",
        ),
        ("deny: [198.51.100.0/24]\n", "it has 198.51.100.9, the own address of eth0, in it"),
        ("deny: [203.0.113.0/24]\n", "would drop your own SSH session from 203.0.113.7"),
        ("deny: [0.0.0.0/0]\n", "is a large part of all addresses"),
    ] {
        let asked = ApplyRules { session, ..apply() };
        let error = daemon.apply_lists(lists, &asked).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(daemon.verdicts(), before);
    }
    // With force, the rest is put in force and reported.
    let lists = "deny: [10.1.2.3, 192.0.2.66]\n";
    daemon.apply_lists(lists, &ApplyRules { force: true, ..apply() }).unwrap();
    assert_eq!(daemon.verdicts(), ["192.0.2.66 Deny"]);
    assert!(
        daemon.all_warnings().contains("not in force: new.yaml:1:8"),
        "{}",
        daemon.all_warnings()
    );
    // A session that the file itself keeps safe is.
    let lists = "allow: [203.0.113.7]\ndeny: [203.0.113.0/24]\n";
    daemon.apply_lists(lists, &ApplyRules { session, ..apply() }).unwrap();
    // And an exemption that goes is noticed.
    let lists = "deny: [203.0.113.0/24]\n";
    daemon.apply_lists(lists, &ApplyRules { session, ..apply() }).unwrap_err();
}

#[test]
fn a_failure_in_the_middle_leaves_the_lists_as_they_were() {
    let mut daemon = Daemon::with_lists(LISTS);
    let before = daemon.verdicts();
    daemon.fake.state().refuse_commits = true;
    daemon.file("deny: [192.0.2.7, 192.0.2.8]\n").unwrap_err();
    assert_eq!(daemon.verdicts(), before);
}

#[test]
fn nobody_else_is_the_rule_file() {
    let mut daemon = Daemon::with_lists("");
    let (sources, by) = (vec!["192.0.2.7".to_owned()], Some("rule file".to_owned()));
    let error = daemon.service.list(&SetList { sources, by, ..SetList::default() }).unwrap_err();
    assert!(error.to_string().contains("stands for the rule files"), "{error}");
}

#[test]
fn an_export_has_the_lists_and_a_comparison_their_differences() {
    let daemon = Daemon::with_lists(LISTS);
    let text = daemon.service.export(ExportRules { edits: false }).unwrap().text;
    let set = rule_files::parse(&[Document { name: "e".into(), text }], 1522).unwrap();
    assert_eq!(set.rules.lists, daemon.service.rule_sets.layers.file.rules.lists);
    let text = format!("allow: [192.0.2.7, 198.51.100.0/24]\ndeny: [192.0.2.9]\n{RULE}");
    let documents = vec![Document { name: "new.yaml".into(), text }];
    let diff = daemon.service.compare(&CompareRules { documents }).unwrap();
    let lines = |lines: &[RuleLine]| {
        lines.iter().map(|line| format!("{}: {}", line.subject, line.text)).collect::<Vec<_>>()
    };
    assert_eq!(lines(&diff.added), ["list entry 192.0.2.9: deny"]);
    assert_eq!(lines(&diff.removed), ["list entry 203.0.113.0/24: deny"]);
    let [changed] = diff.changed.as_slice() else { panic!("{:?}", diff.changed) };
    assert_eq!(changed.old, "allow (monitoring)");
    assert_eq!(changed.new, "allow");
}
