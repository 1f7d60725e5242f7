//! Other rule sets: compared, applied, exported.

mod trials;

use limiter_api::lists::{ListName, SetList};
use limiter_api::rules::{ApplyRules, CompareRules, Document, ExportRules, RulesDiff, Session};

use super::*;

pub(super) fn documents(texts: &[&str]) -> Vec<Document> {
    let name = |at: usize| format!("{}.yaml", char::from(b'a' + u8::try_from(at).unwrap()));
    let document = |(at, text): (usize, &&str)| Document { name: name(at), text: (*text).into() };
    texts.iter().enumerate().map(document).collect()
}

/// 100/s for all, and 5/s for one prefix.
const OTHER: &str = "descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 100, burst: 20}
  - key: remote_address
    value: 198.51.100.0/24
    rate_limit: {unit: second, requests_per_unit: 5}
";

impl Daemon {
    fn compare(&self, texts: &[&str]) -> Result<RulesDiff, Refusal> {
        self.service.compare(&CompareRules { documents: documents(texts) })
    }

    fn apply(&mut self, texts: &[&str]) -> Result<Changed, Refusal> {
        self.apply_from(texts, false, None)
    }

    fn apply_from(
        &mut self,
        texts: &[&str],
        force: bool,
        session: Option<Session>,
    ) -> Result<Changed, Refusal> {
        self.service.apply_rules(&ApplyRules {
            documents: documents(texts),
            force,
            confirm_seconds: None,
            session,
        })
    }

    fn export(&self, edits: bool) -> String {
        self.service.export(ExportRules { edits }).unwrap().text
    }

    fn applied(&self) -> bool {
        let applied = self.service.status().unwrap().applied;
        assert_eq!(applied, self.directory.path().join("state/applied.json").exists());
        applied
    }
}

const OTHER_RULES: [&str; 2] = ["every source 100/s file", "198.51.100.0/24 5/s file"];
const FILE_RULES: [&str; 2] = ["every source 100/s file", "192.0.2.0/24 1000/s file"];

/// Rules in the arguments work like those of files: applied rules outlive a restart with the same
/// arguments, and a reload ends them. No report mentions changed files.
#[test]
fn rules_of_the_arguments_are_in_force_as_those_of_files() {
    let Daemon { directory, fake, service, stop } = Daemon::start(&[]);
    drop(service);
    let start = |directory: TempDir, text: &str| {
        let document = Document { name: "--limit".into(), text: text.into() };
        let service =
            Daemon::service_by(RuleSource::Given(document), &directory, &fake, &[], &stop);
        Daemon { directory, fake: fake.clone(), service, stop: Arc::clone(&stop) }
    };
    let mut daemon = start(directory, RULES);
    assert_eq!(daemon.service.status().unwrap().rules_files, ["--limit"]);
    // What is listed names the option, not a file.
    let given = FILE_RULES.map(|rule| rule.replace(" file", " run")).to_vec();
    assert_eq!(daemon.rules(), given);
    let refused = daemon.unset("192.0.2.0/24").unwrap_err().to_string();
    assert!(refused.ends_with("comes from --limit: start without it"), "{refused}");
    daemon.apply(&[OTHER]).unwrap();
    let Daemon { directory, service, .. } = daemon;
    drop(service);
    let mut daemon = start(directory, RULES);
    assert_eq!(daemon.rules(), OTHER_RULES);
    let reloaded = daemon.service.reload().unwrap();
    let said = |words: &String| words.starts_with("the rules are those of --limit, and no file");
    assert!(reloaded.warnings.iter().any(said), "{:?}", reloaded.warnings);
    assert_eq!((daemon.rules(), daemon.applied()), (given, false));
    let Daemon { directory, service, .. } = daemon;
    drop(service);
    let daemon = start(directory, OTHER);
    assert_eq!(daemon.rules(), OTHER_RULES.map(|rule| rule.replace(" file", " run")));
    assert_eq!(daemon.service.status().unwrap().changed_before_start, None);
    // A start with a file after it is no change of files.
    let Daemon { directory, service, .. } = daemon;
    drop(service);
    let file = directory.path().join("r.yaml");
    fs::write(&file, RULES).unwrap();
    let service = Daemon::service_by(RuleSource::Files(vec![file]), &directory, &fake, &[], &stop);
    assert_eq!(service.status().unwrap().changed_before_start, None);
}

