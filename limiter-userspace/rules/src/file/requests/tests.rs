//! Files for requests: those of the form of envoyproxy/ratelimit's examples, and mistakes. They are
//! of our own making; the comments say which of its forms they have.

use limiter_common::wire::Evidence;
use limiter_json_schema::valid;
use serde_json::Value;

use super::*;
use crate::model::Ban;

mod queues;

pub(in crate::file) fn parse(text: &str) -> RequestFile {
    let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
    assert!(errors.is_empty(), "{text}\n{errors:?}");
    if whom_for(text) != For::Both {
        accepts(text).unwrap_or_else(|error| panic!("the schema refuses, {error}\n{text}"));
    }
    file
}

pub(in crate::file) fn accepts(text: &str) -> Result<(), String> {
    let document: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let schema = crate::file::schema(Dialect::Requests);
    valid(&schema, &schema, &document)
}

/// The first mistake of a file.
pub(in crate::file) fn error(text: &str) -> String {
    let (_, errors) = RequestFile::check("r.yaml", text.as_bytes());
    errors.first().map_or_else(|| panic!("taken:\n{text}"), ToString::to_string)
}

/// A file with one rule, in line 3.
fn rule(fields: &str) -> String {
    format!("domain: d\ndescriptors:\n  - {{{fields}}}\n")
}

/// A file with one limit.
fn limit(fields: &str) -> String {
    rule(&format!("key: k, rate_limit: {{{fields}}}"))
}

/// Files that are refused with a place and these words.
pub(super) fn refused<T: std::fmt::Debug>(file: impl Fn(&T) -> String, cases: &[(T, &str)]) {
    for (case, part) in cases {
        let error = error(&file(case));
        let is_placed = error.starts_with("r.yaml:") && !error.starts_with("r.yaml: ");
        assert!(is_placed && error.contains(part), "{case:?}\n  got  {error}\n  want {part}");
    }
}

/// The rest is as for packets: `file/tests/sharing.rs`.
#[test]
fn what_nodes_cannot_share_is_refused() {
    let month = "unit: month, algorithm: fixed_window, requests_per_unit: 5";
    refused(
        |limit: &&str| {
            let cluster = "scope: cluster, cluster: {sync: 1s}";
            rule(&format!("key: k, rate_limit: {{{limit}}}, {cluster}"))
        },
        &[
            ("rate: 1000/s, burst: 10", "3:26: a burst of 10 requests is too small for nodes"),
            (
                "rate: 1/s, algorithm: sliding_slots",
                "3:26: sliding_slots cannot be shared by nodes",
            ),
            (month, "\"month\" is not supported: nodes share windows of one length"),
            (
                "rate: 1000/s, ceiling: {rate: 2000/s}",
                "\"ceiling\" is not supported: nodes share hard",
            ),
        ],
    );
}

/// A line for each rule: its path and what it does.
fn lines(file: &RequestFile) -> Vec<String> {
    let limit = |limit: &RequestLimit| {
        let quota = limit.meter.quota();
        let per = limit.calendar.map_or_else(
            || quota.period.to_string(),
            |calendar| format!("{} months", calendar.months),
        );
        format!("{} {}/{per}", limit.meter.algorithm(), quota.requests_per_unit)
    };
    let line = |(path, rule): (Vec<&Level>, &RequestRule)| {
        let path: Vec<String> = path.iter().map(ToString::to_string).collect();
        let terms = match &rule.terms {
            RequestTerms::Unlimited => "unlimited".to_owned(),
            RequestTerms::Block(period) => format!("nothing/{period}"),
            RequestTerms::Limits(limits) => {
                limits.iter().map(|one| limit(&one.written)).collect::<Vec<_>>().join(", ")
            }
        };
        let shadow = if rule.shadow { " shadow" } else { "" };
        let quota = if rule.quota { " quota" } else { "" };
        format!("{}: {terms}{shadow}{quota}", path.join(" "))
    };
    file.rules().into_iter().map(line).collect()
}

const MESSAGING: &str = "
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    rate_limit: {unit: day, requests_per_unit: 5}
";

const AUTH: &str = "
domain: auth
descriptors:
  - key: auth_type
    value: login
    rate_limit: {unit: minute, requests_per_unit: 5}
";

