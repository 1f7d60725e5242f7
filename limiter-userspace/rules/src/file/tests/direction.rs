//! `direction`: which packets a rule is for, and what its keys mean then.

use limiter_common::wire::field;

use super::fields::{LIMIT, refused};
use super::*;
use crate::compile::{CompileErrors, RuleId};
use crate::model::{Direction, Fact, Part, SOURCE_MASKS, rule_sentence};
use crate::{Environment, compile_set};

fn rules(text: &str) -> Vec<std::sync::Arc<Rule>> {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}")).rules.rules
}

/// A rule with one key, or several nested ones.
fn nested(keys: &[&str]) -> String {
    let mut text = LIMIT.to_owned();
    for key in keys.iter().rev() {
        text = format!("{{{key}, {text}}}");
        if *key != keys[0] {
            text = format!("descriptors: [{text}]");
        }
    }
    format!("descriptors: [{text}]\n")
}

fn port(fact: Fact, port: u16) -> Part {
    Part::Fact(fact, Some(port.into()))
}

/// What an outgoing packet has as its destination, its other end has as its source.
#[test]
fn keys_of_outgoing_packets_are_kept_as_the_other_end_sees_them() {
    let source = Part::Source(SOURCE_MASKS, Some("192.0.2.7/32".parse().unwrap()));
    let own = Part::Destination(Some("198.51.100.0/24".parse().unwrap()));
    let table = [
        (
            "out",
            ["key: destination_port, value: 53", "key: source_port, value: 4711"],
            [port(Fact::SourcePort, 53), port(Fact::DestinationPort, 4711)],
            field::OUT | field::SOURCE_PORT | field::DESTINATION_PORT,
        ),
        (
            "out",
            [
                "key: source_address, value: 198.51.100.0/24",
                "key: remote_address, value: 192.0.2.7",
            ],
            [own.clone(), source.clone()],
            field::OUT | field::DESTINATION | field::SOURCE,
        ),
        (
            "both",
            ["key: destination_port, value: 53", "key: source_port, value: 4711"],
            [port(Fact::DestinationPort, 53), port(Fact::SourcePort, 4711)],
            field::SOURCE_PORT | field::DESTINATION_PORT,
        ),
        (
            "both",
            [
                "key: destination_address, value: 198.51.100.0/24",
                "key: remote_address, value: 192.0.2.7",
            ],
            [own, source],
            field::DESTINATION | field::SOURCE,
        ),
        (
            "in",
            ["key: destination_port, value: 53", "key: protocol, value: udp"],
            [port(Fact::DestinationPort, 53), port(Fact::Protocol, 17)],
            field::IN | field::DESTINATION_PORT | field::PROTOCOL,
        ),
    ];
    for (word, [outer, inner], parts, fields) in table {
        let outer = format!("{outer}, direction: {word}");
        let rules = rules(&nested(&[&outer, inner]));
        let path = Path::of(parts).going(Direction::named(word).unwrap());
        assert_eq!(rules[0].path, path);
        let id = RuleId::new(&path, &|_| None).unwrap();
        assert_eq!(id.form.fields, fields | field::V4 | field::V6);
        assert_eq!(id.form.direction(), path.direction);
        // The words of the file again.
        let keys: Vec<_> = path.parts.iter().map(|part| part.key(path.direction)).collect();
        for (key, text) in keys.iter().zip([&*outer, inner]) {
            assert!(text.starts_with(&format!("key: {key},")), "{text}: {key}");
        }
    }
}

#[test]
fn a_direction_is_that_of_the_descriptor_around_it() {
    for text in [
        nested(&["key: vlan, direction: out", "key: remote_address"]),
        nested(&["key: vlan, direction: out", "key: remote_address, direction: out"]),
        nested(&["key: generic_key, value: x, direction: out", "key: remote_address"]),
    ] {
        assert_eq!(rules(&text)[0].path.direction, Direction::Out, "{text}");
    }
    let aggregate = format!(
        "descriptors: [{{key: remote_address, direction: both, {LIMIT}, aggregates: \
         [{{v4_prefix_mask_len: 24, {LIMIT}}}]}}]\n"
    );
    assert!(rules(&aggregate).iter().all(|rule| rule.path.direction == Direction::Both));
    let lists = nested(&["key: destination_port, value: [53, 123], direction: out"]);
    let ports: Vec<_> = rules(&lists).iter().map(|rule| rule.path.parts[0].clone()).collect();
    assert_eq!(ports, [port(Fact::SourcePort, 53), port(Fact::SourcePort, 123)]);
}