#[test]
fn what_would_change_is_reported_and_nothing_does() {
    let mut daemon = Daemon::start(&[]);
    let same = daemon.compare(&[RULES]).unwrap();
    assert!(same.same && same.unchanged == 2, "{same:?}");
    daemon.set("203.0.113.9", "1/s", None).unwrap();
    let text = "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 101, burst: 20}}
  - {key: vlan, budget: slow}
budgets: [{name: slow, rate_limit: {unit: second, requests_per_unit: 9}}]
replies: {unit: second, requests_per_unit: 3}
";
    let diff = daemon.compare(&[text, "descriptors: []\n"]).unwrap();
    assert!(!diff.same);
    let lines = |lines: &[limiter_api::rules::RuleLine]| -> Vec<String> {
        lines.iter().map(|line| format!("{}: {}", line.subject, line.text)).collect()
    };
    assert_eq!(
        lines(&diff.added),
        ["rule for vlan: budget \"slow\"", "budget slow: 9/s burst 9", "replies: 3/s burst 3"]
    );
    assert_eq!(lines(&diff.removed), ["rule for 192.0.2.0/24: 1000/s burst 100; name \"office\""]);
    assert_eq!(diff.changed.len(), 1);
    let changed = &diff.changed[0];
    assert_eq!(
        (changed.subject.as_str(), changed.old.as_str(), changed.new.as_str()),
        ("rule for every source", "100/s burst 20", "101/s burst 20")
    );
    assert_eq!(
        (diff.unchanged, lines(&diff.edits)),
        (0, vec!["rule for 203.0.113.9: 1/s burst 1".into()])
    );
    assert_eq!(daemon.fake.state().commits, 2);

    // A rule set that cannot be in force is not compared.
    let error = daemon.compare(&[&text.replace("budget: slow", "budget: other")]).unwrap_err();
    assert!(
        matches!(&error, Refusal::Invalid(text) if text.starts_with("a.yaml:3:5: ")),
        "{error}"
    );
    let error = daemon.compare(&[OTHER, OTHER]).unwrap_err();
    assert!(error.to_string().contains("b.yaml:2:5: a second rule"), "{error}");
}

#[test]
fn applied_rules_outlive_a_restart_until_a_reload() {
    let mut daemon = Daemon::start(&[]);
    daemon.set("203.0.113.9", "1/s", None).unwrap();
    assert_eq!(daemon.apply(&[OTHER]).unwrap().generation, 3);
    let with_edit = [&OTHER_RULES[..], &["203.0.113.9 1/s cli"]].concat();
    assert_eq!(daemon.rules(), with_edit);
    assert!(daemon.applied());
    let mut daemon = daemon.restart(&[]);
    assert_eq!(daemon.rules(), with_edit);
    assert!(daemon.applied());
    let refusal = daemon.unset("198.51.100.0/24").unwrap_err().to_string();
    assert!(refusal.contains("put in force by `limiter apply` (a.yaml:4:5)"), "{refusal}");
    daemon.unset("203.0.113.9").unwrap();
    daemon.service.reload().unwrap();
    assert_eq!(daemon.rules(), FILE_RULES);
    assert!(!daemon.applied());
    assert_eq!(daemon.restart(&[]).rules(), FILE_RULES);
}