#[test]
fn the_two_files_with_which_texts_on_the_subject_begin_load() {
    let file = parse(MESSAGING);
    assert_eq!(file.domain, "messaging");
    assert_eq!(lines(&file), ["message_type=marketing: token_bucket 5/day"]);
    let file = parse(AUTH);
    assert_eq!(lines(&file), ["auth_type=login: token_bucket 5/min"]);
    // The difference is named.
    let [note] = &file.notes[..] else { panic!("{:?}", file.notes) };
    assert_eq!(note.place.map(|place| place.line), Some(6));
    assert!(note.text.starts_with("one limit is a token bucket: "), "{}", note.text);
    assert_eq!([whom_for(MESSAGING), whom_for(AUTH)], [For::Requests; 2]);
}

#[test]
fn nested_keys_blocks_and_exceptions_load() {
    // README, examples 2, 3, 4 and 5.
    let file = parse(
        "
domain: shop
descriptors:
  - key: mail_kind
    value: offer
    descriptors:
      - key: recipient
        rate_limit: {unit: day, requests_per_unit: 3, algorithm: fixed_window}
  - key: recipient
    rate_limit: {unit: week, requests_per_unit: 40, algorithm: fixed_window}
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 12, algorithm: fixed_window}
  - key: remote_address
    value: 203.0.113.9
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: remote_address
    value: [198.51.100.0/24, '2001:db8::1']
  - key: directory
    rate_limit: {unlimited: true}
",
    );
    assert_eq!(
        lines(&file),
        [
            "mail_kind=offer recipient: fixed_window 3/day",
            "recipient: fixed_window 40/week",
            "remote_address: fixed_window 12/s",
            "remote_address=203.0.113.9/32: nothing/s",
            "directory: unlimited",
        ]
    );
    assert!(file.notes.is_empty(), "{:?}", file.notes);
    let nets: Vec<String> = file.nodes.iter().map(|node| node.level.to_string()).collect();
    assert!(nets.contains(&"remote_address=2001:db8::/64".to_owned()), "{nets:?}");
}

#[test]
fn fields_of_later_versions_load() {
    // README, examples 6 to 11, and the fields of examples/ratelimit/config/example.yaml.
    let file = parse(
        "
domain: gateway
descriptors:
  - key: app
    descriptors:
      - {key: who, value: ann, rate_limit: {requests_per_unit: 10, unit: SECOND}, shadow_mode: true}
      - {key: who, value: bob, rate_limit: {requests_per_unit: 20, unit: second}}
  - key: kind
    value: all
    rate_limit: {name: general, requests_per_unit: 5, unit: minute}
  - key: kind
    value: one
    rate_limit: {replaces: [{name: general}, {name: other}], requests_per_unit: 9, unit: minute}
  - key: plan
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: path
    value: /v1/*/pay
    value_to_metric: true
    share_threshold: true
    rate_limit: {unit: hour, unit_multiplier: 2, requests_per_unit: 7}
  - key: service
    value: [first, second]
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
    metadata: {of: {anything: [1, two]}}
",
    );
    assert_eq!(
        lines(&file),
        [
            "app who=ann: token_bucket 10/s shadow",
            "app who=bob: token_bucket 20/s",
            "kind=all: token_bucket 5/min",
            "kind=one: token_bucket 9/min",
            "plan: token_bucket 10/min",
            "path=/v1/*/pay: token_bucket 7/2hour",
            "service=first: token_bucket 1/min quota",
            "service=second: token_bucket 1/min quota",
        ]
    );
    let rules = file.rules();
    assert_eq!(rules[2].1.name.as_deref(), Some("general"));
    assert_eq!(
        rules[3].1.replaces.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["general", "other"]
    );
    assert_eq!((rules[4].1.metric, rules[3].1.metric), (Metric::All, Metric::Levels));
    assert!(rules[5].0[0].shared && rules[5].0[0].in_metric);
    let notes: Vec<&str> = file.notes.iter().map(|note| note.text.as_str()).collect();
    assert!(notes[0].starts_with("7 limits are token buckets"), "{notes:?}");
    assert!(notes[1].starts_with("`replaces` names \"other\", and no rule"), "{notes:?}");
    assert_eq!(notes[2], "metadata is not part of answers");
}

