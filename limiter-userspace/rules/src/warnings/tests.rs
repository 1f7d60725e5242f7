use super::*;
use crate::RuleFile;

/// The warnings about a rule file, as `check` has them.
fn reported(text: &str) -> Vec<String> {
    let file = RuleFile::parse("r.yaml", text.as_bytes(), 1522).unwrap();
    Warnings::of(&file.rules, &file.rules.lists, |_| false).in_full()
}

/// The one warning about one rule.
#[track_caller]
fn one(descriptors: &str) -> String {
    let reported = reported(&format!("descriptors: [{descriptors}]"));
    assert_eq!(reported.len(), 1, "{descriptors}: {reported:?}");
    reported.into_iter().next().unwrap()
}

#[track_caller]
fn none(descriptors: &str) {
    assert_eq!(reported(&format!("descriptors: [{descriptors}]")), [""; 0], "{descriptors}");
}

/// A path of keys, with each source below, and its rate.
fn nested(keys: &[(&str, &str)], limit: &str) -> String {
    let inner = format!("{{key: remote_address, rate_limit: {{{limit}}}}}");
    keys.iter().rev().fold(inner, |inner, (key, value)| {
        format!("{{key: {key}, value: {value}, descriptors: [{inner}]}}")
    })
}

/// Keys that no packet has together are named, and only those of the rule that do not fit.
#[test]
fn keys_that_exclude_each_other_are_named() {
    for (keys, wanted) in [
        (
            &[("protocol", "icmp"), ("destination_port", "53"), ("dscp", "0")][..],
            "no packet has protocol=icmp and destination_port=53;",
        ),
        (&[("protocol", "udp"), ("tcp_flags", "syn")], "protocol=udp and tcp_flags=syn"),
        (&[("protocol", "tcp"), ("icmp_type", "8")], "protocol=tcp and icmp_type=echo-request"),
        (&[("protocol", "gre"), ("source_port", "53")], "protocol=gre and source_port=53"),
        (
            &[("fragment", "later"), ("destination_port", "53")],
            "fragment=later and destination_port=53",
        ),
        (&[("fragment", "later"), ("icmp_type", "8")], "fragment=later and icmp_type="),
        (&[("protocol", "esp"), ("destination_port", "500")], "protocol=esp and destination_port"),
        (&[("protocol", "ah")], "no packet has protocol=ah;"),
        (&[("tcp_flags", "ack"), ("fragment", "later")], "tcp_flags=ack and fragment=later"),
    ] {
        let reported = one(&nested(keys, "rate: 100/s"));
        assert!(
            reported.contains("limits nothing: no packet has ") && reported.contains(wanted),
            "{reported}"
        );
    }
    let tunnel = "{key: protocol, value: tcp, descriptors: [{key: inner_remote_address, \
                  rate_limit: {rate: 100/s}}]}";
    assert!(one(tunnel).contains("protocol=tcp and inner_remote_address"));
}

/// Keys that only packets have which no host sends.
#[test]
fn keys_of_broken_packets_are_named() {
    for (keys, wanted) in [
        (&[("packet_length", "0-19")][..], "no other has packet_length=0-19;"),
        (
            &[("protocol", "udp"), ("destination_port", "53"), ("packet_length", "25")],
            "destination_port=53 and packet_length=25",
        ),
        (&[("icmp_type", "neighbour-solicitation")], "icmp_type=neighbour-solicitation"),
        (&[("vlan", "4095")], "vlan=4095"),
    ] {
        let reported = one(&nested(keys, "rate: 100/s"));
        assert!(
            reported.contains("limits broken packets alone") && reported.contains(wanted),
            "{reported}"
        );
    }
    for keys in [
        &[("protocol", "udp"), ("packet_length", "25")][..],
        &[("protocol", "tcp"), ("packet_length", "21-39")],
        &[("packet_length", "21-27"), ("protocol", "icmp")],
    ] {
        let reported = one(&nested(keys, "rate: 100/s"));
        assert!(
            reported.contains("limits later fragments alone: no other packet has"),
            "{reported}"
        );
    }
    let of = |protocol: &str, source: &str| {
        one(&format!(
            "{{key: protocol, value: {protocol}, descriptors: [{{key: remote_address, value: \
             \"{source}\", rate_limit: {{rate: 10/s}}}}]}}"
        ))
    };
    assert!(of("icmpv6", "192.0.2.0/24").contains("protocol=icmpv6 and remote_address=192."));
    assert!(of("icmp", "2001:db8::/32").contains("protocol=icmp and remote_address=2001:"));
    assert!(of("igmp", "2001:db8::/32").contains("protocol=igmp and remote_address=2001:"));
}