#[test]
fn changed_files_end_applied_rules_for_good() {
    let mut daemon = Daemon::start(&[]);
    daemon.apply(&[OTHER]).unwrap();
    // While the daemon does not run.
    daemon.write(&format!("# changed\n{RULES}"));
    let daemon = daemon.restart(&[]);
    assert_eq!(daemon.rules(), FILE_RULES);
    assert!(!daemon.applied());
    // The applied rules do not come back with the old file.
    daemon.write(RULES);
    let daemon = daemon.restart(&[]);
    assert_eq!(daemon.rules(), FILE_RULES);
}

#[test]
fn files_with_a_mistake_leave_applied_rules() {
    let mut daemon = Daemon::start(&[]);
    daemon.apply(&[OTHER]).unwrap();
    daemon.write("descriptors: [\n");
    assert!(daemon.service.reload().is_err());
    assert_eq!(daemon.rules(), OTHER_RULES);
    assert!(daemon.applied());
}

#[test]
fn names_that_steer_terminals_are_refused_in_what_is_sent() {
    let mut daemon = Daemon::start(&[]);
    for (name, place) in [("b\\x1b[2J", "U+001B"), ("b\\nforged", "U+000A"), ("b\\u202e", "U+202E")]
    {
        let limit = "rate_limit: {unit: second, requests_per_unit: 5}";
        let text = format!(
            "budgets: [{{name: \"{name}\", {limit}}}]\ndescriptors: [{{key: vlan, {limit}}}]\n"
        );
        let refusal = daemon.apply(&[&text]).unwrap_err();
        assert!(matches!(refusal, Refusal::Invalid(_)), "{refusal}");
        let reported = refusal.to_string();
        assert!(
            reported.starts_with("a.yaml:1:18: name: ") && reported.contains(place),
            "{reported}"
        );
        assert!(reported.chars().all(limiter_text::plain::is_plain), "{reported:?}");
        assert!(daemon.compare(&[&text]).is_err());
    }
    assert_eq!(daemon.fake.state().commits, 1);
    assert_eq!(daemon.rules(), FILE_RULES);
}

#[test]
fn a_warning_is_reported_by_the_change_that_brings_it() {
    const FORGEABLE: &str = "descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 100, burst: 20}
    action: {ban: {evidence: none}}
";
    // The other warning is about the start, not about the rules.
    let reported = |daemon: &Daemon| {
        let mut warnings = daemon.service.status().unwrap().warnings;
        warnings.retain(|warning| !warning.contains("no address is safe from the limits"));
        warnings
    };
    let mut daemon = Daemon::start(&[]);
    daemon.write(FORGEABLE);
    let warnings = daemon.service.reload().unwrap().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("bans without evidence"), "{warnings:?}");
    for changed in [
        daemon.set("192.0.2.7", "5/s", None).unwrap(),
        daemon.service.reload().unwrap(),
        daemon.unset("192.0.2.7").unwrap(),
        daemon.apply(&[FORGEABLE]).unwrap(),
    ] {
        assert_eq!(changed.warnings, [""; 0]);
    }
    assert_eq!(reported(&daemon), warnings);
    // The warning is news again once it was gone.
    assert_eq!(daemon.apply(&[OTHER]).unwrap().warnings, [""; 0]);
    assert_eq!(reported(&daemon), [""; 0]);
    assert_eq!(daemon.service.reload().unwrap().warnings, warnings);
    // Warnings of a trial are reported when it begins, and not when it ends.
    daemon.apply(&[OTHER]).unwrap();
    let mut try_out = |seconds| {
        let confirm_seconds = std::num::NonZeroU32::new(seconds);
        daemon.service.apply_rules(&ApplyRules {
            documents: documents(&[FORGEABLE]),
            force: false,
            confirm_seconds,
            session: None,
        })
    };
    assert_eq!(try_out(60).unwrap().warnings, warnings);
    assert_eq!(daemon.service.confirm().unwrap().warnings, [""; 0]);
    // The start is in the log.
    let mut daemon = daemon.restart(&[]);
    assert_eq!(reported(&daemon), warnings);
    assert_eq!(daemon.set("192.0.2.7", "5/s", None).unwrap().warnings, [""; 0]);
}