#[test]
fn the_calendar_loads() {
    let of = |limit: &str| {
        let text = self::limit(&format!("algorithm: fixed_window, requests_per_unit: 5, {limit}"));
        let file = parse(&text);
        let RequestTerms::Limits(limits) = &file.rules()[0].1.terms else { panic!("{text}") };
        let limit = limits[0].written;
        (limit.calendar.map(|of| of.months), limit.meter.quota().period.seconds() / 86_400)
    };
    assert_eq!(of("unit: year"), (Some(12), 366));
    assert_eq!(of("unit: Month, unit_multiplier: 3"), (Some(3), 93));
    assert_eq!(of("unit: week"), (None, 7));
}

/// What reports go with is read, and what they do not go with is refused with a remedy.
#[test]
fn rules_that_are_charged_afterwards() {
    let file = |fields: &str| rule(&format!("key: remote_address, {fields}"));
    let limit = "charge: afterwards, rate_limit: {rate: 100/hour}";
    for beside in [
        "on_full: pass",
        "shadow_mode: true",
        "quota_mode: true",
        "action: {ban: {first: 1min}}",
        "aggregates: [{v4_prefix_mask_len: 24, rate_limit: {rate: 1/s}}]",
    ] {
        assert!(parse(&file(&format!("{limit}, {beside}"))).rules()[0].1.afterwards, "{beside}");
    }
    for limit in [
        "unit: month, algorithm: fixed_window, requests_per_unit: 3",
        "rate: 3/s, algorithm: sliding_log",
        "rate: 3/s, ceiling: {rate: 4/s}",
    ] {
        let text = file(&format!("charge: afterwards, rate_limit: {{{limit}}}"));
        assert!(parse(&text).rules()[0].1.afterwards, "{limit}");
    }
    assert!(!parse(&file("rate_limit: {rate: 1/s}")).rules()[0].1.afterwards);
    let none = "rate_limit: {unit: day, requests_per_unit: 0}";
    refused(
        |fields: &&str| file(&format!("charge: afterwards, {fields}")),
        &[
            ("value: 192.0.2.1", "charge without rate_limit: add a limit"),
            (none, "charge beside requests_per_unit: 0"),
            (
                "scope: cluster, rate_limit: {rate: 100/s}",
                "none can lend more: remove `scope: clust",
            ),
            ("action: {queue: q}, rate_limit: {rate: 1/s}", "charge beside queue"),
        ],
    );
    refused(
        |text: &&str| file(text),
        &[("charge: later, rate_limit: {rate: 1/s}", "charge: \"later\"")],
    );
}