/// Keys that fit, however near to those that do not.
#[test]
fn keys_that_fit_are_not_warned_of() {
    for keys in [
        &[("protocol", "udp"), ("destination_port", "27015-27050"), ("packet_length", "0-28")][..],
        &[("protocol", "sctp"), ("destination_port", "53")],
        &[("protocol", "icmp"), ("icmp_type", "echo-request")],
        &[("protocol", "icmpv6"), ("icmp_type", "packet-too-big")],
        &[("fragment", "later"), ("protocol", "udp")],
        &[("fragment", "first"), ("protocol", "udp"), ("destination_port", "53")],
        &[("packet_length", "0-20"), ("protocol", "253")],
        &[("protocol", "ipv6")],
        &[("ttl", "0-1")],
        &[("vlan", "0")],
    ] {
        none(&nested(keys, "rate: 100/s"));
    }
    let vxlan = "{key: protocol, value: udp, descriptors: [{key: inner_remote_address, \
                 rate_limit: {rate: 100/s}}]}";
    none(vxlan);
}

/// A limit of SYNs where none can be.
#[test]
fn syns_of_packets_that_are_none_are_reported() {
    for keys in [
        &[("protocol", "udp"), ("destination_port", "53")][..],
        &[("tcp_flags", "ack")],
        &[("icmp_type", "echo-request")],
        &[("protocol", "icmp")],
    ] {
        let reported = one(&nested(keys, "rate: 10 syns/s"));
        assert!(reported.contains("counts SYNs, and no packet with"), "{reported}");
    }
    none(&nested(&[("destination_port", "53")], "rate: 10 syns/s"));
    none(&nested(&[("tcp_flags", "syn")], "rate: 10 syns/s"));
    let budget = "budgets: [{name: b, rate_limit: {rate: 10 syns/s}}]\ndescriptors: [{key: \
                  protocol, value: udp, budget: b}]";
    assert!(reported(budget)[0].starts_with("the budget b counts SYNs"), "{:?}", reported(budget));
}