#[test]
fn an_apply_is_whole_or_not_at_all() {
    let mut daemon = Daemon::start(&[]);
    for text in ["descriptors: [\n", "descriptors: [{key: vlan, budget: nobody}]\n"] {
        assert!(matches!(daemon.apply(&[OTHER, text]), Err(Refusal::Invalid(_))));
    }
    assert!(!daemon.applied());
    assert_eq!(daemon.fake.state().commits, 1);
    // The rename onto a directory fails, for root as well.
    fs::create_dir(daemon.directory.path().join("state/applied.json")).unwrap();
    let refusal = daemon.apply(&[OTHER]).unwrap_err();
    assert!(refusal.to_string().contains("cannot save the state"), "{refusal}");
    assert_eq!(daemon.rules(), FILE_RULES);
    fs::remove_dir(daemon.directory.path().join("state/applied.json")).unwrap();
    daemon.apply(&[OTHER]).unwrap();
    assert_eq!(daemon.rules(), OTHER_RULES);
    // The applied rules do not go when they cannot be forgotten.
    let state = daemon.directory.path().join("state/applied.json");
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    assert!(daemon.service.reload().is_err());
    assert_eq!(daemon.rules(), OTHER_RULES);
    fs::remove_dir(&state).unwrap();
    daemon.service.reload().unwrap();
    assert_eq!(daemon.rules(), FILE_RULES);
}

fn ssh(peer: &str) -> Session {
    Session { peer: peer.parse().unwrap(), port: Some(22) }
}

const KEYED: &str = "descriptors:
  - key: destination_port
    value: PORT
    descriptors:
      - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 5}}
";

#[test]
fn whoever_applies_is_not_limited_by_it() {
    let mut daemon = Daemon::start(&["203.0.113.0/24"]);
    let keyed = |port: &str| KEYED.replace("PORT", port);
    for (text, peer, rule) in [
        (OTHER, "192.0.2.7", Some("rule for every source would")),
        (OTHER, "198.51.100.9", Some("rule for 198.51.100.0/24 would")),
        (OTHER, "2001:db8::9", Some("rule for every source would")),
        (OTHER, "203.0.113.9", None),
        (&keyed("22"), "192.0.2.7", Some("rule for destination_port=22 remote_address would")),
        (&keyed("[443, 80]"), "192.0.2.7", None),
        (&keyed("22"), "203.0.113.9", None),
        (&OTHER.replace("burst: 20}", "burst: 20}\n    shadow_mode: true"), "192.0.2.7", None),
        (
            "descriptors: [{key: protocol, value: udp, rate_limit: {unit: second, \
             requests_per_unit: 5}}]",
            "192.0.2.7",
            None,
        ),
        (
            "descriptors: [{key: protocol, value: tcp, rate_limit: {unit: second, \
             requests_per_unit: 5}}]",
            "192.0.2.7",
            Some("rule for protocol=tcp would"),
        ),
        (
            "descriptors: [{key: generic_key, value: all, rate_limit: {unit: second, \
             requests_per_unit: 5}}]",
            "192.0.2.7",
            Some("rule for every packet would"),
        ),
        // The session is TCP, and what finds the peer's or the router's link address is exempt.
        (
            "descriptors: [{key: icmp_type, rate_limit: {unit: second, requests_per_unit: 5}}]",
            "2001:db8::9",
            None,
        ),
        (
            "descriptors: [{key: icmp_type, value: neighbour-solicitation, rate_limit: {unit: \
             week, requests_per_unit: 1}}]",
            "2001:db8::9",
            None,
        ),
        (
            "descriptors: [{key: vlan, rate_limit: {unit: second, requests_per_unit: 5}}]",
            "192.0.2.7",
            Some("rule for vlan may"),
        ),
        // A more specific rule that holds for all of the session's packets decides.
        (
            "descriptors:
  - {key: masked_remote_address, v4_prefix_mask_len: 24, rate_limit: {unit: second, \
             requests_per_unit: 5}}
  - {key: masked_remote_address, v4_prefix_mask_len: 24, value: 192.0.2.0/24, rate_limit: \
             {unlimited: true}}
",
            "192.0.2.7",
            None,
        ),
        (
            "descriptors: [{key: masked_remote_address, v4_prefix_mask_len: 24, rate_limit: \
             {unit: second, requests_per_unit: 5}}]",
            "2001:db8::9",
            None,
        ),
        (
            "descriptors: [{key: destination_port, value: 22, budget: b}]
budgets: [{name: b, rate_limit: {unit: second, requests_per_unit: 5}}]",
            "192.0.2.7",
            Some("rule for destination_port=22 would"),
        ),
        (
            "descriptors: [{key: destination_port, value: 22, budget: b}]
budgets: [{name: b, rate_limit: {unit: second, requests_per_unit: 5}, shadow_mode: true}]",
            "192.0.2.7",
            None,
        ),
    ] {
        let answer = daemon.apply_from(&[text], false, Some(ssh(peer)));
        match (rule, answer) {
            (None, Ok(_)) => {}
            (Some(rule), Err(Refusal::Conflict(refusal))) => {
                assert!(
                    refusal.starts_with(&format!(
                        "not applied: the {rule} limit your own SSH session from "
                    )),
                    "{refusal}"
                );
                daemon.apply_from(&[text], true, Some(ssh(peer))).unwrap();
            }
            (_, answer) => panic!("{text}\n{peer}: {answer:?}"),
        }
    }
    // Without a session, nobody can be locked out.
    daemon.apply(&[OTHER]).unwrap();
}

