//! Files for requests: those of the form of envoyproxy/ratelimit's examples, and mistakes. They are
//! of our own making; the comments say which of its forms they have.

use limiter_common::wire::Evidence;
use limiter_json_schema::valid;
use limiter_sharing::OnPartition;
use serde_json::Value;

use super::*;
use crate::model::{Ban, Meter, Sharing};

mod queues;

fn parse(text: &str) -> RequestFile {
    let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
    assert!(errors.is_empty(), "{text}\n{errors:?}");
    if whom_for(text) != For::Both {
        accepts(text).unwrap_or_else(|error| panic!("the schema refuses, {error}\n{text}"));
    }
    file
}

fn accepts(text: &str) -> Result<(), String> {
    let document: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let schema = crate::file::schema(Dialect::Requests);
    valid(&schema, &schema, &document)
}

fn repository(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn a_rule_is_shared_by_nodes_as_one_for_packets_is() {
    let file = |fields: &str| {
        let text =
            format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{rate: 5/min}}{fields}}}]");
        let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
        assert!(errors.is_empty(), "{text}: {errors:?}");
        file.rules()[0].1.sharing.as_deref().copied()
    };
    assert_eq!(file(""), None);
    assert_eq!(file(", scope: node"), None);
    assert_eq!(file(", scope: cluster"), Some(Sharing::default()));
    let open = Sharing { on_partition: OnPartition::Open, ..Sharing::default() };
    // By key, too: without contact alone a key has the whole limit.
    assert_eq!(file(", scope: cluster, cluster: {on_partition: open}"), Some(open));
}

#[test]
fn what_nodes_cannot_share_is_refused() {
    let refused = |fields: &str| {
        let text = format!("domain: d\ndescriptors:\n  - {{key: k, rate_limit: {{{fields}\n");
        let (_, errors) = RequestFile::check("r.yaml", text.as_bytes());
        errors.first().map_or_else(String::new, ToString::to_string)
    };
    let cluster = ", scope: cluster, cluster: {sync: 1s}}";
    for (fields, error) in [
        ("rate: 1000/s}, cluster: {sync: 1s}}".to_owned(), "cluster without `scope: cluster`"),
        (format!("unlimited: true}}{cluster}"), "scope beside unlimited"),
        (
            format!("rate: 1000/s, burst: 10}}{cluster}"),
            "3:26: a burst of 10 requests is too small for nodes to share",
        ),
        (
            format!("rate: 1/s, algorithm: sliding_slots}}{cluster}"),
            "3:26: sliding_slots cannot be shared by nodes",
        ),
        (
            format!("unit: month, algorithm: fixed_window, requests_per_unit: 5}}{cluster}"),
            "\"month\" is not supported: nodes share windows of one length",
        ),
    ] {
        let got = refused(&fields);
        assert!(got.starts_with("r.yaml:") && got.contains(error), "{fields}: {got}");
    }
}

/// What an editor marks is wrong: the reader refuses it, too.
#[test]
fn what_the_schema_for_requests_refuses_the_checks_refuse() {
    let rule = |fields: &str| format!("domain: d\ndescriptors: [{{{fields}}}]\n");
    for text in [
        "domain: d\n".to_owned(),
        "descriptors: []\n".to_owned(),
        "domain: d\ncheck: []\ndescriptors: []\n".to_owned(),
        "domain: d\ncheck: [[{key: a, value: b, header: c}]]\ndescriptors: []\n".to_owned(),
        rule("value: x"),
        rule("key: k"),
        rule("key: k, rate_limit: {rate: 1/s}, action: drop"),
        rule("key: remote_address, rate_limit: {rate: 1/s}, action: {ban: {evidence: none}}"),
        rule("key: remote_address, rate_limit: {rate: 1/s}, action: {ban: {strikes: 0}}"),
        rule("key: k, rate_limit: {rate: 1/s}, rate_limits: [{rate: 1/s}]"),
        rule("key: k, rate_limit: {unlimited: true, unit: day}"),
        rule("key: k, rate_limit: {unit: fortnight, requests_per_unit: 1}"),
        rule("key: k, rate_limit: {unit: day}"),
        rule("key: k, rate_limit: {replaces: [{}], rate: 1/s}"),
        rule("key: k, value: [], rate_limit: {rate: 1/s}"),
        rule("key: k, rate_limit: {rate: 1/s}, action: {}"),
        rule("key: k, rate_limit: {rate: 1/s}, action: {queue: q, ban: {first: 1min}}"),
        "domain: d\nqueues: []\ndescriptors: []\n".to_owned(),
        "domain: d\nqueues: [{depth: 1}]\ndescriptors: []\n".to_owned(),
        "domain: d\nqueues: [{name: q, depth: 0}]\ndescriptors: []\n".to_owned(),
        "domain: d\nqueues: [{name: q, attempts: 1001}]\ndescriptors: []\n".to_owned(),
    ] {
        assert!(accepts(&text).is_err(), "the schema takes\n{text}");
        let (_, errors) = RequestFile::check("r.yaml", text.as_bytes());
        assert!(!errors.is_empty(), "the checks take\n{text}");
    }
}