/// Packets of TCP at a rate with which a session hangs, with the line to write.
#[test]
fn a_rate_that_carries_no_session_is_reported() {
    for (keys, limit, wanted) in [
        (&[("destination_port", "22")][..], "rate: 5/min", "`rate: 5 syns/min`"),
        (&[("protocol", "tcp"), ("destination_port", "443")], "rate: 9/s", "`rate: 9 syns/s`"),
        (&[("protocol", "tcp")], "rate: 100/hour", "`rate: 100 syns/hour`"),
        (&[("source_port", "443")], "rate: 5/min", "--count syns"),
        (&[("destination_port", "80-90")], "rate: 5/min, algorithm: sliding_log", "--count syns"),
        (&[("tcp_flags", "ack")], "rate: 5/min", "give it more"),
        (&[("protocol", "tcp")], "rate: 1kB/s, burst: 10kB", "give it more"),
        (&[], "rate: 1000/week", "one more passes every 10 min 4 s"),
        (&[], "rate: 86400/day", "one more passes every 1 s"),
        (
            &[],
            "rate: 10/day, algorithm: fixed_window",
            "after 10 packets in 1 d no more pass, so an open one hangs",
        ),
        (
            &[("protocol", "tcp")],
            "rate: 100/hour, algorithm: sliding_counter",
            "after 100 packets in 1 h no more pass",
        ),
    ] {
        let reported = one(&nested(keys, limit));
        assert!(
            reported.contains("carries no TCP session") && reported.contains(wanted),
            "{reported}"
        );
    }
    for (keys, limit) in [
        (&[("destination_port", "22")][..], "rate: 5 syns/min"),
        (&[("destination_port", "22")], "rate: 5 flows/min"),
        (&[("protocol", "tcp"), ("destination_port", "443")], "rate: 10/s"),
        (&[("protocol", "udp"), ("destination_port", "53")], "rate: 5/min"),
        (&[("protocol", "icmp")], "rate: 5/min"),
        (&[("tcp_flags", "syn")], "rate: 5/min"),
        (&[("fragment", "later")], "rate: 5/min"),
        (&[], "rate: 50MB/day, algorithm: fixed_window"),
        (&[], "rate: 2/s"),
    ] {
        none(&nested(keys, limit));
    }
    // A slow rate for some sources, and what only marks, is meant.
    none("{key: remote_address, value: 192.0.2.7, rate_limit: {rate: 5/min}}");
    none(
        &nested(&[("destination_port", "22")], "rate: 5/min")
            .replace("}}", "}, action: {mark: {dscp: 8}}}"),
    );
    let budget = "budgets: [{name: b, rate_limit: {rate: 5/min}}]\ndescriptors: [{key: \
                  destination_port, value: 22, budget: b}]";
    assert!(reported(budget)[0].starts_with("the budget b carries no TCP session"));
}

/// A burst below a quarter of a second of its rate, with the burst to write.
#[test]
fn a_burst_that_starves_tcp_is_reported() {
    for (limit, wanted) in [
        ("rate: 100mbit/s, burst: 31260B", "31260 bytes are 2 ms of 100mbit/s"),
        ("rate: 100mbit/s, burst: 31260B", "`burst: 3125kB`"),
        ("rate: 20mbit/s, burst: 200kB", "`burst: 625kB`"),
        ("rate: 2mbit/s, burst: 60kB", "`burst: 63kB`"),
        ("rate: 20mbit/s, algorithm: leaky_bucket, backlog: 100ms", "`backlog: 250ms`"),
        (
            "rate: 1mbit/s, burst: 1MB, ceiling: {rate: 20mbit/s, burst: 20kB}",
            "20000 bytes are 8 ms of 20mbit/s",
        ),
    ] {
        let reported = one(&nested(&[], limit));
        assert!(reported.contains("starves TCP") && reported.contains(wanted), "{reported}");
    }
    let packets = nested(&[("protocol", "tcp")], "rate: 1000/s, burst: 20");
    assert!(one(&packets).contains("`burst: 250`"));
    let each = "{key: destination_address, value: 192.0.2.0/24, rate_limit: {rate: 80mbit/s, \
                burst: 1MB}}";
    assert!(one(each).contains("`burst: 2500kB`"));
    for (keys, limit) in [
        (&[][..], "rate: 100mbit/s"),
        (&[], "rate: 20mbit/s, burst: 625kB"),
        (&[], "rate: 1000/s, burst: 20"),
        (&[], "rate: 20mbit/s, algorithm: sliding_counter"),
        (&[], "rate: 100gbit/s, burst: 64MB"),
        (&[("protocol", "udp")], "rate: 100mbit/s, burst: 31260B"),
    ] {
        none(&nested(keys, limit));
    }
    let budget = "budgets: [{name: b, rate_limit: {rate: 80mbit/s, burst: 1MB}}]\ndescriptors: \
                  [{key: remote_address, value: 192.0.2.0/24, budget: b}]";
    assert!(reported(budget)[0].starts_with("the budget b has a burst that starves TCP"));
}

