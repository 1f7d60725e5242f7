//! `limiter check`, from its arguments to its exit code.

use std::fs;

use super::*;
use crate::answer::Answer;

const GOOD: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 300000000, burst: 20}}
  - {key: remote_address, value: 192.0.2.0/24, rate_limit: {unit: second, requests_per_unit: 10}}
  - key: destination_port
    value: 22
    descriptors:
      - {key: remote_address, budget: slow}
      - {key: masked_remote_address, v4_prefix_mask_len: 24, budget: slow}
  - {key: interface, value: eth7, rate_limit: {unit: second, requests_per_unit: 5}, action: reject}
budgets: [{name: slow, rate_limit: {unit: second, requests_per_unit: 7}}]
";

fn check(files: &[(&str, &str)], options: &str) -> (Answer, String) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let path = directory.path().display().to_string();
    let args = parse(&format!("limiter check {path} --socket /nowhere/s{options}")).unwrap();
    (execute(&args, &Fake::default()).unwrap(), path)
}

#[test]
fn what_is_understood_is_reported() {
    let (answer, _) = check(&[("a.yaml", GOOD), ("b.yaml", "descriptors: []\n")], "");
    assert_eq!((answer.code, answer.errors.len()), (0, 0));
    assert_eq!(
        answer.text,
        "\
ok: 2 files with 5 rules in 4 tables, 1 budget

TABLE                                         RULES
remote_address                                    2
destination_port remote_address                   1
destination_port masked_remote_address/v4:24      1
interface                                         1

each other source: 300000000/s, and 20 more at once (at most 300000020 packets in any second); more is dropped
each source in 192.0.2.0/24: 10/s, and 10 more at once (at most 20 packets in any second); more is dropped
each source, of packets to port 22: charged to the budget slow
each /24 of IPv4, of packets to port 22: charged to the budget slow
all packets by the interface eth7 together: 5/s, and 5 more at once (at most 10 packets in any second); \
         more is dropped, and the sender is notified
budget slow, all that is charged to it together: 7/s, and 7 more at once (at most 14 packets in any second); more is dropped

RATE NOT HELD TO 0.1 %  LIMIT                     WRITTEN       ENFORCED
rule for every source   300000000/s burst 20  300000000/s  299065420.6/s
not looked for on this machine: the interfaces eth7
note: to the rule for every source all neighbours with link-local addresses, fe80::/64, are one \
         source, and so are hosts that have none yet, 0.0.0.0: their DHCPv6, OSPFv3, BFD and VRRP \
         have one limit together (docs/rules-reference.md#sources has the lines for one each)
warning: the rule for interface=eth7 rejects, but there is no `replies`: packets over it are \
         dropped, and nobody is notified; add replies to the rule file
warning: the budget slow carries no TCP session: it counts packets, and after 7 packets one more \
         passes every 142 ms, so an open one hangs; to limit connections, write `rate: 7 syns/s` \
         (`limiter set`: --count syns); to limit packets, at least 10/s
"
    );
    let (answer, path) = check(&[("a.yaml", GOOD)], " --output json");
    let json: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(json["ok"], true);
    assert_eq!(json["files"], serde_json::json!([format!("{path}/a.yaml")]));
    assert_eq!(json["tables"][0], serde_json::json!({"keys": "remote_address", "rules": 2}));
    assert_eq!(json["tables_taken"], 3);
    assert_eq!(json["sentences"].as_array().map(Vec::len), Some(6));
    assert_eq!(json["rates"][0]["configured_per_second"], 3e8);
}

#[test]
fn every_file_s_mistake_is_reported_with_its_place() {
    let bad = [
        ("a.yaml", "descriptors:\n  - {key: remote_adress}\n"),
        ("b.yaml", "descriptors: []\n"),
        ("c.yaml", "domain: [\n"),
    ];
    let (answer, path) = check(&bad, "");
    assert_eq!((answer.code, answer.text.as_str()), (2, ""));
    assert_eq!(answer.errors.len(), 2, "{answer:?}");
    assert_eq!(
        answer.errors[0],
        format!(
            "{path}/a.yaml:2:11: key: \"remote_adress\" is no key of packets: did you mean \
             \"remote_address\"?"
        )
    );
    assert!(answer.errors[1].starts_with(&format!("{path}/c.yaml:")), "{answer:?}");
    let (answer, _) = check(&bad, " --output json");
    assert_eq!((answer.code, answer.errors.len()), (2, 0));
    let json: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(json["ok"], false);
    assert_eq!((&json["errors"][0]["line"], &json["errors"][0]["column"]), (&2.into(), &11.into()));
}

/// Of each descriptor and budget its mistake, and each limit that cannot be held, whatever else is
/// wrong.
#[test]
fn all_mistakes_of_a_file_are_reported_at_once() {
    let bad = "replies: {unit: fortnight, requests_per_unit: 1}
budgets:
  - {name: \"limiter:x\", rate_limit: {unit: second, requests_per_unit: 1}}
descriptors:
  - {key: remote_address, value: [192.0.2.1, 192.0.2.2], rate_limit: {unit: second, \
               requests_per_unit: 400000000}}
  - {key: remote_adress, rate_limit: {unit: second, requests_per_unit: 1}}
  - key: destination_port
    value: 70000
  - key: vlan
    rate_limits:
      - {unit: week, requests_per_unit: 100, count: bytes, burst: 2000}
      - {unit: second, requests_per_unit: 1}
      - {unit: second, requests_per_unit: 99, algorithm: sliding_log}
    descriptors:
      - {key: dscp, value: fast, rate_limit: {unit: second, requests_per_unit: 1}}
      - {key: protocol, budget: nobody}
";
    let (answer, path) = check(&[("a.yaml", bad)], "");
    assert_eq!(answer.code, 2);
    let places: Vec<(&str, &str)> = answer
        .errors
        .iter()
        .filter_map(|error| error.strip_prefix(&format!("{path}/a.yaml:"))?.split_once(": "))
        .collect();
    let begins = [
        ("1:17", "unit: \"fortnight\" is not known"),
        ("3:12", "\"limiter:x\" is a name of limiter's own"),
        ("6:11", "key: \"remote_adress\" is no key of packets"),
        ("8:12", "value: \"70000\" does not fit"),
        ("15:28", "value: \"fast\" is not known"),
        ("5:5", "rule for 192.0.2.1: 400000000/s is faster than can be held to 1 %"),
        ("9:5", "rule for vlan, limit 1: 100B/week is slower than one byte in 18 minutes"),
        ("9:5", "rule for vlan, limit 3: 99/s needs more than the 31 stamps of a log"),
    ];
    assert_eq!(places.len(), begins.len(), "{answer:#?}");
    for ((place, what), (wanted, begin)) in places.into_iter().zip(begins) {
        assert!(
            place == wanted && what.starts_with(begin),
            "{place}: {what}\nnot {wanted}: {begin}"
        );
    }
    // Mistakes that only the whole set shows are reported once all of it can be read.
    let whole = "descriptors:
  - {key: vlan, descriptors: [{key: dscp, budget: nobody}]}
  - {key: dscp, descriptors: [{key: vlan, rate_limit: {unit: second, requests_per_unit: \
                 400000000}}]}
  - {key: dscp, value: 7, budget: nobody}
";
    let (answer, _) = check(&[("a.yaml", whole)], "");
    let reported = |what: &str| answer.errors.iter().filter(|error| error.contains(what)).count();
    assert_eq!(
        (reported("no budget \"nobody\""), reported("in another order")),
        (2, 1),
        "{answer:#?}"
    );
}

#[test]
fn an_emptied_file_is_a_mistake() {
    let nothing = "no rules are in the file, and so nobody would be limited";
    for emptied in ["", "# nothing\n", "domain: x\n"] {
        let (answer, path) = check(&[("a.yaml", GOOD), ("b.yaml", emptied)], "");
        assert_eq!((answer.code, answer.errors.len()), (2, 1), "{answer:?}");
        let words = format!("{path}/b.yaml:1:1: {nothing}");
        assert!(answer.errors[0].starts_with(&words), "{answer:?}");
    }
    let (answer, _) = check(&[("a.yaml", "descriptors: []\n")], "");
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.text.contains("\nwarning: nobody is limited: "), "{answer:?}");
}

#[test]
fn what_only_the_whole_set_shows_is_reported() {
    let one = "descriptors: [{key: vlan, rate_limit: {unit: second, requests_per_unit: 5}}]\n";
    let (answer, path) = check(&[("a.yaml", one), ("b.yaml", one)], "");
    assert_eq!(answer.code, 2);
    assert_eq!(
        answer.errors,
        [format!(
            "{path}/b.yaml:1:15: a second rule for vlan, the first is in {path}/a.yaml:1:15: put the \
             limits of both under `rate_limits` of one, or keep one"
        )]
    );
    let nobody = "descriptors: [{key: vlan, budget: nobody}]\n";
    let (answer, path) = check(&[("a.yaml", "descriptors: []\n"), ("b.yaml", nobody)], "");
    assert_eq!(
        answer.errors,
        [format!(
            "{path}/b.yaml:1:15: rule for vlan: there is no budget \"nobody\": add it under \
             budgets, or name another"
        )]
    );
    let bytes = "descriptors: [{key: vlan, rate_limit: {unit: second, requests_per_unit: 5, \
                 count: bytes, burst: 2000}}]\n";
    assert_eq!(check(&[("a.yaml", bytes)], "").0.code, 0);
    assert_eq!(check(&[("a.yaml", bytes)], " --max-frame 9022").0.code, 2);
    let many = |n: u8| {
        let value = |at| format!("192.0.2.{at}");
        let values = (0..n).map(value).collect::<Vec<_>>().join(", ");
        one.replace("vlan", &format!("remote_address, value: [{values}]"))
    };
    let (answer, _) = check(&[("a.yaml", &many(40))], " --max-rules 32");
    assert!(answer.errors[0].contains("--max-rules"), "{answer:?}");
    assert_eq!(check(&[("a.yaml", &many(5))], " --max-rules 32").0.code, 0);
}

/// Sentences that once said another thing than what the program does: of a destination prefix each
/// address has a bucket, a token bucket passes its burst and its rate, and a source without a limit
/// in one table is limited by others.
#[test]
fn sentences_say_who_shares_how_much_and_who_is_limited() {
    for (rule, wanted) in [
        (
            "{key: destination_address, value: 192.0.2.0/24, rate_limit: {rate: 3/hour}}",
            "each destination address in 192.0.2.0/24: 3/hour, and 3 more at once (at most 6 packets in any hour); more is dropped",
        ),
        (
            "{key: destination_address, value: 192.0.2.7, rate_limit: {rate: 3/hour}}",
            "all packets to 192.0.2.7 together: 3/hour, and 3 more at once (at most 6 packets in any hour)",
        ),
        (
            "{key: remote_address, rate_limit: {rate: 20/10s}}",
            "each source: 20/10s, and 20 more at once (at most 40 packets in any 10s)",
        ),
        (
            "{key: remote_address, rate_limit: {rate: 20/10s, algorithm: sliding_log}}",
            "each source: sliding_log 20/10s (at most 20 packets in any 10s)",
        ),
        (
            "{key: remote_address, value: 192.0.2.53, rate_limit: {unlimited: true}}, {key: \
             destination_port, value: 53, descriptors: [{key: remote_address, rate_limit: {rate: \
             10/s}}]}",
            "the source 192.0.2.53: no limit by rules with these keys; limited by others: the rule \
             for destination_port=53 remote_address",
        ),
        (
            "{key: remote_address, value: 192.0.2.53, rate_limit: {unlimited: true}}, {key: \
             remote_address, rate_limit: {rate: 10/s}}",
            "each other source: 10/s, and 10 more at once (at most 20 packets in any second)",
        ),
        (
            "{key: remote_address, value: 192.0.2.53, rate_limit: {unlimited: true}}, {key: \
             remote_address, rate_limit: {rate: 10/s}}",
            "the source 192.0.2.53: no limit\n",
        ),
    ] {
        let (answer, _) = check(&[("a.yaml", &format!("descriptors: [{rule}]\n"))], "");
        assert!(answer.text.contains(wanted), "{}", answer.text);
    }
}

/// An exemption above every table is one: `check` says it, with reason and end, and warns of ends
/// that have passed.
#[test]
fn the_lists_of_a_file_are_reported() {
    let text = "allow:
  - {address: 192.0.2.53, reason: name server}
  - {address: 192.0.2.54, until: 2020-01-01}
deny: [203.0.113.0/24]
descriptors:
  - {key: remote_address, value: 192.0.2.53, rate_limit: {unlimited: true}}
  - {key: destination_port, descriptors: [{key: remote_address, rate_limit: {rate: 10/s}}]}
";
    let (answer, _) = check(&[("a.yaml", text)], "");
    for wanted in [
        "on the lists: 2 allowed, 1 denied\n",
        "the source 192.0.2.53: no limit: on the allow list\n",
        "192.0.2.53: every packet passes, whatever the rules say (name server)\n",
        "203.0.113.0/24: every packet is dropped\n",
    ] {
        assert!(answer.text.contains(wanted), "{wanted}\n{}", answer.text);
    }
    let end = limiter_api::moment::local("2020-01-02T00:00:00Z");
    let over = format!("a.yaml:3:5: the entry 192.0.2.54 of the allow list ended at {end}");
    let said = [answer.text.clone(), answer.errors.join("\n")].concat();
    assert!(said.contains(&over), "{said}");
}

/// A ban that its own limit can never bring is a mistake, with what to write; each that can come is
/// taken.
#[test]
fn a_ban_that_never_comes_is_a_mistake() {
    let ban = |keys: &str, rate: &str, ban: &str| {
        format!(
            "descriptors: [{{{keys}, descriptors: [{{key: remote_address, rate_limit: {{rate: \
             {rate}}}, action: {{ban: {{{ban}}}}}}}]}}]\n"
        )
    };
    let port = "key: destination_port, value: 22";
    for (text, why) in [
        (ban(port, "10 syns/min", ""), "its limit counts SYNs, which are none"),
        (ban(port, "10 syns/min", "evidence: established"), "its limit counts SYNs"),
        (ban("key: protocol, value: udp", "10/s", ""), "none of its packets is one"),
        (ban("key: protocol, value: icmp", "10/s", ""), "none of its packets is one"),
        (ban("key: tcp_flags, value: syn", "10/s", ""), "none of its packets is one"),
        (ban("key: fragment, value: later", "10/s", ""), "none of its packets is one"),
        (
            "budgets: [{name: b, rate_limit: {rate: 9 syns/s}, action: {ban: {}}}]\ndescriptors: \
             [{key: destination_port, value: 22, budget: b}]\n"
                .to_owned(),
            "budget b never bans",
        ),
    ] {
        let (answer, _) = check(&[("a.yaml", &text)], "");
        assert_eq!(answer.code, 2, "{text}");
        let reported = answer.errors.join("\n");
        assert!(reported.contains("never bans") && reported.contains(why), "{reported}");
        assert!(
            reported.contains("write `evidence: none`") && reported.contains("a.yaml:1:"),
            "{reported}"
        );
    }
    for text in [
        ban(port, "10 syns/min", "evidence: none"),
        ban(port, "100/s", ""),
        ban("key: protocol, value: tcp", "100/s", ""),
        ban("key: tcp_flags, value: ack", "100/s", ""),
    ] {
        let (answer, _) = check(&[("a.yaml", &text)], "");
        assert_eq!((answer.code, answer.errors.len()), (0, 0), "{text}: {answer:?}");
    }
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
    rate_limit: {unit: minute, requests_per_unit: 5, algorithm: fixed_window}
";

#[test]
fn rules_for_requests_are_those_that_serve_answers() {
    let (answer, path) = check(&[("a.yaml", MESSAGING), ("b.yaml", AUTH)], "");
    assert_eq!((answer.code, answer.errors.len()), (0, 0), "{:?}", answer.errors);
    let text = format!(
        "\
ok: 2 files with 2 rules for requests, in 2 domains

messaging: message_type=marketing: 5/day burst 5
auth: auth_type=login: fixed_window 5/min
note: {path}/a.yaml:6:17: one limit is a token bucket: all of a limit may come at once, and comes back \
         steadily. envoyproxy/ratelimit counts it in windows of the clock, which `algorithm: \
         fixed_window` means here
"
    );
    assert_eq!(answer.text, text);
    // One domain in two files.
    let (answer, _) = check(&[("a.yaml", AUTH), ("b.yaml", AUTH)], "");
    assert_eq!(answer.code, 2);
    assert!(
        answer.errors[0].contains("a second file for the domain \"auth\""),
        "{:?}",
        answer.errors
    );
}

#[test]
fn budgets_prefixes_and_soft_limits_of_requests_are_said() {
    let limit = "rate_limit: {rate: 3/min, algorithm: fixed_window";
    let text = format!(
        "domain: d\nbudgets: [{{name: mails, {limit}}}}}]\ndescriptors:\n  - {{key: a, budget: \
         mails}}\n  - {{key: b, {limit}, ceiling: {{rate: 5/min, burst: 5}}}}}}\n  - {{key: \
         remote_address, {limit}}}, aggregates: [{{v4_prefix_mask_len: 24, v6_prefix_mask_len: 48, \
         {limit}}}}}]}}\n"
    );
    let (answer, _) = check(&[("a.yaml", &text)], "");
    assert_eq!(
        answer.text,
        "ok: 1 file with 3 rules for requests, in 1 domain\n\n\
         d: a: fixed_window 3/min of the budget mails\n\
         d: b: fixed_window 3/min, those over it marked, up to 5/min burst 5\n\
         d: remote_address: fixed_window 3/min; each /24 and /48: fixed_window 3/min\n"
    );
}

/// A ban is part of what a rule does; one that could never come is a mistake, with what to write.
#[test]
fn a_ban_by_requests_is_said_and_needs_a_source() {
    let nested = |rule: &str| {
        format!(
            "domain: auth\ndescriptors: [{{key: auth_type, value: login, descriptors: [{rule}]}}]\n"
        )
    };
    let limit = "rate_limit: {rate: 3/min, algorithm: fixed_window}";
    let good = nested(&format!(
        "{{key: remote_address, {limit}, action: {{ban: {{first: 10min}}}}}}, {{key: user, \
         descriptors: [{{key: remote_address, {limit}, action: {{ban: {{strikes: 5}}}}}}]}}"
    ));
    let (answer, _) = check(&[("a.yaml", &good)], "");
    assert_eq!(
        answer.text,
        "ok: 1 file with 2 rules for requests, in 1 domain\n\n\
         auth: auth_type=login remote_address: fixed_window 3/min; ban 10 min to 1 d of the \
         source\nauth: auth_type=login user remote_address: fixed_window 3/min; ban 1 min to 1 d of the \
         source after 5 refused requests\n"
    );
    let bad = nested(&format!("{{key: user, {limit}, action: {{ban: {{first: 10min}}}}}}"));
    let (answer, path) = check(&[("a.yaml", &bad)], "");
    assert_eq!((answer.code, answer.text.as_str()), (2, ""));
    let [error] = &answer.errors[..] else { panic!("{:?}", answer.errors) };
    assert!(error.contains(&format!("{path}/a.yaml:2:")), "{error}");
    assert!(
        error.contains(
            "ban without `remote_address` among the keys of its rule: nest the rule, as in \
             `descriptors: [{key: remote_address, rate_limit: {rate: 5/min}, action: {ban: {first: \
             10min}}}]`"
        ),
        "{error}"
    );
}

#[test]
fn packets_and_requests_may_be_in_one_directory_and_in_one_file() {
    let packets = "descriptors: [{key: remote_address, rate_limit: {rate: 100/s}}]\n";
    let nested = AUTH.replace('\n', "\n  ");
    let both = format!("{packets}requests:{nested}\n");
    for files in [&[("a.yaml", packets), ("b.yaml", AUTH)][..], &[("a.yaml", both.as_str())]] {
        let (answer, _) = check(files, "");
        assert_eq!(answer.code, 0, "{:?}", answer.errors);
        let (kernel, serve) = answer.text.split_once("\n`limiter serve` answers:\n\n").unwrap();
        assert!(
            kernel.starts_with("The kernel decides:\n\nok: 1 file with 1 rule in 1 table"),
            "{kernel}"
        );
        assert!(serve.ends_with("auth: auth_type=login: fixed_window 5/min\n"), "{serve}");
        let (answer, _) = check(files, " --output json");
        let document: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!((&document["rules"], &document["requests"]["rules"]), (&1.into(), &1.into()));
    }
    // All keys are those of packets: only the person knows.
    let (answer, _) = check(&[("a.yaml", &format!("domain: d\n{packets}"))], " --requests");
    assert!(answer.text.contains("d: remote_address: 100/s burst 100"), "{}", answer.text);
}

#[test]
fn mistakes_of_both_are_reported_and_a_misspelt_key_of_packets_is_one() {
    let packets = "descriptors: [{key: remote_adress, rate_limit: {rate: 100/s}}]\n";
    let requests = AUTH.replace("minute", "fortnight");
    let (answer, path) = check(&[("a.yaml", packets), ("b.yaml", &requests)], "");
    assert_eq!(
        (answer.code, answer.text.as_str(), answer.errors.len()),
        (2, "", 2),
        "{:?}",
        answer.errors
    );
    let key =
        format!("{path}/a.yaml:1:21: key: \"remote_adress\" is no key of packets: did you mean");
    assert!(answer.errors[0].starts_with(&key), "{}", answer.errors[0]);
    let unit = format!("{path}/b.yaml:6:24: unit: \"fortnight\" is not known");
    assert!(answer.errors[1].starts_with(&unit), "{}", answer.errors[1]);
}

/// A proxy that asks `/check` of several files needs to name one.
#[test]
fn several_files_with_checks_are_noted() {
    let of = |domain: &str| {
        format!(
            "domain: {domain}\ncheck: [[{{key: remote_address, header: \
             X-Real-IP}}]]\ndescriptors: [{{key: \
             remote_address, rate_limit: {{rate: 5/min}}}}]\n"
        )
    };
    let (a, b) = (of("a"), of("b"));
    let note = "2 rule files have `check`, so /check without a domain is refused: ask /check/a";
    let (answer, _) = check(&[("a.yaml", &a), ("b.yaml", &b)], "");
    assert!(answer.text.contains(note), "{} {:?}", answer.text, answer.errors);
    let (answer, _) = check(&[("a.yaml", &a)], "");
    assert!(!answer.text.contains("have `check`"), "{}", answer.text);
}

/// A file without a domain is one for packets, whatever its keys are.
#[test]
fn a_key_that_no_packet_has_is_named() {
    let user = "descriptors: [{key: user, rate_limit: {rate: 1/s}}]\n";
    let (answer, path) = check(&[("a.yaml", user)], "");
    let [error] = answer.errors.as_slice() else { panic!("{:?}", answer.errors) };
    let begin = format!("{path}/a.yaml:1:21: key: \"user\" is no key of packets: use ");
    assert!(error.starts_with(&begin) && error.ends_with("add `domain:`"), "{error}");
}