#[test]
fn who_is_allowed_for_good_may_apply_anything() {
    let mut daemon = Daemon::start(&[]);
    let mut list = |seconds| {
        let sources = vec!["192.0.2.0/24".to_owned()];
        daemon
            .service
            .list(&SetList { list: ListName::Allow, sources, seconds, ..SetList::default() })
            .unwrap();
        daemon.apply_from(&[OTHER], false, Some(ssh("192.0.2.7")))
    };
    assert!(matches!(list(Some(60)), Err(Refusal::Conflict(_))));
    list(None).unwrap();
}

#[test]
fn rules_inside_a_management_prefix_are_not_applied_unasked() {
    let mut daemon = Daemon::start(&["198.51.0.0/16"]);
    let refusal = daemon.apply(&[OTHER]).unwrap_err().to_string();
    assert!(
        refusal.starts_with(
            "not applied: the rule for 198.51.100.0/24 is inside the management prefix \
             198.51.0.0/16"
        ),
        "{refusal}"
    );
    let changed = daemon.apply_from(&[OTHER], true, None).unwrap();
    assert_eq!(changed.warnings.len(), 1, "{changed:?}");
    assert_eq!(daemon.rules(), ["every source 100/s file", "198.51.0.0/16 unlimited management"]);
    let keyed = KEYED
        .replace("PORT", "80")
        .replace("remote_address,", "remote_address, value: 198.51.100.7,");
    let refusal = daemon.apply(&[&keyed]).unwrap_err().to_string();
    assert!(refusal.contains("destination_port=80 remote_address=198.51.100.7"), "{refusal}");
}

#[test]
fn an_export_is_what_is_in_force() {
    let mut daemon = Daemon::start(&["203.0.113.0/24"]);
    daemon.set("192.0.2.0/24", "8kbit/s", None).unwrap();
    daemon.set("198.51.100.1", "5/day", None).unwrap();
    let before = daemon.rules();
    let exported = daemon.export(false);
    daemon.unset("192.0.2.0/24").unwrap();
    daemon.unset("198.51.100.1").unwrap();
    daemon.apply(&[&exported]).unwrap();
    let file: Vec<_> = before.iter().map(|rule| rule.replace(" cli", " file")).collect();
    assert_eq!(daemon.rules(), file);
    assert!(daemon.compare(&[&daemon.export(false)]).unwrap().same);
    assert_eq!(daemon.export(true), "descriptors: []\n");
    daemon.set("198.51.100.2", "7/s", None).unwrap();
    let edits = daemon.compare(&[&daemon.export(true)]).unwrap();
    let added: Vec<_> = edits.added.iter().map(|line| line.subject.as_str()).collect();
    assert_eq!(added, ["rule for 198.51.100.2"]);
    // The burst of 1,522 bytes is written out: it holds beside any interface.
    assert!(exported.contains("      rate: 8kbit/s\n      burst: 1522\n"), "{exported}");
}