/// A wait with which a TCP stream gets part of its rate, with the one to write; and those of the
/// table in docs/shaping-figures.md with which it gets all of it.
#[test]
fn a_wait_that_is_too_short_for_tcp_is_reported() {
    let rule = |limit: &str, longest: &str| {
        format!(
            "{{key: remote_address, direction: out, rate_limit: {{{limit}}}, action: {{delay: \
             {{longest: {longest}}}}}}}"
        )
    };
    for (limit, longest, wanted) in [
        ("rate: 1mbit/s, burst: 2kB", "20ms", "write `longest: 44ms` or more"),
        ("rate: 20mbit/s, burst: 2kB", "20ms", "`longest: 50ms`"),
        ("rate: 20mbit/s, burst: 20kB", "10ms", "room for 45000 bytes of 20mbit/s"),
        ("rate: 20mbit/s, burst: 20kB", "10ms", "`longest: 42ms`"),
        ("rate: 100kbit/s, burst: 1522B", "50ms", "`longest: 479ms`"),
        ("rate: 20mbit/s, algorithm: leaky_bucket, backlog: 5ms", "20ms", "`longest: 45ms`"),
    ] {
        let reported = one(&rule(limit, longest));
        assert!(reported.contains("too short a time for TCP"), "{reported}");
        assert!(reported.contains(wanted), "{reported}");
    }
    for (limit, longest) in [
        ("rate: 1mbit/s, burst: 2kB", "50ms"),
        ("rate: 20mbit/s, burst: 2kB", "50ms"),
        ("rate: 20mbit/s, burst: 20kB", "50ms"),
        ("rate: 200mbit/s, burst: 200kB", "200ms"),
        // Enough at once for a limit that drops.
        ("rate: 20mbit/s, burst: 625kB", "1ms"),
        ("rate: 1000/s, burst: 1", "1ms"),
    ] {
        none(&rule(limit, longest));
    }
    let below = |limit: &str, longest: &str| rule(limit, longest).replace("direction: out, ", "");
    let udp = below("rate: 1mbit/s, burst: 2kB", "20ms");
    none(&format!("{{key: protocol, value: udp, descriptors: [{udp}]}}"));
    // A packet each twelve seconds: no wait of two seconds helps. One of a second does.
    let ssh = |rate: &str, longest: &str| {
        let below = below(&format!("rate: {rate}"), longest);
        format!("{{key: destination_port, value: 22, descriptors: [{below}]}}")
    };
    assert!(one(&ssh("5/min", "2s")).contains("carries no TCP session"));
    none(&ssh("5/s", "1s"));
}

/// Where a limit that drops starves TCP, waiting is named as a way out: where it can be had, and
/// with what it takes.
#[test]
fn a_limit_that_drops_is_told_of_waiting_where_it_can_wait() {
    let rule = |direction: &str, rest: &str| {
        one(&format!(
            "{{key: remote_address, direction: {direction}, rate_limit: {{rate: 20mbit/s, burst: \
             20kB}}{rest}}}"
        ))
    };
    let waits = "or let packets wait: `action: {delay: {longest: 200ms}}`";
    let at_tc = "or let packets wait, with `limiter run --hook tc` and Linux 6.6: `action: {delay:";
    assert!(rule("out", "").contains(waits));
    for direction in ["in", "both"] {
        assert!(rule(direction, "").contains(at_tc), "{}", rule(direction, ""));
    }
    for rest in [", action: reject", ", scope: cluster"] {
        assert!(!rule("in", rest).contains("wait"), "{}", rule("in", rest));
    }
    let ceiling = "rate: 1mbit/s, burst: 1MB, ceiling: {rate: 20mbit/s, burst: 20kB}";
    assert!(!one(&nested(&[], ceiling)).contains("wait"));
}

