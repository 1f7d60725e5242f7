//! Rules in force in the words of their author.

use std::sync::Arc;

use proptest::sample::subsequence;

use super::round_trip::any_set;
use super::*;
use crate::file::{ExactFile, Others, as_written};
use crate::model::Path;
use crate::{Rule, RuleFiles};

const MAX_FRAME: u64 = 1522;

fn files(documents: &[(&str, &str)]) -> RuleFiles {
    let read = |(name, text): &(&str, &str)| {
        (String::from(*name), RuleFile::parse(name, text.as_bytes(), MAX_FRAME).unwrap())
    };
    RuleFiles::unite(documents.iter().map(read)).unwrap()
}

/// The rule of a file with one.
fn rule(text: &str) -> Arc<Rule> {
    let file = RuleFile::parse("one", text.as_bytes(), MAX_FRAME).unwrap();
    Arc::clone(&file.rules.rules[0])
}

/// All of it, with these rules in place of those on their paths.
fn written(documents: &[(&str, &str)], rules: &[Arc<Rule>]) -> Option<String> {
    let mut others = Others::new();
    for (index, rule) in rules.iter().enumerate() {
        let comments = if index == 0 { vec!["by hand".to_owned()] } else { Vec::new() };
        others.insert(&rule.path, (rule, comments));
    }
    as_written(documents, &files(documents), &others, MAX_FRAME)
}

const FILE: &str = "\
# All of the border.
domain: border

budgets:
  - name: customer  # by contract
    rate_limit: {rate: 1mbit/s, burst: 60kB}

# The rules.
descriptors:
  # Everybody.
  - key: remote_address
    rate_limit: {rate: 1000/s}  # as measured

  # SSH, and the web.
  - key: destination_port
    value: [22, 443]
    descriptors:
      # of each source
      - key: remote_address
        rate_limit: {rate: 10 syns/min, burst: 5}
  - {key: remote_address, value: 198.51.100.0/24, budget: customer}
  # - key: vlan
";

#[test]
fn a_file_that_nobody_changed_is_as_it_was() {
    assert_eq!(written(&[("a", FILE)], &[]).as_deref(), Some(FILE));
    let json = r#"{"descriptors": [{"key": "vlan", "rate_limit": {"rate": "5/s"}}]}"#;
    assert_eq!(written(&[("a", json)], &[]), Some(format!("{json}\n")));
}

#[test]
fn comments_stay_but_those_of_what_changed() {
    let web = "descriptors: [{key: destination_port, value: 443, descriptors: [{key: \
               remote_address, rate_limit: {rate: 5/s}}]}]";
    let one = "descriptors: [{key: remote_address, value: 192.0.2.7, rate_limit: {rate: 10/s, \
               burst: 20}}]";
    let text = written(&[("a", FILE)], &[rule(one), rule(web)]).unwrap();
    let (before, _) = FILE.split_once("  # SSH").unwrap();
    let wanted = format!(
        "{before}  - key: destination_port
    value: 22
    descriptors:
      - key: remote_address
        rate_limit:
          rate: 10 syns/min
          burst: 5
  - {{key: remote_address, value: 198.51.100.0/24, budget: customer}}
  # by hand
  - key: remote_address
    value: 192.0.2.7
    rate_limit:
      rate: 10/s
      burst: 20
  - key: destination_port
    value: 443
    descriptors:
      - key: remote_address
        rate_limit:
          rate: 5/s
  # - key: vlan
"
    );
    assert_eq!(text, wanted);
}

#[test]
fn several_files_are_one() {
    let other = "---\r\n# Others.\r\ndomain: border\r\ndescriptors:\r\n# VLANs\r\n- key: vlan\r\n  \
                 rate_limit: {rate: 5/s}\r\n";
    let text = written(&[("a", FILE), ("b", other)], &[]).unwrap();
    let (_, rules) = text.split_once("# The rules").unwrap();
    assert!(text.contains("# Others.\n") && text.contains("# by contract"), "{text}");
    let end =
        "  # - key: vlan\n  # From b\n  # VLANs\n  - key: vlan\n    rate_limit: {rate: 5/s}\n";
    assert!(rules.ends_with(end), "{text}");
}

/// What cannot be divided is left to be written anew: no text with other rules is made.
#[test]
fn what_is_not_in_blocks_is_not_divided() {
    let one = rule("descriptors: [{key: vlan, rate_limit: {rate: 5/s}}]");
    for text in [
        r#"{"descriptors": [{"key": "remote_address", "rate_limit": {"rate": "5/s"}}]}"#,
        "descriptors: [{key: remote_address, rate_limit: {rate: 5/s}}]",
        "descriptors:\n  - key: remote_address\n    rate_limit: {rate: 5/s}\n...\n",
    ] {
        assert_eq!(written(&[("a", text)], &[Arc::clone(&one)]), None, "{text}");
    }
    // A rule of it stands in its place only with the anchor that another one has.
    let anchored = "descriptors:\n  - {key: vlan, rate_limit: &a {rate: 5/s}}\n  - {key: dscp, \
                    rate_limit: *a}\n";
    assert_eq!(written(&[("a", anchored)], &[Arc::clone(&one)]), None);
    assert!(written(&[("a", "descriptors: []  # none\n")], &[one]).is_some());
}