/// Those that packets have, too, are in the tables of `file/tests/fields.rs`.
#[test]
fn mistakes_are_refused_with_their_place_and_a_remedy() {
    refused(
        |text: &&str| (*text).to_owned(),
        &[
            ("", "1:1: domain is missing: name it"),
            ("domain:\ndescriptors: []\n", "1:7: domain has no value: name it"),
            ("domain: d\n", "no rules are in the file"),
            ("domain: d\ndescriptors:\n", "descriptors has no value"),
            ("domain: \"d\n", "2:1: the quotes before this are not closed: close them"),
            (
                "domain: d\nbudgets: [{name: b, scope: cluster}]\n",
                "2:21: \"scope\" is not supported: nodes share the limits of rules, not a budget",
            ),
            (
                "domain: d\ndescriptors:\n  - {key: k, value: a}\n  - {key: k, value: a}\n",
                "4:5: a second descriptor k=a, the first is in line 3: keep one",
            ),
        ],
    );
    let five =
        "key: k, rate_limits: [{rate: 1/s}, {rate: 1/s}, {rate: 1/s}, {rate: 1/s}, {rate: 1/s}]";
    refused(
        |fields: &&str| rule(fields),
        &[
            ("value: x", "3:5: key is missing: name a part of the request"),
            ("key: k", "3:5: rate_limit is missing: write `rate_limit: {rate: 100/s}`"),
            ("key: k, value: ", "value has no value: write one, or remove the line"),
            ("key: k, value: []", "value has no value"),
            ("key: k, valeu: x", "unknown field \"valeu\": did you mean \"value\"?"),
            ("key: k, action: drop, value: x", "action without rate_limit: add a limit"),
            ("key: k, scope: cluster", "scope without rate_limit: add a limit"),
            ("key: k, value: x, share_threshold: true", "share_threshold without a value with `*`"),
            (five, "5 limits: a rule has at most 4"),
            (
                "key: k, direction: out",
                "\"direction\" is not supported: requests have no direction",
            ),
            ("key: k, v6_prefix_mask_len: 48", "\"v6_prefix_mask_len\" is not supported: who asks"),
            ("key: k, slots: 4", "write it inside `rate_limit`, beside its rate: `slots: ...`"),
            (
                "key: k, value: [a, a]",
                "3:5: a second descriptor k=a, the first is in line 3: keep one",
            ),
            ("key: remote_address, value: 192.0.2.1/24", "has host bits set: write 192.0.2.0/24"),
            (
                "key: remote_address, value: '2001:db8::/96'",
                "all addresses of a /64 share a bucket",
            ),
        ],
    );
    refused(
        |fields: &&str| limit(fields),
        &[
            ("rate: 0/s", "to refuse every request, write `unit: second, requests_per_unit: 0`"),
            ("rate: 1mbit/s", "\"bytes\" is not supported: requests are counted"),
            ("rate: 1.5/s", "is not a whole number of requests per second: use a longer unit"),
            ("rate: 1/s, ceiling:", "rate is missing: write one like `rate: 100/s`"),
            ("rate: 1/s, count: bytes", "\"count\" is not supported: requests are counted"),
            (
                "unit: month, requests_per_unit: 1",
                "\"month\" is not supported: a month has no fixed",
            ),
            ("name: x, replaces: [{name: x}], rate: 1/s", "a rule does not replace itself"),
            ("replaces: [{}], rate: 1/s", "name is missing: write the name of the rule"),
            ("rate: 99/s, algorithm: sliding_log", "needs more than the 31 stamps of a log"),
            ("unit: second, requests_per_unit: 0, backlog: 1s", "backlog without leaky_bucket"),
            ("rate: 3/s, ceiling: {rate: 2/s}", "the upper rate 2/s is below the lower one, 3/s"),
            ("rate: 1/s, peak: {rate: 2/s}", "\"peak\" is not supported: a soft limit of requests"),
            (
                "unit: day, requests_per_unit: 0, ceiling: {rate: 2/s}",
                "ceiling beside requests_per",
            ),
        ],
    );
    refused(
        |fields: &&str| limit(&format!("algorithm: fixed_window, requests_per_unit: 1, {fields}")),
        &[
            ("unit: month, unit_multiplier: 5", "1, 2, 3, 4 and 6 months divide a year"),
            ("unit: year, unit_multiplier: 2", "unit_multiplier: \"2\" does not fit"),
            (
                "unit: month, ceiling: {rate: 2/s}",
                "\"ceiling\" is not supported: a month and a year",
            ),
        ],
    );
    refused(
        |list: &&str| format!("domain: d\ncheck: {list}\ndescriptors: []\n"),
        &[
            ("[]", "check has no value: write descriptors"),
            ("[[]]", "check has no value"),
            ("[[{key: a}]]", "header is missing: name the header"),
            ("[[{key: a, value: b, header: c}]]", "header beside value"),
            ("[[{key: a, header: 'X Y'}]]", "\"X Y\" is not supported: a header has letters"),
        ],
    );
}

/// No error about a limit of requests speaks of packets, or of a field that rules for requests do
/// not have.
#[test]
fn errors_about_limits_of_requests_have_words_for_requests() {
    for (fields, wanted) in [
        ("rate: 0/s", "to refuse every request, write"),
        ("rate: 5/s, burst: 0", "burst: \"0\" lets no request pass"),
        ("rate: 5/s, burst: 0k", "a burst of 0 lets no request pass"),
        ("rate: 5/s, burst: 3kB", "the rate counts requests: give a number of requests"),
        ("rate: 5/s, ceiling: {rate: 0/s}", "a rate of 0"),
        ("rate: 5/s, ceiling: {unit: second, requests_per_unit: 0}", "requests_per_unit"),
        ("rate: 1000000000000/s", "faster than can be held"),
        ("rate: 5q/s", "use k, M, G (requests)"),
    ] {
        let error = error(&limit(fields));
        assert!(error.contains(wanted), "{fields}: {error}");
        let foreign = ["packet", "frame", "action: drop", "limiter deny"];
        assert!(!foreign.iter().any(|word| error.contains(word)), "{fields}: {error}");
    }
}