/// An export has the author's text of the rules in force: not that of the files on disk, and not
/// that of a rule replaced by `limiter set`.
#[test]
fn an_export_has_the_words_of_the_author() {
    let mut daemon = Daemon::start(&[]);
    let file = "\
# The office.
descriptors:
  - key: remote_address  # everybody
    rate_limit: {rate: 100/s, burst: 20}

  # as agreed
  - key: remote_address
    value: 192.0.2.0/24
    rate_limit: {rate: 2mbit/s}  # a day's mean
";
    daemon.write(file);
    daemon.service.reload().unwrap();
    assert_eq!(daemon.export(false), file);
    // Files saved since then are not in force, and a restart reads the applied rules from their own
    // file.
    daemon.write("descriptors: []\n");
    assert_eq!(daemon.export(false), file);
    daemon.write(file);
    daemon.apply(&[&format!("# applied\n{file}")]).unwrap();
    let mut daemon = daemon.restart(&[]);
    assert_eq!(daemon.export(false), format!("# applied\n{file}"));
    daemon.set("192.0.2.0/24", "5/min", None).unwrap();
    let (kept, _) = file.split_once("  # as agreed").unwrap();
    let set = "
  - key: remote_address
    value: 192.0.2.0/24
    rate_limit:
      rate: 5/min
";
    let kept = kept.trim_end();
    let exported = daemon.export(false);
    assert_eq!(exported, format!("# applied\n{kept}\n  # By `limiter set`:{set}"));
    assert_eq!(daemon.export(true), format!("descriptors:{set}"));
    daemon.unset("192.0.2.0/24").unwrap();
    assert_eq!(daemon.export(false), format!("# applied\n{file}"));
    let (source, rate, seconds) = (Some("192.0.2.7".into()), "5/min".into(), Some(3600));
    let for_an_hour = SetLimit { source, seconds, rate, ..SetLimit::default() };
    daemon.service.set(&for_an_hour).unwrap();
    let exported = daemon.export(false);
    assert!(exported.contains("  # For a time: `limiter set` ends it at 2"), "{exported}");
    // Files without blocks, and large files, are rewritten, and the answer says so.
    let json = r#"{"descriptors": [{"key": "vlan", "rate_limit": {"rate": "5/s"}}]}"#;
    daemon.apply(&[json]).unwrap();
    assert!(daemon.export(false).starts_with("# The rule files could not be joined"));
    let large = format!("# {}\n{file}", "x".repeat(1 << 20));
    daemon.apply(&[&large]).unwrap();
    assert!(daemon.export(false).starts_with("# The rule files are large: without"));
    assert!(daemon.compare(&[&large]).unwrap().same);
}