/// One bucket for all senders on a port, unless it was meant: by a budget, by a rule that holds
/// each of them, or by who asked for it.
#[test]
fn one_bucket_for_all_senders_is_reported() {
    for (key, value) in [("destination_port", "22"), ("protocol", "icmp"), ("tcp_flags", "syn")] {
        let rule = format!("{{key: {key}, value: {value}, rate_limit: {{rate: 100/s}}}}");
        assert!(one(&rule).contains("one bucket for all senders"), "{rule}");
    }
    none("{key: destination_port, value: 22, action: drop}");
    none("{key: generic_key, value: all, rate_limit: {rate: 100/s}}");
    none("{key: destination_address, value: 192.0.2.7, rate_limit: {rate: 100/s}}");
    none(
        "{key: destination_port, value: 22, rate_limit: {rate: 500 syns/s}, descriptors: [{key: \
         remote_address, rate_limit: {rate: 20 syns/s}}]}",
    );
    assert_eq!(
        reported(
            "budgets: [{name: b, rate_limit: {rate: 100/s}}]\ndescriptors: [{key: \
             destination_port, value: 22, budget: b}]"
        ),
        [""; 0]
    );
    let file = RuleFile::parse(
        "r.yaml",
        b"descriptors: [{key: destination_port, value: 22, rate_limit: {rate: 100/s}}]",
        1522,
    )
    .unwrap();
    assert_eq!(Warnings::of(&file.rules, &file.rules.lists, |_| true).in_full(), [""; 0]);
}

/// The first ten of a kind have a line each, and short there is one for the kind.
#[test]
fn many_rules_of_a_kind_are_counted() {
    let rule = |port: u16| {
        format!("{{key: destination_port, value: {port}, rate_limit: {{rate: 100/s}}}}")
    };
    let rules: Vec<String> = (1..=14).map(rule).collect();
    let text = format!("descriptors: [{}]", rules.join(", "));
    let file = RuleFile::parse("r.yaml", text.as_bytes(), 1522).unwrap();
    let warnings = Warnings::of(&file.rules, &file.rules.lists, |_| false);
    let (full, short) = (warnings.in_full(), warnings.in_short().collect::<Vec<_>>());
    assert_eq!((full.len(), short.len()), (10, 1));
    assert!(full[9].starts_with("the rule for destination_port=10 (and 4 more) is one bucket"));
    assert!(short[0].1.starts_with("the rule for destination_port=1 (and 13 more) is one bucket"));
}

/// All of IPv4 comes from one /64 of a NAT64, and a rule that says how it counts is not warned of.
#[test]
fn one_bucket_for_all_of_ipv4_behind_a_nat64_is_reported() {
    let rule = |value: &str| {
        format!("{{key: remote_address, value: \"{value}\", rate_limit: {{rate: 100/s}}}}")
    };
    for value in ["64:ff9b::808:808", "64:ff9b::/64", "64:ff9b:1:7::/64"] {
        let reported = one(&rule(value));
        assert!(reported.contains("is one bucket for many hosts: as 64:ff9b:"), "{reported}");
    }
    none(&rule("64:ff9c::/64"));
    none(&rule("64:ff9b::808:808").replace("rate: 100/s", "rate: unlimited"));
    none(
        "{key: masked_remote_address, v6_prefix_mask_len: 128, value: \"64:ff9b::/96\", \
         rate_limit: {rate: 100/s}}",
    );
}

/// An address that stands for many people is reported where it is limited, and where it is denied.
#[test]
fn everybody_behind_one_address_is_reported() {
    let rule = |value: &str| {
        format!("{{key: remote_address, value: \"{value}\", rate_limit: {{rate: 100/s}}}}")
    };
    for (value, why) in [
        ("100.64.0.7", "providers share the addresses of 100.64.0.0/10 among customers"),
        ("100.96.0.0/16", "providers share"),
        ("2002:c000:204::1", "6to4 gives those behind the IPv4 address 192.0.2.4 addresses there"),
    ] {
        let reported = one(&rule(value));
        let wanted = format!("is one limit for everybody behind an address: {why}");
        assert!(reported.contains(&wanted), "{reported}");
    }
    let teredo = one(&rule("2001:0:c000:204::1"));
    let wanted = "is one bucket for many hosts: all clients of the Teredo server 192.0.2.4 have";
    assert!(teredo.contains(wanted), "{teredo}");
    for value in ["100.128.0.1", "2001:db8::1", "192.0.2.7", "100.0.0.0/8"] {
        none(&rule(value));
    }
    let lists = |list: &str| {
        let all = "[\"64:ff9b::1\", 100.64.0.0/10, 192.0.2.7, \"2001:db8::/32\"]";
        reported(&format!("{list}: {all}\ndescriptors: []\n"))
    };
    assert_eq!(
        lists("deny"),
        [
            "the list entry 100.64.0.0/10 denies everybody behind it: providers share the \
             addresses of 100.64.0.0/10 among customers",
            "the list entry 64:ff9b::/64 denies everybody behind it: as 64:ff9b::/64 a NAT64 \
             writes IPv4 addresses",
        ]
    );
    assert_eq!(lists("allow"), [""; 0]);
}