proptest! {
    /// Whatever the files, their comments and the rules in the place of some: an export is read as
    /// what is in force, and a comment at a rule that stays is in it.
    #[test]
    fn an_export_is_read_as_what_is_in_force(
        set in any_set(),
        new in any_set(),
        replaced in subsequence((0..8usize).collect::<Vec<_>>(), 0..8),
        cut in 0usize..8,
        lone in any::<bool>(),
    ) {
        let mut halves = [ExactFile::default(), ExactFile::default()];
        let head = RuleSet { rules: Vec::new(), ..set.clone() };
        halves[0] = ExactFile::begin("x", Some("all"), &head).unwrap();
        let cut = if lone { usize::MAX } else { cut };
        for (index, rule) in set.rules.iter().enumerate() {
            let half = &mut halves[usize::from(index >= cut)];
            half.rule(rule).unwrap();
        }
        let texts = halves.map(ExactFile::end);
        let comment = |(at, text): (usize, &String)| {
            let mut next = 0;
            let lines = text.lines().flat_map(|line| {
                let first = line.starts_with("  - key").then(|| {
                    next += 1;
                    format!("  # {at}-{next}")
                });
                first.into_iter().chain([line.to_owned()])
            });
            lines.collect::<Vec<_>>().join("\n") + "\n"
        };
        let texts: Vec<_> = texts.iter().enumerate().map(comment).collect();
        let documents = [("a", texts[0].as_str()), ("b", texts[1].as_str())];
        let documents = if lone { &documents[..1] } else { &documents[..] };
        let of_files = files(documents);
        prop_assert_eq!(&of_files.rules, &set);
        let mut rules: Vec<Arc<Rule>> = new.rules;
        for index in replaced {
            if let Some(rule) = set.rules.get(index) {
                let terms = Terms::Unlimited;
                rules.push(Arc::new(Rule { name: None, terms, ..(**rule).clone() }));
            }
        }
        let mut others = Others::new();
        for rule in &rules {
            others.insert(&rule.path, (rule, Vec::new()));
        }
        let text = as_written(documents, &of_files, &others, MAX_FRAME);
        let Some(text) = text else {
            return Err(TestCaseError::fail(format!("not written: {}\n{}", texts[0], texts[1])));
        };
        let stays = |rule: &&Arc<Rule>| !others.contains_key(&rule.path);
        let kept: Vec<&Path> = set.rules.iter().filter(stays).map(|rule| &rule.path).collect();
        let read = RuleFile::parse("e", text.as_bytes(), MAX_FRAME).unwrap();
        let paths: Vec<&Path> = read.rules.rules.iter().map(|rule| &rule.path).collect();
        prop_assert_eq!(&paths[..kept.len()], &kept[..]);
        prop_assert_eq!(paths.len(), kept.len() + others.len());
        let comments = text.lines().filter(|line| line.starts_with("  # ") && line.contains('-'));
        prop_assert_eq!(comments.count(), kept.len());
    }
}

/// Rules for requests stay word for word, whatever becomes of those for packets; several files that
/// have some cannot be one.
#[test]
fn rules_for_requests_stay_word_for_word() {
    let requests = "\
# Log-ins.
requests:
  domain: auth   # as the proxy says
  descriptors:
    # five of them
    - {key: auth_type, value: login, rate_limit: {rate: 5/min}}
";
    let other = rule("descriptors: [{key: remote_address, rate_limit: {rate: 7/s}}]\n");
    for text in [format!("{FILE}{requests}"), format!("{requests}{FILE}")] {
        let text = written(&[("r.yaml", &text)], &[Arc::clone(&other)]).unwrap();
        assert!(text.contains(requests) && text.contains("rate: 7/s"), "{text}");
    }
    let both = format!("descriptors: []\n{requests}");
    let text = written(&[("a.yaml", FILE), ("b.yaml", &both)], &[]).unwrap();
    assert!(text.contains(requests) && text.contains("# SSH, and the web."), "{text}");
    let documents = [("a.yaml", both.as_str()), ("b.yaml", &both)];
    assert_eq!(written(&documents, &[]), None);
    let names = files(&documents).with_requests;
    assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["a.yaml", "b.yaml"]);
}