/// The files of the pages, word for word.
#[test]
fn the_documented_files_for_requests_load() {
    let blocks = |page: &str| -> Vec<String> {
        let text = std::fs::read_to_string(repository(page)).unwrap();
        let begun = text.split("```yaml\n").skip(1);
        begun.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
    };
    let mut of_page = blocks("docs/requests.md");
    of_page.extend(blocks("docs/requests-reference.md"));
    of_page.extend(blocks("docs/behind-a-proxy.md"));
    assert!(of_page.len() >= 4, "{of_page:?}");
    // Those of Envoy's own configuration are for Envoy.
    for block in of_page.iter().filter(|block| !block.contains("envoy.")) {
        parse(block);
    }
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
fn every_algorithm_and_the_calendar_load() {
    let of = |limit: &str| {
        let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]\n");
        let file = parse(&text);
        let [(_, rule)] = &file.rules()[..] else { panic!("{text}") };
        let RequestTerms::Limits(limits) = &rule.terms else { panic!("{text}") };
        limits[0].written
    };
    for (text, algorithm) in [
        ("rate: 10/s", "token_bucket"),
        ("rate: 10/s, burst: 30", "token_bucket"),
        ("rate: 10/s, algorithm: leaky_bucket, backlog: 2s", "leaky_bucket"),
        ("rate: 10/s, algorithm: fixed_window", "fixed_window"),
        ("rate: 10/s, algorithm: sliding_log", "sliding_log"),
        ("rate: 10/s, algorithm: sliding_counter", "sliding_counter"),
        ("rate: 10/s, algorithm: sliding_slots, slots: 8, strict: true", "sliding_slots"),
    ] {
        assert_eq!(of(text).meter.algorithm(), algorithm, "{text}");
        assert_eq!(of(text).calendar, None);
    }
    let fixed = "algorithm: fixed_window, requests_per_unit: 5";
    let year = of(&format!("unit: year, {fixed}"));
    assert_eq!(year.calendar, Some(Calendar { months: 12 }));
    let Meter::FixedWindow(quota) = year.meter else { panic!("{year:?}") };
    assert_eq!(quota.period.seconds(), 366 * 86_400);
    let quarter = of(&format!("unit: Month, unit_multiplier: 3, {fixed}"));
    assert_eq!(quarter.calendar, Some(Calendar { months: 3 }));
}

/// What reports go with is read, and what they do not go with is refused with a remedy.
#[test]
fn rules_that_are_charged_afterwards() {
    let file =
        |fields: &str| format!("domain: d\ndescriptors: [{{key: remote_address, {fields}}}]\n");
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
    for (fields, wanted) in [
        ("charge: later, rate_limit: {rate: 1/s}", "charge: \"later\""),
        ("charge: afterwards, value: 192.0.2.1", "charge without rate_limit: add a limit"),
        ("charge: afterwards, rate_limit: {unlimited: true}", "charge"),
        (
            "charge: afterwards, rate_limit: {unit: day, requests_per_unit: 0}",
            "charge beside requests_per_unit: 0",
        ),
        (
            "charge: afterwards, scope: cluster, rate_limit: {rate: 100/s}",
            "nodes lease what may pass, and none can lend more: remove `scope: cluster`",
        ),
        ("charge: afterwards, action: {queue: q}, rate_limit: {rate: 1/s}", "charge beside queue"),
    ] {
        let text = file(fields);
        let (_, errors) = RequestFile::check("r.yaml", text.as_bytes());
        let error = errors.first().map_or_else(|| panic!("{fields}"), ToString::to_string);
        assert!(error.contains(wanted), "{fields}: {error}");
    }
}