/// A rule whose requests have a source may ban it: by the fields that rules for packets have.
#[test]
fn a_ban_has_the_fields_of_one_by_packets_and_needs_a_source() {
    let minutes = std::time::Duration::from_mins;
    let file = parse(
        "
domain: auth
descriptors:
  - key: auth_type
    value: login
    rate_limit: {rate: 9/s, burst: 9}
    descriptors:
      - key: remote_address
        rate_limit: {rate: 5/min, burst: 5}
        action: {ban: {first: 10min}}
        descriptors:
          - key: user
            rate_limit: {rate: 3/min, burst: 3}
            action: {ban: {first: 1min, longest: 2h, memory: 1day, strikes: 7}}
  - {key: remote_address, value: 192.0.2.0/24, rate_limit: {rate: 1/s}, action: {ban: {}}}
  - {key: remote_address, value: '198.51.*', rate_limit: {rate: 1/s}, action: {ban: {}}}
",
    );
    let bans: Vec<Option<Ban>> = file.rules().iter().map(|(_, rule)| rule.ban).collect();
    let unsaid = Ban { strikes: 1, evidence: Evidence::None, ..Ban::default() };
    let first = Ban { first: minutes(10), ..unsaid };
    let (longest, memory) = (minutes(120), minutes(1440));
    let second = Ban { first: minutes(1), longest, memory, strikes: 7, ..unsaid };
    assert_eq!(bans, [None, Some(first), Some(second), Some(unsaid), Some(unsaid)]);

    let line = "nest the rule, as in `descriptors: [{key: remote_address, rate_limit: {rate: \
                5/min}, action: {ban: {first: 10min}}}]`";
    let other = "remove the field, or write `action: {ban: {first: 10min}}` to ban its source";
    let limit = "rate_limit: {rate: 1/s}";
    let shared = "key: remote_address, value: '10.*', share_threshold: true";
    refused(
        |key: &&str| rule(&format!("{key}, {limit}, action: {{ban: {{}}}}")),
        &[
            ("key: user", line),
            ("key: remote_address, value: unknown", "no address"),
            (shared, "the sources share one limit"),
        ],
    );
    refused(
        |action: &&str| rule(&format!("key: remote_address, {limit}, {action}")),
        &[
            ("action: drop", other),
            ("action: {mark: {dscp: 1}}", other),
            ("action: ban", "ban needs more than its name"),
            ("action:", "action has no value"),
            ("action: {}", "action has no value"),
            ("ban: {}", "write it inside `action`"),
            ("action: {ban: {evidence: none}}", "not supported: who asks knows the source"),
            ("action: {ban: {first: 2days}}", "is shorter than the first ban"),
            ("action: {ban: {strikes: 0}}", "strikes: \"0\" does not fit"),
        ],
    );
}

#[test]
fn all_mistakes_of_a_file_are_found_at_once() {
    let text = "domain: d\ndescriptors:\n  - {key: a}\n  - {value: b}\n  - {key: c, value: x}\n";
    let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!(file.nodes.len(), 1);
}

#[test]
fn lists_inside_lists_end() {
    let list: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let list = list.join(", ");
    let mut inner = "rate_limit: {rate: 1/s}".to_owned();
    for key in ["c", "b", "a"] {
        inner = format!("descriptors: [{{key: {key}, value: [{list}], {inner}}}]");
    }
    let error = error(&format!("domain: d\n{inner}\n"));
    assert!(error.contains("make more than"), "{error}");
}

#[test]
fn one_file_may_hold_both() {
    let text = "
descriptors:
  - {key: remote_address, rate_limit: {rate: 100/s}}
requests:
  domain: auth
  descriptors:
    - {key: auth_type, value: login, rate_limit: {rate: 5/min, burst: 5}}
";
    let packets = crate::RuleFile::parse("r.yaml", text.as_bytes(), 1522).unwrap();
    assert_eq!(packets.rules.rules.len(), 1);
    assert!(packets.domain.is_none());
    assert_eq!(whom_for(text), For::Both);
    let file = parse(text);
    assert_eq!(
        (file.domain.as_str(), lines(&file)),
        ("auth", vec!["auth_type=login: token_bucket 5/min".to_owned()])
    );
    // Each side finds the mistakes of its own.
    assert!(error(&text.replace("value", "valeu")).starts_with("r.yaml:7:"));
    let wrong = text.replace("100/s", "0/s");
    assert!(crate::RuleFile::parse("r.yaml", wrong.as_bytes(), 1522).is_err());
    assert!(RequestFile::check("r.yaml", wrong.as_bytes()).1.is_empty());
}
