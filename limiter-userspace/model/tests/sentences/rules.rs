//! Rule files: of keys that the packets have, in one order.

use std::fmt::Write as _;

use proptest::prelude::*;

/// Keys, with values that the packets have or nearly have; none is "for each".
const KEYS: [(&str, &[&str]); 13] = [
    ("destination_address", &["203.0.113.0/24", "203.0.113.1", "'2001:db8:9::/48'"]),
    ("interface", &["eth0", "eth1"]),
    ("vlan", &["7", "7-8"]),
    ("protocol", &["tcp", "udp", "icmp", "icmpv6"]),
    ("fragment", &["whole", "later"]),
    ("destination_port", &["22", "80-90", "85"]),
    ("source_port", &["53"]),
    ("tcp_flags", &["syn", "ack"]),
    ("icmp_type", &["echo-request"]),
    ("dscp", &["46"]),
    ("ttl", &["1", "1-63"]),
    ("packet_length", &["0-60", "100-500"]),
    ("remote_address", &["192.0.2.0/24", "192.0.2.1", "'2001:db8::/32'", "'2001:db8:0:1::/64'"]),
];

/// Masks of sources, and prefixes for them.
const MASKED: [(&str, &[&str]); 3] = [
    ("v4_prefix_mask_len: 24, v6_prefix_mask_len: 48", &[""]),
    ("v4_prefix_mask_len: 25", &["", "value: 192.0.2.0/24, ", "value: 192.0.2.0/25, "]),
    ("v6_prefix_mask_len: 56", &["", "value: '2001:db8::/32', "]),
];

const LIMITS: [&str; 14] = [
    "{rate: 3/s, burst: 2}",
    "{rate: 20/10s}",
    "{rate: 5/hour, burst: 9}",
    "{rate: 4 syns/min, burst: 2}",
    "{rate: 2kB/s, burst: 4kB}",
    "{rate: 2kB/s, burst: 4kB, algorithm: leaky_bucket, backlog: 2s}",
    "{rate: 7/s, algorithm: leaky_bucket, backlog: 1s}",
    "{rate: 6/s, algorithm: fixed_window}",
    "{rate: 6/s, algorithm: sliding_log}",
    "{rate: 6/s, algorithm: sliding_counter}",
    "{rate: 8/s, algorithm: sliding_slots, slots: 4}",
    "{rate: 8/s, algorithm: sliding_slots, slots: 2, strict: true}",
    "{rate: 2/s, burst: 2, ceiling: {rate: 4/s, burst: 5}}",
    "{rate: 2/s, burst: 2, excess: {rate: 4/s, burst: 3}}",
];

/// A rule's keys, from outside to inside, and its terms.
fn rule() -> impl Strategy<Value = String> {
    let keys = prop::collection::vec(
        (0..KEYS.len(), prop::option::of(any::<prop::sample::Index>())),
        0..4,
    );
    let masked = prop::option::weighted(0.2, (0..MASKED.len(), any::<prop::sample::Index>()));
    let direction = prop_oneof![6 => Just("in"), 1 => Just("out"), 2 => Just("both")];
    (keys, masked, direction, terms()).prop_map(|(mut keys, masked, direction, terms)| {
        keys.sort_by_key(|(key, _)| *key);
        keys.dedup_by_key(|(key, _)| *key);
        let mut descriptors: Vec<String> = Vec::new();
        for (key, value) in keys {
            let (name, values) = KEYS[key];
            if masked.is_some() && name == "remote_address" {
                continue;
            }
            let own = name == "destination_address" && direction == "out";
            let name = if own { "source_address" } else { name };
            let mut text = format!("key: {name}");
            if let Some(value) = value {
                let _: std::fmt::Result = write!(text, ", value: {}", value.get(values));
            }
            descriptors.push(text);
        }
        if let Some((at, value)) = masked {
            let (masks, values) = MASKED[at];
            let value = value.get(values);
            descriptors.push(format!("key: masked_remote_address, {value}{masks}"));
        }
        if descriptors.is_empty() {
            descriptors.push("key: generic_key, value: all".to_owned());
        }
        if direction != "in" {
            let _: std::fmt::Result = write!(descriptors[0], ", direction: {direction}");
        }
        let inner = format!("{{{}, {terms}}}", descriptors.pop().unwrap());
        descriptors
            .iter()
            .rev()
            .fold(inner, |inner, outer| format!("{{{outer}, descriptors: [{inner}]}}"))
    })
}

fn terms() -> impl Strategy<Value = String> {
    let limit = || prop::sample::select(LIMITS.to_vec());
    prop_oneof![
        8 => limit().prop_map(|limit| format!("rate_limit: {limit}")),
        2 => (limit(), limit()).prop_map(|(one, two)| format!("rate_limits: [{one}, {two}]")),
        3 => Just("rate_limit: {unlimited: true}".to_owned()),
        1 => Just("action: drop".to_owned()),
        1 => Just("budget: shared".to_owned()),
        1 => limit().prop_map(|limit| format!("rate_limit: {limit}, shadow_mode: true")),
        1 => limit().prop_map(|limit| format!("rate_limit: {limit}, action: {{mark: {{dscp: 8}}}}")),
    ]
}

/// Rule files of so many rules. Some are refused.
pub(crate) fn files(rules: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let budget = prop::sample::select(LIMITS.to_vec());
    (prop::collection::vec(rule(), rules), budget).prop_map(|(rules, budget)| {
        let mut text = format!("budgets: [{{name: shared, rate_limit: {budget}}}]\ndescriptors:\n");
        for rule in rules {
            let _: std::fmt::Result = writeln!(text, "  - {rule}");
        }
        text
    })
}
