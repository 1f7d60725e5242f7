//! A table of bad files with the exact words of the refusal.

use super::*;

/// A file with one rule: the lines under `rate_limit`, at column 7.
fn with_limit(lines: &str) -> String {
    format!("descriptors:\n  - key: remote_address\n    rate_limit:\n      {lines}\n")
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of mistakes")]
fn bad_files_are_refused_with_place_and_remedy() {
    let good = "rate_limit: {unit: second, requests_per_unit: 1}";
    let zero = crate::rate_text::ZERO;
    let whole = "give a whole number from 1 to 18446744073709551615";
    let table: Vec<(String, String)> = vec![
        (
            with_limit("unit: second\n      requests_per_unit: 5\n      brust: 3"),
            "6:7: unknown field \"brust\": did you mean \"burst\"?".into(),
        ),
        (
            "descriptors:\n  - {key: remote_address, rate: 5/s}\n".into(),
            "2:27: unknown field \"rate\": write it inside `rate_limit`, as in `rate_limit: \
             {rate: 100/s, burst: 20}`"
                .into(),
        ),
        (
            "descriptors: [{key: remote_address, unlimited: true}]".into(),
            "1:37: unknown field \"unlimited\": write it inside `rate_limit`, as in `rate_limit: \
             {unlimited: true}`"
                .into(),
        ),
        (
            "descriptors: [{key: remote_address, evidence: none}]".into(),
            "1:37: unknown field \"evidence\": write it inside `ban`, as in `action: {ban: {first: \
             10min}}`"
                .into(),
        ),
        (
            "descriptors: [{key: port, value: 22, action: drop}]".into(),
            "1:21: key: \"port\" is no key of packets: did you mean \"destination_port\"?".into(),
        ),
        (
            "descriptors: [{key: Client-IP, action: drop}]".into(),
            "1:21: key: \"Client-IP\" is no key of packets: did you mean \"remote_address\"?".into(),
        ),
        (
            "descriptor: []\n".into(),
            "1:1: unknown field \"descriptor\": did you mean \"descriptors\"?".into(),
        ),
        (
            "domain: a\nfoo: 1\n".into(),
            "2:1: unknown field \"foo\": use domain, replies, bans, martians, allow, deny, budgets, requests, descriptors"
                .into(),
        ),
        (
            format!("descriptors:\n  - key: remote_address\n    shadow_mode: maybe\n    {good}\n"),
            "3:18: neither true nor false: write one of them".into(),
        ),
        (
            "descriptors:\n  - key: remote_address\n    shadow_mode: true\n    rate_limit: \
             {unlimited: true}\n"
                .into(),
            "3:18: shadow_mode beside unlimited: remove one of the two".into(),
        ),
        (
            "descriptors:\n  - key: remote_address\n    descriptors: []\n".into(),
            "2:5: rate_limit is missing: write `rate_limit: {rate: 100/s}`, or `rate_limit: \
             {unlimited: true}` to let all of them pass, as envoyproxy/ratelimit does"
                .into(),
        ),
        (
            with_limit("replaces: [{name: a}]"),
            "4:7: \"replaces\" is not supported: the most specific rule of a table replaces the \
             others by itself; remove the field"
                .into(),
        ),
        (
            format!("descriptors:\n  - key: header_match\n    {good}\n"),
            "2:10: \"header_match\" is not supported: it needs HTTP, and packets are judged \
             before there is any: it may be a key of requests, for `limiter serve`"
                .into(),
        ),
        (
            format!("descriptors:\n  - key: remote_adress\n    {good}\n"),
            "2:10: key: \"remote_adress\" is no key of packets: did you mean \"remote_address\"?".into(),
        ),
        (
            format!("descriptors:\n  - value: 192.0.2.7\n    {good}\n"),
            "2:5: key is missing: write `key: remote_address`".into(),
        ),
        (
            "descriptors:\n  - key: remote_address\n".into(),
            "2:5: rate_limit is missing: write `rate_limit: {rate: 100/s}`, or `rate_limit: \
             {unlimited: true}` to let all of them pass, as envoyproxy/ratelimit does"
                .into(),
        ),
        (
            format!("descriptors:\n  - key: remote_address\n    value:\n    {good}\n"),
            "3:10: value has no value: give an address or prefix, or remove the line to limit \
             every source"
                .into(),
        ),
        (
            format!("descriptors:\n  - key: remote_address\n    value: 192.0.2.7/24\n    {good}\n"),
            "3:12: value: 192.0.2.7/24 has host bits set: write 192.0.2.0/24".into(),
        ),
        (
            format!(
                "descriptors:\n  - key: remote_address\n    value: 2001:db8::1/128\n    {good}\n"
            ),
            "3:12: value: 2001:db8::1/128 is longer than /64, and an IPv6 source is a /64: write \
             2001:db8::/64, or for 2001:db8::1/128 alone a rule with `masked_remote_address` and \
             `v6_prefix_mask_len: 128`"
                .into(),
        ),
        (
            format!("descriptors:\n  - key: remote_address\n    value: office\n    {good}\n"),
            "3:12: value: \"office\" is not an IP address or prefix: write one like 192.0.2.7, \
             192.0.2.0/24 or 2001:db8::/48"
                .into(),
        ),
        (
            format!(
                "descriptors:\n  - key: remote_address\n    value: 192.0.2.7\n    {good}\n  - \
                 key: remote_address\n    value: 192.0.2.7/32\n    {good}\n"
            ),
            "5:5: a second rule for 192.0.2.7, the first is in line 2: put the limits of both under `rate_limits` of one, or keep one".into(),
        ),
        (
            format!(
                "descriptors:\n  - key: remote_address\n    {good}\n  - key: remote_address\n    \
                 {good}\n"
            ),
            "4:5: a second rule for every source, the first is in line 2: put the limits of both under `rate_limits` of one, or keep one".into(),
        ),
        (
            with_limit("unit: fortnight\n      requests_per_unit: 1"),
            "4:13: unit: \"fortnight\" is not known: use second, minute, hour, day, week".into(),
        ),
        (
            with_limit("unit: secnd\n      requests_per_unit: 1"),
            "4:13: unit: \"secnd\" is not known: did you mean \"second\"?".into(),
        ),
        (
            with_limit("unit: day\n      unit_multiplier: 367\n      requests_per_unit: 1"),
            "5:24: unit_multiplier: \"367\" does not fit: give a whole number from 1 to 366".into(),
        ),
        (
            with_limit("unit: week\n      unit_multiplier: -1\n      requests_per_unit: 1"),
            "5:24: unit_multiplier: \"-1\" does not fit: give a whole number from 1 to 52".into(),
        ),
        (
            with_limit("unit: week\n      unit_multiplier:\n      requests_per_unit: 1"),
            "5:22: unit_multiplier has no value: give a whole number".into(),
        ),
        (with_limit("rate: 5k"), "4:13: rate: \"5k\" is not a rate: did you mean 5k/s?".into()),
        (
            with_limit("rate: 100 pps"),
            "4:13: rate: \"100 pps\" is not a rate: did you mean 100/s?".into(),
        ),
        (
            with_limit("rate: 1000pps"),
            "4:13: rate: \"1000pps\" is not a rate: did you mean 1000/s?".into(),
        ),
        (
            with_limit("rate: 2mbit"),
            "4:13: rate: \"2mbit\" is not a rate: did you mean 2mbit/s?".into(),
        ),
        (
            with_limit("rate: 2Mbps"),
            "4:13: rate: \"2Mbps\" is not a rate: did you mean 2mbit/s or 2MB/s?".into(),
        ),
        (
            with_limit("rate: fast"),
            "4:13: rate: \"fast\" is not a rate: write one like 100/s, 10k/s, 5/day, 10mbit/s, \
             500kB/s or unlimited"
                .into(),
        ),
        (
            with_limit("rate: 0/s"),
            format!("4:13: rate: {zero}"),
        ),
        (
            with_limit("rate:"),
            "4:11: rate has no value: write one like 100/s, 5/day or 10mbit/s".into(),
        ),
        (
            with_limit("rate: 5/s\n      unit: second"),
            "5:13: unit beside rate: remove one of the two".into(),
        ),
        (
            with_limit("rate: 5/s\n      requests_per_unit: 5"),
            "5:26: requests_per_unit beside rate: remove one of the two".into(),
        ),
        (
            with_limit("rate: 5/s\n      unit_multiplier: 2"),
            "5:24: unit_multiplier beside rate: remove one of the two".into(),
        ),
        (
            with_limit("rate: 2mbit/s\n      count: syns"),
            "4:13: rate: \"2mbit/s\" counts bytes, and the limit counts syns: write it without a \
             unit of bytes, as in 100/s"
                .into(),
        ),
        (
            with_limit("rate: 1000/s\n      count: bytes"),
            "4:13: rate: \"1000/s\" counts packets, and the limit counts bytes: write it in \
             bytes, as in 500kB/s or 10mbit/s"
                .into(),
        ),
        (
            with_limit("rate: 5 syns/s\n      count: flows"),
            "4:13: rate: \"5 syns/s\" counts syns, and the limit counts flows: write it without a \
             unit of bytes, as in 100/s"
                .into(),
        ),
        (
            with_limit("rate: 2mbit/s\n      peak: {rate: 100/s}"),
            "5:20: rate: \"100/s\" counts packets, and the limit counts bytes: write it in bytes, \
             as in 500kB/s or 10mbit/s"
                .into(),
        ),
        (
            with_limit("rate: 5/s\n      peak: {rate: unlimited}"),
            "5:20: \"unlimited\" is not supported: it is there to bound: write a rate like 100/s, \
             or remove it"
                .into(),
        ),
        (
            with_limit("rate: unlimited\n      burst: 5"),
            "5:14: burst beside unlimited: remove one of the two".into(),
        ),
        (
            with_limit("rate: 5/s\n      unlimited: true"),
            "4:13: rate beside unlimited: remove one of the two".into(),
        ),
        (
            with_limit("rate: 5/s\n      burst: 60kB"),
            "5:14: burst: \"60kB\" is in bytes, and the rate counts packets: give a number of \
             packets"
                .into(),
        ),
        (
            with_limit("rate: 5/s\n      burst: some"),
            "5:14: burst: \"some\" is not a burst: write one like 200, 10k, 60kB or 1MiB".into(),
        ),
        (
            with_limit("burst: 5"),
            "4:7: rate is missing: write one like `rate: 100/s`, or `unlimited: true`".into(),
        ),
        (
            "- namespace: example.org\n  max_value: 10\n  seconds: 60\n".into(),
            "1:1: a rule file begins with fields, as in `descriptors:`".into(),
        ),
        (
            with_limit("unit: SEC\n      requests_per_unit: 1"),
            "4:13: unit: \"SEC\" is not known: did you mean \"second\"?".into(),
        ),
        (
            "descriptors: [{key: destination_port, value: \"27015:27030\", action: drop}]".into(),
            "1:46: value: \"27015:27030\" does not fit: write 27015-27030".into(),
        ),
        (
            "descriptors: [{key: destination_port, value: \"22, 80:90\", action: drop}]".into(),
            "1:46: value: \"22, 80:90\" does not fit: write a list, [22, 80-90]".into(),
        ),
        (
            "descriptors: [{key: destination_port, value: \"ssh\", action: drop}]".into(),
            "1:46: value: \"ssh\" does not fit: write its number, 22".into(),
        ),
        (
            "descriptors: [{key: protocol, value: TCP, action: drop}]".into(),
            "1:38: value: \"TCP\" is not known: did you mean \"tcp\"?".into(),
        ),
        (
            "descriptors: [{key: remote_address, value: \"192.0.2.0/24,US\", action: drop}]".into(),
            "1:44: value: \"192.0.2.0/24,US\" is not an IP address or prefix: write 192.0.2.0/24, and \
             a list without columns: `cut -d, -f1` takes them"
                .into(),
        ),
        (
            "descriptors:\n  - key: remote_address\n    rate_limit: 5/s\n".into(),
            "3:17: fields are wanted here, as in `{FIELD: VALUE}`; of a limit `{rate: 100/s}`".into(),
        ),
        (
            "descriptors: [{key: remote_address, ban: 10m}]".into(),
            "1:37: unknown field \"ban\": write it inside `action`, as in `action: {ban: ...}`".into(),
        ),
        (
            "descriptors: [{key: destination_port, value: 53, protocol: udp}]".into(),
            "1:50: unknown field \"protocol\": it is a key: write `key: protocol` in a descriptor, \
             and nest it under `descriptors` of another one to join two"
                .into(),
        ),
        (
            with_limit("unit_multiplier: 2\n      requests_per_unit: 1"),
            "4:7: unit is missing: write second, minute, hour, day or week".into(),
        ),
        (
            with_limit("unlimited: true\n      unit_multiplier: 2"),
            "5:24: unit_multiplier beside unlimited: remove one of the two".into(),
        ),
        (
            with_limit("requests_per_unit: 1"),
            "4:7: unit is missing: write second, minute, hour, day or week".into(),
        ),
        (
            with_limit("unit: second"),
            "4:7: requests_per_unit is missing: write a number, or `unlimited: true`".into(),
        ),
        (
            with_limit("unit: second\n      requests_per_unit: 0"),
            format!("5:26: requests_per_unit: {zero}"),
        ),
        (
            with_limit("unit: second\n      requests_per_unit: 1000/s"),
            "5:26: requests_per_unit: \"1000/s\" is a rate: write `rate: 1000/s` in place of `unit` \
             and `requests_per_unit`"
                .into(),
        ),
        (
            with_limit("unit: second\n      requests_per_unit: -3"),
            format!("5:26: requests_per_unit: \"-3\" is negative: {whole}"),
        ),
        (
            with_limit("unit: second\n      requests_per_unit: 1.5"),
            format!("5:26: requests_per_unit: \"1.5\" is not a whole number: {whole}"),
        ),
        (
            with_limit("unit: second\n      requests_per_unit: 18446744073709551616"),
            format!("5:26: requests_per_unit: \"18446744073709551616\" is too large: {whole}"),
        ),
        (
            with_limit("unit: second\n      requests_per_unit: 1\n      burst: 0"),
            format!("6:14: burst: \"0\" lets no packet pass: {whole}"),
        ),
        (
            with_limit("unit: second\n      requests_per_unit: 1\n      count: byte"),
            "6:14: count: \"byte\" is not known: did you mean \"bytes\"?".into(),
        ),
        (
            with_limit("unlimited: true\n      requests_per_unit: 1"),
            "5:26: requests_per_unit beside unlimited: remove one of the two".into(),
        ),
        (with_limit("unlimited: yes"), "4:18: neither true nor false: write one of them".into()),
        (
            with_limit("unit: second\n      unit: second"),
            "5:7: unit stands here twice: keep one".into(),
        ),
        ("domain: \"\"\n".into(), "1:9: domain has no value: name it, or remove the line".into()),
        (
            "domain: \"do\\x1b]0;PWN\\x07main\"\n".into(),
            "1:9: domain: \"do\\u{1b}]0;PWN\\u{7}main\" has U+001B, a control character, which \
             terminals and logs obey: remove it"
                .into(),
        ),
        (
            with_limit("name: \"a\\nb\"\n      unit: second\n      requests_per_unit: 1"),
            "4:13: name: \"a\\nb\" has U+000A, a control character, which terminals and logs \
             obey: remove it"
                .into(),
        ),
        (
            with_limit("name: |\n        one\n      unit: second\n      requests_per_unit: 1"),
            "5:9: name: \"one\\n\" has U+000A, a control character, which terminals and logs \
             obey: remove it"
                .into(),
        ),
        (
            with_limit("name: \"a\\x9b31m\"\n      unit: second\n      requests_per_unit: 1"),
            "4:13: name: \"a\\u{9b}31m\" has U+009B, a control character, which terminals and \
             logs obey: remove it"
                .into(),
        ),
        (
            with_limit("name: a\u{202e}b\n      unit: second\n      requests_per_unit: 1"),
            "4:13: name: \"a\\u{202e}b\" has U+202E, which is not seen, and hides or turns other \
             text: remove it"
                .into(),
        ),
        (
            format!("budgets:\n  - name: \"b\\u200b\"\n    {good}\n"),
            "2:11: name: \"b\\u{200b}\" has U+200B, which is not seen, and hides or turns other \
             text: remove it"
                .into(),
        ),
        (
            "descriptors:\n  - key: destination_port\n    budget: \"b\\L\"\n".into(),
            "3:13: budget: \"b\\u{2028}\" has U+2028, which is not seen, and hides or turns other \
             text: remove it"
                .into(),
        ),
        (
            format!(
                "descriptors:\n  - key: generic_key\n    value: \"web\\x7f\"\n    descriptors: \
                 [{{key: vlan, {good}}}]\n"
            ),
            "3:12: value: \"web\\u{7f}\" has U+007F, a control character, which terminals and \
             logs obey: remove it"
                .into(),
        ),
        (
            format!(
                "descriptors:\n  - key: vlan\n    action: {{class: \"\\uFEFFslow\"}}\n    {good}\n"
            ),
            "3:21: class: \"\\u{feff}slow\" has U+FEFF, which is not seen, and hides or turns \
             other text: remove it"
                .into(),
        ),
        (
            format!(
                "descriptors:\n  - key: interface\n    value: [eth0, \"e\\u2066\"]\n    {good}\n"
            ),
            "3:19: value: \"e\\u{2066}\" has U+2066, which is not seen, and hides or turns other \
             text: remove it"
                .into(),
        ),
        (
            "domain: a\n---\ndomain: b\n".into(),
            "3:1: a second YAML document begins here: keep one".into(),
        ),
    ];
    let mut wrong = Vec::new();
    for (text, message) in table {
        let error = parse(&text).expect_err(&text);
        assert!(error.place.is_some(), "{error}");
        if error.to_string() != format!("r.yaml:{message}") {
            wrong.push(format!("{text}\n  got  {error}\n  want r.yaml:{message}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}