/// What goes out is limited together on purpose, and keys are named as the file has them.
#[test]
fn rules_of_what_goes_out_are_warned_of_in_their_words() {
    none("{key: source_port, value: 443, direction: out, rate_limit: {rate: 1000/s}}");
    none(
        "{key: protocol, value: udp, direction: out, rate_limit: {rate: 1000/s}}, {key: protocol, \
         value: udp, direction: both, descriptors: [{key: remote_address, rate_limit: {rate: \
         50/s}}]}",
    );
    let both = one("{key: protocol, value: udp, direction: both, rate_limit: {rate: 1000/s}}");
    assert!(
        both.contains("the rule for direction=both protocol=udp is one bucket for all senders")
    );
    // Each source is bounded by a rule for both, of what comes in; not by one of what goes out.
    let all = "{key: protocol, value: udp, rate_limit: {rate: 1000/s}}";
    let each = |direction: &str| {
        format!(
            "{{key: protocol, value: udp, direction: {direction}, descriptors: [{{key: \
             remote_address, rate_limit: {{rate: 50/s}}}}]}}"
        )
    };
    none(&format!("{all}, {}", each("both")));
    assert!(one(&format!("{all}, {}", each("out"))).contains("the rule for protocol=udp is one"));
    let nothing =
        one("{key: protocol, value: icmp, direction: out, descriptors: [{key: destination_port, \
         value: 53, rate_limit: {rate: 50/s}}]}");
    assert!(nothing.contains("no packet has protocol=icmp and destination_port=53;"), "{nothing}");
    let session = one("{key: source_port, value: 22, direction: out, rate_limit: {rate: 5/min}}");
    assert!(session.contains("source_port=22 carries no TCP session"), "{session}");
}

#[test]
fn rules_that_captures_say_nothing_about_are_named() {
    let lines = |text: &str| {
        let file = RuleFile::parse("r.yaml", text.as_bytes(), 1522).unwrap();
        not_judged_in_captures(&file.rules)
    };
    let rule = |key: &str, direction: &str| {
        format!("{{key: {key}, direction: {direction}, rate_limit: {{rate: 5/s}}}}")
    };
    assert_eq!(lines(&format!("descriptors: [{}]", rule("vlan", "in"))), [""; 0]);
    let all = ["in", "out", "both"].map(|way| [rule("vlan", way), rule("dscp", way)].join(", "));
    assert_eq!(
        lines(&format!("descriptors: [{}]", all.join(", "))),
        [
            "only what comes in is judged here: the rule for direction=out vlan (and 1 more) has \
             no packets",
            "only what comes in is judged here: the rule for direction=both vlan (and 1 more) has \
             half of its packets",
        ]
    );
}