#[test]
fn a_direction_refuses_what_it_cannot_have() {
    let one = |fields: &str| format!("descriptors:\n  - {{{fields}, {LIMIT}}}\n");
    let two = |outer: &str, inner: &str| {
        format!("descriptors:\n  - {{{outer}, descriptors: [{{{inner}, {LIMIT}}}]}}\n")
    };
    let inside = |own: &str, outer: &str, default: &str| {
        format!(
            "direction: {own} inside a descriptor with `direction: {outer}`{default}: a rule has \
             one direction; write it at the outermost key, or take this descriptor out of the other"
        )
    };
    let tunnel = |direction: &str| {
        format!(
            "inner_remote_address is no key of a rule with `direction: {direction}`: the packet \
             inside a tunnel is looked for on the way in alone: write `direction: in`, or \
             remote_address, the other end of the tunnel"
        )
    };
    let source = |direction: &str| {
        format!(
            "source_address is no key of a rule with `direction: {direction}`: write \
             remote_address, the source of what comes in"
        )
    };
    let table = [
        (
            one("key: vlan, direction: sideways"),
            "2:28: direction: \"sideways\" is not known: use in, out, both".to_owned(),
        ),
        (
            two("key: vlan, direction: out", "key: remote_address, direction: in"),
            format!("2:80: {}", inside("in", "out", "")),
        ),
        (
            two("key: vlan", "key: remote_address, direction: both"),
            format!("2:64: {}", inside("both", "in", " (the default)")),
        ),
        (
            one("key: destination_address, direction: out"),
            "2:11: destination_address is no key of a rule with `direction: out`: write \
             remote_address, which is the destination on the way out"
                .to_owned(),
        ),
        (one("key: source_address"), format!("2:11: {}", source("in"))),
        (one("key: source_address, direction: both"), format!("2:11: {}", source("both"))),
        (one("key: inner_remote_address, direction: out"), format!("2:11: {}", tunnel("out"))),
        (
            two("key: vlan, direction: both", "key: inner_remote_address"),
            format!("2:54: {}", tunnel("both")),
        ),
        (
            two(
                "key: destination_port, value: 53, direction: out",
                "key: destination_port, value: 54",
            ),
            "2:76: destination_port stands in this path already: a path has each key once"
                .to_owned(),
        ),
        (
            two("key: icmp_type, direction: out", "key: destination_port"),
            "2:58: icmp_type beside destination_port: remove one of the two".to_owned(),
        ),
    ];
    refused(&table.each_ref().map(|(text, message)| (text.clone(), message.as_str())));
}

pub(super) fn compiled(text: &str) -> Result<(), Vec<String>> {
    compiled_for(text, false)
}

pub(super) fn compiled_for(text: &str, in_at_tc: bool) -> Result<(), Vec<String>> {
    let file = parse(text).unwrap();
    let environment =
        Environment { cpus: 4, in_at_tc: Some(in_at_tc), ..Environment::of_frame(1522) };
    let errors = |errors: CompileErrors| errors.into_all().map(|error| error.to_string()).collect();
    compile_set(&file.rules, &environment).map(drop).map_err(errors)
}

/// Whether it is the rule's own action or that of the budget that it is charged to.
#[test]
fn actions_that_an_outgoing_packet_cannot_have_are_refused() {
    let answer = "an answer to an outgoing packet would go to its own sender here";
    let ban = "a ban drops what comes in from a source, and packets that go out to it are no \
               evidence against it";
    let way = "the kernel has chosen the way of an outgoing packet already";
    for (action, name, why) in
        [("reject", "reject", answer), ("{ban: {}}", "ban", ban), ("{cpu: 1}", "cpu", way)]
    {
        for direction in ["out", "both"] {
            let own = format!(
                "descriptors: [{{key: remote_address, direction: {direction}, action: {action}, \
                 {LIMIT}}}]\n"
            );
            let error = format!(
                "rule for direction={direction} remote_address: action: {name} is not for \
                 `direction: {direction}`: {why}: write `action: drop`, or `direction: in`"
            );
            assert_eq!(compiled(&own), Err(vec![error]));
            let charged = format!(
                "budgets: [{{name: b, action: {action}, {LIMIT}}}]\ndescriptors: [{{key: vlan, \
                 direction: {direction}, budget: b}}]\n"
            );
            let error = format!(
                "rule for direction={direction} vlan: action: {name} of the budget b is not for \
                 `direction: {direction}`: {why}: charge a budget with another action, or \
                 `direction: in`"
            );
            assert_eq!(compiled(&charged), Err(vec![error]));
        }
    }
    let names = "budgets: [{name: b, rate_limit: {rate: 5/s}}]\n";
    for fields in [
        "action: {mark: {dscp: 8}}",
        "action: {class: b}",
        "action: drop, shadow_mode: true",
        "action: drop, on_full: pass",
    ] {
        for direction in ["out", "both"] {
            let text = format!(
                "{names}descriptors: [{{key: remote_address, direction: {direction}, {fields}, \
                 {LIMIT}}}]\n"
            );
            assert_eq!(compiled(&text), Ok(()), "{text}");
        }
    }
}

