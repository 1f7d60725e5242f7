//! Every field with what it cannot be, and the exact words of the refusal.

use super::*;

/// A file with one rule on `vlan`: the fields are in line 2.
pub(super) fn with(fields: &str) -> String {
    format!("descriptors:\n  - {{key: vlan, {fields}}}\n")
}

fn limited(fields: &str) -> String {
    with(&format!("rate_limit: {{unit: second, requests_per_unit: 1, {fields}}}"))
}

fn keyed(fields: &str) -> String {
    format!("descriptors:\n  - {{{fields}, rate_limit: {{unit: second, requests_per_unit: 1}}}}\n")
}

pub(super) const LIMIT: &str = "rate_limit: {unit: second, requests_per_unit: 1}";

pub(super) fn refused(table: &[(String, &str)]) {
    let mut wrong = Vec::new();
    for (text, message) in table {
        let error = parse(text).expect_err(text);
        assert!(error.place.is_some(), "{error}");
        let error = error.to_string().replacen("r.yaml:", "", 1);
        if error != *message {
            wrong.push(format!("{text}  got  {error}\n  want {message}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

/// [`refused`], and by requests in the same words, where a line with a domain stands before it.
pub(super) fn refused_by_both(table: &[(String, &str)]) {
    refused(table);
    for (text, message) in table {
        let wanted = format!("r.yaml:{}", message.replacen("2:", "3:", 1));
        assert_eq!(requests::tests::error(&format!("domain: d\n{text}")), wanted, "{text}");
    }
}

#[test]
fn keys_refuse_what_they_cannot_be() {
    refused(&[
        (
            keyed("key: vlan, v4_prefix_mask_len: 24"),
            "2:37: v4_prefix_mask_len without masked_remote_address: write `key: \
             masked_remote_address`, or remove the line",
        ),
        (
            keyed("key: masked_remote_address"),
            "2:5: v4_prefix_mask_len is missing: write it, v6_prefix_mask_len, or both",
        ),
        (
            keyed("key: masked_remote_address, v4_prefix_mask_len: 33"),
            "2:54: v4_prefix_mask_len: \"33\" does not fit: give a whole number from 1 to 32",
        ),
        (
            keyed("key: masked_remote_address, v6_prefix_mask_len: 0"),
            "2:54: v6_prefix_mask_len: \"0\" does not fit: give a whole number from 1 to 128",
        ),
        (
            keyed("key: masked_remote_address, v4_prefix_mask_len: 24, value: 192.0.2.0/25"),
            "2:65: value: 192.0.2.0/25 is longer than /24, and a bucket is for a /24: write \
             `v4_prefix_mask_len: 25`, or 192.0.2.0/24 if all of that is meant",
        ),
        (
            keyed("key: masked_remote_address, v4_prefix_mask_len: 24, value: '2001:db8::/32'"),
            "2:65: value: 2001:db8::/32 is IPv6, and v6_prefix_mask_len is missing: add it, or \
             remove the value",
        ),
        (
            keyed("key: masked_remote_address, v4_prefix_mask_len: 24, value: 192.0.2.1/8"),
            "2:65: value: 192.0.2.1/8 has host bits set: write 192.0.0.0/8",
        ),
        (
            keyed("key: destination_address, value: '::ffff:192.0.2.0/120'"),
            "2:39: value: ::ffff:192.0.2.0/120 is an IPv4-mapped address, which no packet \
             carries: write the IPv4 address",
        ),
        (
            keyed("key: destination_address, value: here"),
            "2:39: value: \"here\" is not an IP address or prefix: write one like 192.0.2.7, \
             192.0.2.0/24 or 2001:db8::/48",
        ),
        (
            keyed("key: destination_port, value: 65536"),
            "2:36: value: \"65536\" does not fit: give a whole number from 0 to 65535, or a range \
             as in 80-90",
        ),
        (
            keyed("key: destination_port, value: -1"),
            "2:36: value: \"-1\" does not fit: give a whole number from 0 to 65535, or a range as \
             in 80-90",
        ),
        (
            keyed("key: destination_port, value: [22, ssh]"),
            "2:41: value: \"ssh\" does not fit: write its number, 22",
        ),
        (
            keyed("key: destination_port, value: []"),
            "2:36: value has no value: give one, or remove the line: then each value has a bucket",
        ),
        (
            keyed("key: destination_port, value: [22, ~]"),
            "2:41: value has no value: give one, or remove the line: then each value has a bucket",
        ),
        (
            keyed("key: destination_port, value: {a: b}"),
            "2:36: not a rule file: invalid type: map, expected a value or a list of values",
        ),
    ]);
}

#[test]
fn an_icmp_type_is_one_message() {
    refused(&[
        (
            keyed("key: icmp_type, value: echo-reqest"),
            "2:29: value: \"echo-reqest\" is not known: did you mean \"echo-request\"?",
        ),
        // Of two messages, after the family.
        (
            keyed("key: icmp_type, value: 3"),
            "2:29: value: \"3\" is not known: use echo-request, echo-reply, \
             destination-unreachable, packet-too-big, time-exceeded, parameter-problem, redirect, \
             source-quench, timestamp-request, timestamp-reply, address-mask-request, \
             address-mask-reply, multicast-listener-query, multicast-listener-report, \
             multicast-listener-done, multicast-listener-report-v2, router-solicitation, \
             router-advertisement, neighbour-solicitation, neighbour-advertisement",
        ),
        (
            keyed("key: icmp_type, value: 256"),
            "2:29: value: \"256\" does not fit: give a whole number from 0 to 255",
        ),
        (
            format!(
                "descriptors: [{{key: destination_port, descriptors: [{{key: icmp_type, \
                 {LIMIT}}}]}}]\n"
            ),
            "1:59: icmp_type beside destination_port: remove one of the two",
        ),
    ]);
}

#[test]
fn other_keys_refuse_what_they_cannot_be() {
    refused(&[
        (
            keyed("key: protocol, value: 256"),
            "2:28: value: \"256\" does not fit: give a whole number from 0 to 255",
        ),
        (
            keyed("key: protocol, value: tpc"),
            "2:28: value: \"tpc\" is not known: did you mean \"tcp\"?",
        ),
        (
            keyed("key: tcp_flags, value: synack"),
            "2:29: value: \"synack\" is not known: did you mean \"syn-ack\"?",
        ),
        (
            keyed("key: interface, value: a-very-long-name"),
            "2:29: value: \"a-very-long-name\" is no name of an interface: write one of at most \
             15 characters, like eth0",
        ),
        (
            keyed("key: vlan, value: 4096"),
            "2:24: value: \"4096\" does not fit: give a whole number from 0 to 4095, or a range \
             as in 80-90",
        ),
        (
            keyed("key: dscp, value: 64"),
            "2:24: value: \"64\" does not fit: give a whole number from 0 to 63, or a range as in \
             80-90",
        ),
        (
            keyed("key: dscp, value: af14"),
            "2:24: value: \"af14\" is not known: did you mean \"af11\"?",
        ),
        (
            keyed("key: fragment, value: last"),
            "2:28: value: \"last\" is not known: use whole, first, later",
        ),
        (
            keyed("key: inner_remote_address, value: 2001:db8::/65"),
            "2:40: value: 2001:db8::/65 is longer than /64, and an IPv6 source is a /64: write \
             2001:db8::/64",
        ),
        (
            format!(
                "descriptors: [{{key: inner_remote_address, descriptors: [{{key: remote_address, \
                 {LIMIT}}}]}}]\n"
            ),
            "1:63: inner_remote_address beside remote_address: remove one of the two",
        ),
        (
            format!(
                "descriptors: [{{key: destination_address, descriptors: [{{key: \
                 inner_remote_address, {LIMIT}}}]}}]\n"
            ),
            "1:62: inner_remote_address beside destination_address: remove one of the two",
        ),
        ("martians: allow\n".into(), "1:11: martians: \"allow\" is not known: use charge, drop"),
        (
            keyed("key: generic_key"),
            "2:5: value is missing: write a name, as in `value: everything`",
        ),
        (
            keyed("key: generic_key, value: [a]"),
            "2:31: value has no value: write a name, as in `value: everything`",
        ),
        (
            format!(
                "descriptors: [{{key: vlan, descriptors: [{{key: dscp, descriptors: [{{key: vlan, \
                 {LIMIT}}}]}}]}}]\n"
            ),
            "1:73: vlan stands in this path already: a path has each key once",
        ),
        (
            format!(
                "descriptors: [{{key: remote_address, descriptors: [{{key: masked_remote_address, \
                 v4_prefix_mask_len: 8, {LIMIT}}}]}}]\n"
            ),
            "1:57: masked_remote_address stands in this path already: a path has each key once",
        ),
        (
            format!(
                "descriptors: [{{key: remote_address, value: 192.0.2.7, descriptors: [{{key: \
                 destination_address, value: '2001:db8::1', {LIMIT}}}]}}]\n"
            ),
            "1:69: no source and destination of these are of one family: no packet could match",
        ),
        (
            format!(
                "descriptors: [{{key: generic_key, value: a, {LIMIT}}}, {{key: generic_key, \
                 value: b, {LIMIT}}}]\n"
            ),
            "1:95: a second rule for every packet, the first is in line 1: put the limits of both under `rate_limits` of one, or keep one",
        ),
    ]);
}

#[test]
fn descriptors_refuse_what_contradicts_itself() {
    refused_by_both(&[
        (
            with(&format!("{LIMIT}, rate_limits: []")),
            "2:80: rate_limits beside rate_limit: remove one of the two",
        ),
        (with("rate_limits: []"), "2:30: rate_limits has no value: give one to four limits"),
        (
            with(
                "rate_limits: [{unit: day, requests_per_unit: 1}, {name: b, unit: day, \
                 requests_per_unit: 1}]",
            ),
            "2:73: \"name\" is not supported: a rule has one name: give it to the first of its \
             limits",
        ),
        (
            with(&format!("{LIMIT}, budget: a")),
            "2:75: budget beside rate_limit: remove one of the two",
        ),
        (
            with(&format!("shadow_mode: true, descriptors: [{{key: dscp, {LIMIT}}}]")),
            "2:30: shadow_mode without rate_limit: add a limit, or remove the field",
        ),
        (
            with("rate_limit: {unlimited: true}, action: reject"),
            "2:56: action beside unlimited: remove one of the two",
        ),
        (
            keyed(&format!("key: remote_address, aggregates: [{{{LIMIT}}}]")),
            "2:40: v4_prefix_mask_len is missing: write it, v6_prefix_mask_len, or both",
        ),
    ]);
    refused(&[
        (
            with("rate_limits: [{unlimited: true}]"),
            "2:31: rate_limits beside unlimited: remove one of the two",
        ),
        (with("budget: ''"), "2:25: budget has no value: name a budget, or remove the line"),
        (
            with("budget: a, action: reject"),
            "2:36: action without rate_limit: the budget has one of its own; write it there",
        ),
        (
            with("budget: a, shadow_mode: true"),
            "2:41: shadow_mode without rate_limit: the budget has one of its own; write it there",
        ),
        (
            with("action: reject, descriptors: []"),
            "2:5: rate_limit is missing: write `rate_limit: {rate: 100/s}`, or `rate_limit: \
             {unlimited: true}` to let all of them pass, as envoyproxy/ratelimit does",
        ),
        (
            with(&format!("{LIMIT}, aggregates: [{{v4_prefix_mask_len: 8, {LIMIT}}}]")),
            "2:80: aggregates without remote_address: add it to the path, or remove the field",
        ),
        (
            keyed("key: remote_address, aggregates: [{v4_prefix_mask_len: 8}]"),
            "2:40: rate_limit is missing: write `rate_limit: {rate: 100/s}`",
        ),
        (
            keyed(&format!(
                "key: remote_address, value: 192.0.2.7, aggregates: [{{v4_prefix_mask_len: 8, \
                 {LIMIT}}}]"
            )),
            "2:58: value: 192.0.2.7/32 is only a part of the aggregate's /8: write \
             `v4_prefix_mask_len: 32` for one limit on all of 192.0.2.7/32, or a descriptor of \
             its own for 192.0.0.0/8 if all of that is meant",
        ),
        (
            keyed(&format!(
                "key: remote_address, value: 192.0.2.7, aggregates: [{{v6_prefix_mask_len: 8, \
                 {LIMIT}}}]"
            )),
            "2:58: value: 192.0.2.7/32 is IPv4, and v4_prefix_mask_len is missing: add it, or \
             remove the value",
        ),
    ]);
}

#[test]
fn limits_refuse_what_they_cannot_be() {
    refused_by_both(&[
        (
            limited("algorithm: tokenbucket"),
            "2:77: algorithm: \"tokenbucket\" is not known: did you mean \"token_bucket\"?",
        ),
        (
            limited("algorithm: fixed_window, burst: 3"),
            "2:98: burst without token_bucket: write that algorithm, or remove the field",
        ),
        (
            limited("backlog: 1s"),
            "2:75: backlog without leaky_bucket: write that algorithm, or remove the field",
        ),
        (
            limited("algorithm: leaky_bucket, backlog: soon"),
            "2:100: backlog: \"soon\" is no length of time: write one like 5s, 1min, 2h or \
             1day",
        ),
        (
            limited("algorithm: leaky_bucket, backlog: 3years"),
            "2:100: backlog: \"3years\" is more than 2 years: write one like 5s, 1min, 2h \
             or 1day",
        ),
        (
            limited("slots: 4"),
            "2:73: slots without sliding_slots: write that algorithm, or remove the field",
        ),
        (
            limited("strict: true"),
            "2:74: strict without sliding_slots: write that algorithm, or remove the field",
        ),
        (
            limited("algorithm: sliding_slots, slots: 3"),
            "2:99: slots: \"3\" is not known: use 2, 4, 8",
        ),
        (
            limited("ceiling: {unit: second}"),
            "2:75: requests_per_unit is missing: write a number, or `unlimited: true`",
        ),
        (
            with("rate_limit: {unlimited: true, algorithm: fixed_window}"),
            "2:58: algorithm beside unlimited: remove one of the two",
        ),
        (
            with("rate_limit: {unlimited: true, ceiling: {unit: day}}"),
            "2:56: ceiling beside unlimited: remove one of the two",
        ),
        (limited("name: ''"), "2:72: name has no value: name it, or remove the line"),
    ]);
    refused(&[
        (
            limited("count: bits"),
            "2:73: count: \"bits\" is not known: use packets, bytes, syns, flows",
        ),
        (
            limited(
                "ceiling: {unit: second, requests_per_unit: 2}, peak: {unit: second, \
                 requests_per_unit: 2}",
            ),
            "2:119: peak beside ceiling: remove one of the two",
        ),
        (
            limited("ceiling: {unit: second, requests_per_unit: 2, count: bytes}"),
            "2:112: unknown field \"count\": use rate, unit, unit_multiplier, requests_per_unit, \
             burst",
        ),
        (
            limited("mark: {ecn: true}"),
            "2:72: mark without ceiling, peak or excess: only what is between two limits is \
             marked; add one of them, or write `action: {mark: ...}` beside the limit",
        ),
        (
            limited("excess: {unit: second, requests_per_unit: 2}, mark: {}"),
            "2:118: mark has no value: write `dscp: NUMBER` or `ecn: true` in it",
        ),
        (
            limited("excess: {unit: second, requests_per_unit: 2}, mark: {dscp: 1, ecn: true}"),
            "2:133: ecn beside dscp: remove one of the two",
        ),
        (
            limited("excess: {unit: second, requests_per_unit: 2}, mark: {dscp: 64}"),
            "2:125: dscp: \"64\" does not fit: give a whole number from 0 to 63",
        ),
    ]);
}

/// Envoy's way to two limits on one key is one rule twice here: the advice loses none of them.
#[test]
fn two_limits_of_one_key_are_reported_where_both_go() {
    let names = ["a", "b"].map(|name| {
        format!(
            "  - key: generic_key\n    value: {name}\n    descriptors:\n      - {{key: \
             remote_address, {LIMIT}}}\n"
        )
    });
    for text in [
        format!("descriptors:\n{}", names.concat()),
        format!("descriptors:\n{}", format!("  - {{key: remote_address, {LIMIT}}}\n").repeat(2)),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("put the limits of both under `rate_limits`"), "{error}");
    }
    let both = "descriptors: [{key: remote_address, rate_limits: [{rate: 10/s}, {rate: 100/min}]}]";
    parse(both).unwrap();
}