#[test]
fn mistakes_are_refused_with_their_place_and_a_remedy() {
    let rule = |fields: &str| format!("domain: d\ndescriptors:\n  - {{{fields}}}\n");
    let limit = |fields: &str| rule(&format!("key: k, rate_limit: {{{fields}}}"));
    let check = |list: &str| format!("domain: d\ncheck: {list}\ndescriptors: []\n");
    let cases = [
        (String::new(), "1:1: domain is missing: name it"),
        ("domain:\ndescriptors: []\n".into(), "1:7: domain has no value: name it"),
        ("domain: d\n".into(), "no rules are in the file"),
        ("domain: d\ndescriptors:\n".into(), "descriptors has no value"),
        (rule("value: x"), "3:5: key is missing: name a part of the request"),
        (rule("key: k"), "3:5: rate_limit is missing: write `rate_limit: {rate: 100/s}`"),
        (rule("key: k, value: "), "value has no value: write one, or remove the line"),
        (rule("key: k, value: []"), "value has no value"),
        (rule("key: k, valeu: x"), "unknown field \"valeu\": did you mean \"value\"?"),
        (rule("key: k, action: drop, value: x"), "action without rate_limit: add a limit"),
        (rule("key: k, scope: cluster"), "scope without rate_limit: add a limit"),
        (
            rule("key: k, shadow_mode: true, value: x"),
            "shadow_mode without rate_limit: add a limit",
        ),
        (
            rule("key: k, value: x, share_threshold: true"),
            "share_threshold without a value with `*`",
        ),
        (
            rule("key: k, rate_limit: {rate: 1/s}, rate_limits: [{rate: 1/s}]"),
            "rate_limits beside rate_limit: remove one of the two",
        ),
        (rule("key: k, rate_limits: []"), "rate_limits has no value: give one to four limits"),
        (
            rule(
                "key: k, rate_limits: [{rate: 1/s}, {rate: 1/s}, {rate: 1/s}, {rate: 1/s}, {rate: 1/s}]",
            ),
            "5 limits: a rule has at most 4",
        ),
        (
            rule("key: k, rate_limits: [{rate: 1/s}, {name: x, rate: 1/s}]"),
            "\"name\" is not supported: a rule has one",
        ),
        (
            rule("key: k, rate_limit: {unlimited: true}, quota_mode: true"),
            "quota_mode beside unlimited",
        ),
        (limit("unit: second"), "requests_per_unit is missing: write a number"),
        (limit("unit: fortnight, requests_per_unit: 1"), "unit: \"fortnight\" is not known"),
        (limit("unlimited: true, unit: day"), "unit beside unlimited: remove one of the two"),
        (limit("rate: 0/s"), "to refuse every request, write `unit: second, requests_per_unit: 0`"),
        (limit("rate: 1mbit/s"), "\"bytes\" is not supported: requests are counted"),
        (limit("rate: 1.5/s"), "is not a whole number of requests per second: use a longer unit"),
        (limit("rate: 1/s, ceiling:"), "rate is missing: write one like `rate: 100/s`"),
        // Fields of rules for packets, and what belongs to a rule of requests, but not to a budget.
        (
            rule("key: k, direction: out"),
            "\"direction\" is not supported: requests have no direction",
        ),
        (
            rule("key: k, v6_prefix_mask_len: 48"),
            "\"v6_prefix_mask_len\" is not supported: who asks",
        ),
        (rule("key: k, slots: 4"), "write it inside `rate_limit`, beside its rate: `slots: ...`"),
        (
            "domain: d\nbudgets: [{name: b, scope: cluster}]\n".into(),
            "2:21: \"scope\" is not supported: nodes share the limits of rules, not a budget",
        ),
        (limit("rate: 1/s, count: bytes"), "\"count\" is not supported: requests are counted"),
        (
            limit("unit: month, requests_per_unit: 1"),
            "\"month\" is not supported: a month has no fixed",
        ),
        (
            limit("unit: month, unit_multiplier: 5, algorithm: fixed_window, requests_per_unit: 1"),
            "\"5 months\" is not supported: 1, 2, 3, 4 and 6 months divide a year",
        ),
        (
            limit("unit: year, unit_multiplier: 2, algorithm: fixed_window, requests_per_unit: 1"),
            "unit_multiplier: \"2\" does not fit",
        ),
        (limit("name: x, replaces: [{name: x}], rate: 1/s"), "a rule does not replace itself"),
        (limit("replaces: [{}], rate: 1/s"), "name is missing: write the name of the rule"),
        (limit("rate: 99/s, algorithm: sliding_log"), "needs more than the 31 stamps of a log"),
        (limit("unit: second, requests_per_unit: 0, backlog: 1s"), "backlog without leaky_bucket"),
        (
            "domain: d\ndescriptors:\n  - {key: k, value: [a, a]}\n".into(),
            "3:5: a second descriptor k=a, the first is in line 3: keep one",
        ),
        (
            "domain: d\ndescriptors:\n  - {key: k, value: a}\n  - {key: k, value: a}\n".into(),
            "4:5: a second descriptor k=a, the first is in line 3: keep one",
        ),
        (rule("key: remote_address, value: 192.0.2.1/24"), "has host bits set: write 192.0.2.0/24"),
        (
            rule("key: remote_address, value: '2001:db8::/96'"),
            "all addresses of a /64 share a bucket",
        ),
        (check("[]"), "check has no value: write descriptors"),
        (check("[[]]"), "check has no value"),
        (check("[[{key: a}]]"), "header is missing: name the header"),
        (check("[[{key: a, value: b, header: c}]]"), "header beside value"),
        (check("[[{key: a, header: 'X Y'}]]"), "\"X Y\" is not supported: a header has letters"),
        ("domain: \"d\n".into(), "2:1: the quotes before this are not closed: close them"),
    ];
    let mut wrong = Vec::new();
    for (text, part) in cases {
        let (_, errors) = RequestFile::check("r.yaml", text.as_bytes());
        let first = errors.first().map_or_else(String::new, ToString::to_string);
        if !first.starts_with("r.yaml:") || !first.contains(part) {
            wrong.push(format!("{text}\n  got  {first}\n  want {part}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
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
    for (fields, part) in [
        ("key: user, rate_limit: {rate: 1/s}, action: {ban: {}}", line),
        (
            "key: remote_address, value: unknown, rate_limit: {rate: 1/s}, action: {ban: {}}",
            "no address",
        ),
        (
            "key: remote_address, value: '10.*', share_threshold: true, rate_limit: {rate: 1/s}, \
             action: {ban: {}}",
            "the sources share one limit",
        ),
        ("key: remote_address, rate_limit: {unlimited: true}, action: {ban: {}}", "action beside"),
        ("key: remote_address, rate_limit: {rate: 1/s}, action: drop", other),
        ("key: remote_address, rate_limit: {rate: 1/s}, action: {mark: {dscp: 1}}", other),
        (
            "key: remote_address, rate_limit: {rate: 1/s}, action: ban",
            "ban needs more than its name",
        ),
        ("key: remote_address, rate_limit: {rate: 1/s}, action:", "action has no value"),
        ("key: remote_address, rate_limit: {rate: 1/s}, action: {}", "action has no value"),
        ("key: remote_address, rate_limit: {rate: 1/s}, ban: {}", "write it inside `action`"),
        (
            "key: remote_address, rate_limit: {rate: 1/s}, action: {ban: {evidence: none}}",
            "\"evidence\" is not supported: who asks knows the source",
        ),
        (
            "key: remote_address, rate_limit: {rate: 1/s}, action: {ban: {first: 2days}}",
            "is shorter than the first ban",
        ),
        (
            "key: remote_address, rate_limit: {rate: 1/s}, action: {ban: {strikes: 0}}",
            "strikes: \"0\" does not fit",
        ),
    ] {
        let text = format!("domain: d\ndescriptors:\n  - {{{fields}}}\n");
        let (_, errors) = RequestFile::check("r.yaml", text.as_bytes());
        let [error] = &errors[..] else { panic!("{text}: {errors:?}") };
        let error = error.to_string();
        assert!(error.starts_with("r.yaml:3:") && error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_check_that_meets_no_rule_is_reported() {
    let notes = |check: &str| {
        let text = format!(
            "domain: d\ncheck: [{check}]\ndescriptors:\n  - key: form\n    value: login\n    \
             descriptors: [{{key: remote_address, rate_limit: {{rate: 2/min, burst: 2}}}}]\n"
        );
        parse(&text).notes.into_iter().map(|note| note.text).collect::<Vec<_>>()
    };
    let login = "{key: form, value: login}";
    assert!(notes(&format!("[{login}, {{key: remote_address, header: x}}]")).is_empty());
    assert!(notes("[{key: form, header: y}, {key: remote_address, header: x}]").is_empty());
    for (check, keys) in [
        (format!("[{login}, {{key: remote_adress, header: x}}]"), "form remote_adress"),
        ("[{key: form, value: log-in}, {key: remote_address, header: x}]".to_owned(), "form"),
        ("[{key: remote_address, header: x}]".to_owned(), "remote_address"),
    ] {
        let notes = notes(&check);
        let (of_check, of_rule) = notes.split_first().unwrap();
        assert!(of_check.contains(keys), "{notes:?}");
        let [of_rule] = of_rule else { panic!("{notes:?}") };
        assert!(
            of_rule.starts_with("no check meets the rule `form=login remote_address`"),
            "{of_rule}"
        );
    }
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
    let (_, errors) = RequestFile::check("r.yaml", format!("domain: d\n{inner}\n").as_bytes());
    assert!(errors[0].to_string().contains("make more than"), "{errors:?}");
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
    let (_, errors) = RequestFile::check("r.yaml", text.replace("value", "valeu").as_bytes());
    assert!(errors[0].to_string().starts_with("r.yaml:7:"), "{errors:?}");
    let wrong = text.replace("100/s", "0/s");
    assert!(crate::RuleFile::parse("r.yaml", wrong.as_bytes(), 1522).is_err());
    assert!(RequestFile::check("r.yaml", wrong.as_bytes()).1.is_empty());
}