/// In the source table, in a table by keys, and over a budget.
#[test]
fn what_no_packet_at_tc_can_have_is_refused_there_alone() {
    let cpu = |text: String, of: &str, remedy: &str| {
        assert_eq!(compiled_for(&text, false), Ok(()), "{text}");
        let error = format!(
            "{of} is not possible with `--hook tc`: the kernel has chosen the way of the packet \
             already: {remedy}, or run limiter with `--hook xdp`"
        );
        assert_eq!(compiled_for(&text, true), Err(vec![error]), "{text}");
    };
    for key in ["remote_address", "destination_port"] {
        let text = format!("descriptors: [{{key: {key}, action: {{cpu: 1}}, {LIMIT}}}]\n");
        let of = if key == "remote_address" { "every source".to_owned() } else { key.to_owned() };
        cpu(text, &format!("rule for {of}: action: cpu"), "write `action: drop`");
    }
    let text = format!(
        "budgets: [{{name: b, action: {{cpu: 1}}, {LIMIT}}}]\ndescriptors: [{{key: vlan, budget: \
         b}}]\n"
    );
    cpu(text, "rule for vlan: action: cpu of the budget b", "charge a budget with another action");
    for action in ["reject", "{ban: {}}", "drop"] {
        let text = format!("descriptors: [{{key: remote_address, action: {action}, {LIMIT}}}]\n");
        assert_eq!(compiled_for(&text, true), Ok(()), "{text}");
    }
}

#[test]
fn a_log_of_packets_is_refused_where_a_frame_can_be_many() {
    let log = |direction: &str| {
        format!(
            "descriptors: [{{key: remote_address, direction: {direction}, rate_limit: {{rate: 5/s, \
             algorithm: sliding_log}}}}]\n"
        )
    };
    let error = |of: &str, remedy: &str| {
        Err(vec![format!(
            "rule for {of}: `algorithm: sliding_log` keeps the time of each packet, and at tc one \
             frame can be many packets: write `algorithm: sliding_counter`, or {remedy}"
        )])
    };
    assert_eq!(compiled_for(&log("in"), false), Ok(()));
    assert_eq!(
        compiled_for(&log("in"), true),
        error("every source", "run limiter with `--hook xdp`")
    );
    for direction in ["out", "both"] {
        let of = format!("direction={direction} remote_address");
        assert_eq!(compiled_for(&log(direction), false), error(&of, "`direction: in`"));
    }
}

#[test]
fn rules_that_differ_by_direction_are_different_rules() {
    let text: Vec<String> = ["in", "out", "both"]
        .iter()
        .map(|way| {
            format!(
                "  - {{key: remote_address, direction: {way}, rate_limit: {{rate: 1000/s, burst: \
                 200}}}}\n  - {{key: generic_key, value: all, direction: {way}, rate_limit: \
                 {{rate: 1000/s, burst: 200}}}}\n"
            )
        })
        .collect();
    let text = format!("descriptors:\n{}", text.concat());
    let file = parse(&text).unwrap();
    assert_eq!(compiled(&text), Ok(()));
    let shown: Vec<_> = file.rules.rules.iter().map(|rule| rule.path.to_string()).collect();
    let wanted = [
        "every source",
        "every packet",
        "direction=out remote_address",
        "every outgoing packet",
        "direction=both remote_address",
        "every packet in and out",
    ];
    assert_eq!(shown, wanted);
    let rendered = render("x", &file.rules, 1522).unwrap();
    assert_eq!(parse(&rendered).unwrap().rules, file.rules);
    let written = ["direction: out", "direction: both"];
    let exact = blocks(&file.rules).unwrap().rules;
    assert!(exact[..2].iter().all(|rule| !rule.contains("direction")), "{exact:?}");
    for (rule, word) in exact[2..].chunks(2).zip(written) {
        assert!(rule.iter().all(|rule| rule.contains(word)), "{rule:?}");
    }
    assert_eq!(file.rules.lines().len(), 6);
}

#[test]
fn sentences_say_which_way_packets_go() {
    let text = "descriptors:
  - {key: remote_address, direction: out, rate_limit: {rate: 1000/s, burst: 200}}
  - {key: remote_address, direction: both, rate_limit: {rate: 1000/s, burst: 200}}
  - {key: destination_port, value: 53, direction: out, descriptors: [{key: source_address, \
                rate_limit: {rate: 5/s}}]}
  - {key: destination_port, value: 27015, direction: both, rate_limit: {rate: 5/s}}
  - {key: source_port, value: 22, direction: out, action: drop}
  - {key: masked_remote_address, v4_prefix_mask_len: 24, value: 192.0.2.0/24, direction: out, \
                rate_limit: {rate: 5/s}}
  - {key: source_address, value: 192.0.2.7, direction: out, rate_limit: {rate: 5/s}}
";
    let file = parse(text).unwrap();
    let sentences: Vec<_> = file
        .rules
        .rules
        .iter()
        .map(|rule| rule_sentence(rule, &file.rules).split(':').next().unwrap().to_owned())
        .collect();
    assert_eq!(
        sentences,
        [
            "each destination, of outgoing packets",
            "each source, in and out",
            "each source address, of outgoing packets to port 53",
            "all packets to port 27015 together, in and out",
            "all outgoing packets with source port 22 together",
            "all outgoing packets to 192.0.2.0/24 together",
            "all outgoing packets from 192.0.2.7 together",
        ]
    );
}