/// A ceiling that lets fewer come at once than its limit is named with both numbers; a peak may be
/// short, for that is what it is for.
#[test]
fn a_ceiling_below_the_burst_of_its_limit_is_reported() {
    let rule = |limit: &str| {
        format!(
            "{{key: protocol, value: icmp, descriptors: [{{key: remote_address, rate_limit: \
             {{{limit}}}}}]}}"
        )
    };
    for (limit, wanted) in [
        (
            "rate: 5/s, burst: 100, ceiling: {rate: 20/s, burst: 3}",
            "100 may come at once by its limit, and 3 by its ceiling",
        ),
        (
            "rate: 5/s, burst: 100, ceiling: {rate: 20/s}",
            "100 may come at once by its limit, and 20",
        ),
        (
            "unit: minute, requests_per_unit: 90, algorithm: sliding_log, ceiling: {rate: 20/s}",
            "90 may come at once by its limit, and 20 by its ceiling",
        ),
    ] {
        let reported = one(&rule(limit));
        assert!(reported.contains(wanted) && reported.contains("give the"), "{reported}");
    }
    for limit in [
        "rate: 5/s, burst: 100, ceiling: {rate: 20/s, burst: 100}",
        "rate: 5/s, burst: 100, peak: {rate: 20/s, burst: 3}",
        "rate: 5/s, burst: 100, excess: {rate: 20/s, burst: 3}",
        "unit: second, requests_per_unit: 20, algorithm: fixed_window, ceiling: {rate: 20/s}",
    ] {
        none(&rule(limit));
    }
}

/// A window that is smaller than a super-frame is named where outgoing TCP meets it; a bucket owes
/// the rest, and what comes in is met at XDP.
#[test]
fn a_window_below_a_super_frame_is_reported() {
    let rule = |direction: &str, limit: &str| {
        format!("{{key: remote_address, direction: {direction}, rate_limit: {{{limit}}}}}")
    };
    for algorithm in ["fixed_window", "sliding_counter", "sliding_slots"] {
        for (limit, wanted) in [
            ("requests_per_unit: 40", "40 packets, and the kernel sends up to 64 as one frame"),
            (
                "requests_per_unit: 9000, count: bytes",
                "9000 bytes, and the kernel sends up to 65536",
            ),
        ] {
            let limit = format!("unit: second, {limit}, algorithm: {algorithm}");
            for direction in ["out", "both"] {
                let reported = one(&rule(direction, &limit));
                assert!(reported.contains(wanted), "{reported}");
                assert!(reported.contains("`algorithm: token_bucket`"), "{reported}");
            }
            none(&rule("in", &limit));
        }
    }
    for limit in ["rate: 40/s", "unit: second, requests_per_unit: 64, algorithm: fixed_window"] {
        none(&rule("out", limit));
    }
}

/// A rule for all of IPv4 leaves IPv6 alone, unless another rule with the same keys takes it.
#[test]
fn a_rule_for_one_family_says_that_the_other_meets_none() {
    let of =
        |net: &str| format!("{{key: remote_address, value: {net}, rate_limit: {{rate: 9/s}}}}");
    let (v4, v6) = (of("0.0.0.0/0"), of("\"::/0\""));
    let exempt = "{key: remote_address, value: \"2001:db8::/32\", rate_limit: {unlimited: true}}";
    let every = "{key: remote_address, rate_limit: {rate: 9/s}}";
    for (rules, none, other) in [
        (v4.clone(), "IPv6", "\"::/0\""),
        (v6.clone(), "IPv4", "\"0.0.0.0/0\""),
        (format!("{v4}, {exempt}"), "IPv6", "\"::/0\""),
        (
            format!(
                "{v4}, {{key: protocol, value: udp, descriptors: [{{key: remote_address, \
                 rate_limit: {{rate: 99/s}}}}]}}"
            ),
            "IPv6",
            "\"::/0\"",
        ),
    ] {
        let reported = one(&rules);
        let wanted = format!("no source of {none} meets it");
        assert!(reported.contains(&wanted) && reported.ends_with(other), "{rules}: {reported}");
    }
    for rules in [
        format!("{v4}, {v6}"),
        format!("{v4}, {every}"),
        format!("{}, {}, {v4}", of("\"8000::/1\""), of("\"::/1\"")),
        of("0.0.0.0/1"),
    ] {
        none(&rules);
    }
}