/// Rules for requests are exported as written, or the answer names the files whose rules are left
/// out.
#[test]
fn an_export_has_the_rules_for_requests_or_says_whose_are_left_out() {
    let mut daemon = Daemon::start(&[]);
    let requests = "requests:
  domain: auth  # of the shop
  descriptors: [{key: auth_type, value: login, rate_limit: {rate: 5/min}}]
";
    let file = format!(
        "descriptors:\n  - {{key: remote_address, rate_limit: {{rate: 100/s}}}}\n{requests}"
    );
    let without = |daemon: &Daemon, edits| {
        let exported = daemon.service.export(ExportRules { edits }).unwrap();
        assert_eq!(exported.text.contains("requests:"), exported.text.contains(requests));
        (exported.text.contains(requests), exported.without_requests_of)
    };
    daemon.write(&file);
    daemon.service.reload().unwrap();
    assert_eq!(without(&daemon, false), (true, vec![]));
    daemon.set("192.0.2.0/24", "5/min", None).unwrap();
    assert_eq!(without(&daemon, false), (true, vec![]));
    assert_eq!(without(&daemon, true), (false, vec![]));
    let name = daemon.directory.path().join("r.yaml").display().to_string();
    // Large, and not in blocks.
    let large = format!("# {}\n{file}", "x".repeat(1 << 20));
    let json = r#"{"descriptors": [{"key": "remote_address", "rate_limit": {"rate": "9/s"}}],
        "requests": {"domain": "d", "descriptors": []}}"#;
    for text in [&large, json] {
        daemon.write(text);
        daemon.service.reload().unwrap();
        assert_eq!(without(&daemon, false), (false, vec![name.clone()]));
    }
}

const GOES_ON: &str = "a limit that a source has used up refills at the new rate";

const HAS_DIFFERENCE: &str = "a source that used up a raised limit gets the difference at once";

/// The answer says what becomes of a source that has used its limit up, and it does: the packets
/// that pass then, of a hundred.
#[test]
fn what_becomes_of_those_who_have_used_theirs_is_said_and_so() {
    let rules =
        |limit: &str| format!("descriptors: [{{key: remote_address, rate_limit: {{{limit}}}}}]");
    let window = |rate: &str| format!("rate: {rate}, algorithm: fixed_window");
    let log = |rate: &str| format!("rate: {rate}, algorithm: sliding_log");
    let plain = |rate: &str| format!("rate: {rate}");
    let wait = "a source that used more than a limit now allows waits \
                until the window has passed, at most 7 d";
    let anew = "where a limit moved to another table, every source starts with all of it";
    let left = "where the algorithm or the window changed, the available amount carries over";
    let cases = [
        (plain("10/week"), plain("20/week"), Some(HAS_DIFFERENCE), 10),
        (plain("20/week"), plain("10/week"), Some(GOES_ON), 0),
        (plain("20/week"), plain("10/day"), Some(GOES_ON), 0),
        (plain("10/week"), plain("20/week, burst: 10"), Some(GOES_ON), 0),
        (window("10/week"), window("20/week"), Some(HAS_DIFFERENCE), 10),
        (window("20/week"), window("10/week"), Some(wait), 0),
        (log("10/week"), log("12/week"), Some(HAS_DIFFERENCE), 2),
        (window("10/week"), window("20/day"), Some(left), 0),
        (window("10/week"), log("20/week"), Some(left), 0),
        (window("10/week"), plain("12/week"), Some(anew), 12),
        (plain("10/week"), window("12/week"), Some(anew), 12),
        (plain("10/week"), plain("10/week, name: other"), None, 0),
    ];
    let source = Source::V4([203, 0, 113, 9]);
    for (before, after, said, passes) in cases {
        let mut daemon = Daemon::start(&[]);
        daemon.apply(&["descriptors: []\n"]).unwrap();
        daemon.apply(&[&rules(&before)]).unwrap();
        let passed = |daemon: &Daemon| {
            daemon.fake.send(source, 100, 60);
            daemon.service.source("203.0.113.9").unwrap().passed
        };
        let had = passed(&daemon);
        let changed = daemon.apply(&[&rules(&after)]).unwrap();
        assert_eq!(changed.used.as_deref(), said, "{before} to {after}");
        let whole = if before.starts_with("rate: 20") { 20 } else { 10 };
        assert_eq!(had, whole, "{before}");
        // A bucket in another table begins with other counts.
        let has = passed(&daemon);
        let more = if said == Some(anew) { has } else { has - had };
        assert_eq!(more, passes, "{before} to {after}");
        // Once only.
        assert_eq!(daemon.apply(&[&rules(&after)]).unwrap().used, None);
    }
}

/// The same holds for a limit on one address above the limit for all, and for a trial.
#[test]
fn a_limit_that_is_set_and_a_trial_say_what_becomes_of_those_who_have_used_theirs() {
    let mut daemon = Daemon::start(&[]);
    // No packet came yet, so there is nothing to report.
    for rate in ["200/s", "100/s"] {
        assert_eq!(daemon.set("203.0.113.9", rate, None).unwrap().used, None);
        assert_eq!(daemon.set("192.0.2.0/24", rate, None).unwrap().used, None);
    }
    daemon.unset("203.0.113.9").unwrap();
    daemon.unset("192.0.2.0/24").unwrap();
    for source in [[203, 0, 113, 9], [192, 0, 2, 7]] {
        daemon.fake.send(Source::V4(source), 1, 60);
    }
    // A rule of its own takes the address over from the rule for all.
    let raised = daemon.set("203.0.113.9", "200/s", None).unwrap();
    assert_eq!(raised.used.as_deref(), Some(GOES_ON));
    let cut = daemon.unset("203.0.113.9").unwrap();
    assert_eq!(cut.used.as_deref(), Some(GOES_ON));
    let new = daemon.set("2001:db8::/64", "unlimited", None).unwrap();
    assert_eq!(new.used, None, "nothing is used of what has no limit");
    daemon.unset("2001:db8::/64").unwrap();
    let trial = ApplyRules {
        documents: documents(&[&RULES.replace("1000, burst: 100", "1000, burst: 300")]),
        force: false,
        confirm_seconds: std::num::NonZeroU32::new(60),
        session: None,
    };
    let tried = daemon.service.apply_rules(&trial).unwrap();
    assert_eq!(tried.used.as_deref(), Some(GOES_ON));
    daemon.fake.send(Source::V4([192, 0, 2, 7]), 1, 60);
    let back = daemon.service.revert().unwrap();
    assert_eq!(back.used.as_deref(), Some(GOES_ON));
    // An unchanged limit reports nothing new.
    daemon.service.apply_rules(&trial).unwrap();
    assert_eq!(daemon.service.confirm().unwrap().used, None);
}

/// A smaller limit on trial leaves as much as the previous limit would have left, if it is taken
/// back. If it is confirmed, no source owes more than the limit allows.
#[test]
fn a_smaller_limit_on_trial_says_that_what_was_used_counts_in_full() {
    let mut daemon = Daemon::start(&[]);
    let rules = |rate: &str| {
        format!("descriptors: [{{key: remote_address, rate_limit: {{rate: {rate}}}}}]")
    };
    daemon.apply(&[&rules("1000/week")]).unwrap();
    let source = Source::V4([203, 0, 113, 9]);
    let passed = |daemon: &Daemon, packets| {
        daemon.fake.send(source, packets, 60);
        daemon.service.source("203.0.113.9").unwrap().passed
    };
    assert_eq!(passed(&daemon, 5), 5);
    let trial = ApplyRules {
        documents: documents(&[&rules("10/week")]),
        force: false,
        confirm_seconds: std::num::NonZeroU32::new(60),
        session: None,
    };
    let tried = daemon.service.apply_rules(&trial).unwrap().used.unwrap();
    assert!(tried.starts_with("on trial, what a source has used of a limit counts in full"));
    assert_eq!(passed(&daemon, 1), 6);
    let back = daemon.service.revert().unwrap().used;
    assert_eq!(
        back.as_deref(),
        Some("a source has what the limit before the trial would have left")
    );
    assert_eq!(passed(&daemon, 1_100), 1_000);
    daemon.service.apply_rules(&trial).unwrap();
    assert_eq!(passed(&daemon, 1), 1_000);
    assert_eq!(daemon.service.confirm().unwrap().used.as_deref(), Some(GOES_ON));
    assert!(!daemon.fake.state().installed().has_cuts_on_trial());
}
