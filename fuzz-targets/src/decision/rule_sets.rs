//! The rule sets of the stories: the examples, and small ones that are reached within a few frames.

use super::bucket::Limit;

const SECOND: u64 = 1_000_000_000;

/// Rule sets that a story chooses from.
pub const COUNT: usize = SETS.len();

/// Texts of the rule sets.
pub fn texts() -> impl Iterator<Item = &'static str> {
    SETS.iter().map(|(text, _)| *text)
}

/// Rule set of an index, with its limit if it has no more than one, on every source.
pub(super) fn of(index: u8) -> (&'static str, Option<Limit>) {
    SETS[usize::from(index) % SETS.len()]
}

const fn packets(rate: u64, period: u64, burst: u64) -> Limit {
    Limit { bytes: false, rate, period, burst }
}

const SETS: [(&str, Option<Limit>); 20] = [
    (
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: second, \
             requests_per_unit: 3, burst: 2}}\n",
        Some(packets(3, SECOND, 2)),
    ),
    (
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: week, requests_per_unit: \
             1, burst: 1}}\n",
        Some(packets(1, 604_800 * SECOND, 1)),
    ),
    (
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: second, \
             requests_per_unit: 7000, burst: 1600, count: bytes}}\n",
        Some(Limit { bytes: true, rate: 7000, period: SECOND, burst: 1600 }),
    ),
    (
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: second, \
             requests_per_unit: 299999999, burst: 3}}\n",
        Some(packets(299_999_999, SECOND, 3)),
    ),
    (
        "descriptors:\n  - {key: remote_address, rate_limit: {unlimited: true}}\n  - {key: \
             remote_address, value: 192.0.2.0/24, shadow_mode: true, rate_limit: {unit: minute, \
             requests_per_unit: 2, burst: 1}}\n",
        None,
    ),
    // Every algorithm, by another key each.
    (
        "descriptors:\n  - {key: destination_port, descriptors: [{key: remote_address, \
             rate_limit: {unit: second, requests_per_unit: 2, algorithm: sliding_log}}]}\n  - \
             {key: protocol, rate_limit: {unit: second, requests_per_unit: 9, algorithm: \
             sliding_counter}}\n  - {key: tcp_flags, rate_limit: {unit: second, \
             requests_per_unit: 5, algorithm: fixed_window}}\n  - {key: dscp, rate_limit: {unit: \
             second, requests_per_unit: 50, algorithm: leaky_bucket, backlog: 10ms}}\n  - {key: \
             vlan, rate_limit: {unit: second, requests_per_unit: 20, algorithm: sliding_slots, \
             slots: 4, strict: true}}\n",
        None,
    ),
    // Several limits, soft ones, flows and handshakes.
    (
        "descriptors:\n  - key: remote_address\n    rate_limits:\n      - {unit: second, \
             requests_per_unit: 5, burst: 3, ceiling: {unit: second, requests_per_unit: 10, \
             burst: 8}, mark: {ecn: true}}\n      - {unit: minute, requests_per_unit: 4, burst: \
             4, count: syns}\n      - {unit: minute, requests_per_unit: 6, burst: 6, count: \
             flows}\n",
        None,
    ),
    // Answers.
    (
        "replies: {unit: second, requests_per_unit: 5, burst: 3}\ndescriptors:\n  - {key: \
             remote_address, rate_limit: {unit: second, requests_per_unit: 2, burst: 1}, action: \
             reject}\n",
        None,
    ),
    // Bans.
    (
        "bans: {unit: second, requests_per_unit: 5, burst: 2}\ndescriptors:\n  - {key: \
             remote_address, rate_limit: {unit: second, requests_per_unit: 2, burst: 1}, action: \
             {ban: {strikes: 2, first: 2s, longest: 10s, memory: 1min, evidence: none}}}\n",
        None,
    ),
    // A slower class, and a budget of several rules.
    (
        "budgets:\n  - {name: slow, rate_limit: {unit: second, requests_per_unit: 2, burst: \
             2}}\n  - {name: shared, rate_limit: {unit: second, requests_per_unit: 3, burst: \
             3}}\ndescriptors:\n  - {key: remote_address, rate_limit: {unit: second, \
             requests_per_unit: 2, burst: 1}, action: {class: slow}}\n  - {key: destination_port, \
             value: 53, budget: shared}\n  - {key: destination_port, value: 443, budget: shared}\n",
        None,
    ),
    // Everything together, networks, other ways out.
    (
        "descriptors:\n  - {key: masked_remote_address, v4_prefix_mask_len: 24, \
             v6_prefix_mask_len: 48, rate_limit: {unit: second, requests_per_unit: 8, burst: 4}, \
             action: {interface: lo}}\n  - {key: destination_address, rate_limit: {unit: second, \
             requests_per_unit: 8, burst: 4}, action: {cpu: 1}}\n  - {key: generic_key, value: \
             all, rate_limit: {unit: second, requests_per_unit: 50, burst: 20}, action: {mark: \
             {dscp: cs1}}}\n",
        None,
    ),
    (include_str!("../../../examples/api-edge.yaml"), None),
    (include_str!("../../../examples/crawlers.yaml"), None),
    (include_str!("../../../examples/dns.yaml"), None),
    (include_str!("../../../examples/game-server.yaml"), None),
    (include_str!("../../../examples/hosting.yaml"), None),
    (include_str!("../../../examples/ssh-box.yaml"), None),
    ("descriptors: []\n", None),
    // Pieces, tunnels, messages of ICMP, and sources that no host has.
    (
        "martians: drop\ndescriptors:\n  - {key: fragment, descriptors: [{key: \
             remote_address, rate_limit: {unit: second, requests_per_unit: 3, burst: 2}}]}\n  - \
             {key: inner_remote_address, rate_limit: {unit: second, requests_per_unit: 2, burst: \
             2}}\n  - {key: inner_remote_address, value: 10.0.0.0/8, rate_limit: {unit: second, \
             requests_per_unit: 2, burst: 1}}\n  - {key: icmp_type, rate_limit: {unit: second, \
             requests_per_unit: 3, burst: 3}}\n",
        None,
    ),
    // What goes out, and both directions.
    (
        "budgets:\n  - {name: slow, rate_limit: {unit: second, requests_per_unit: 2, burst: \
             2}}\ndescriptors:\n  - {key: remote_address, direction: out, rate_limit: {unit: \
             second, requests_per_unit: 3, burst: 2}, action: {class: slow}}\n  - {key: \
             remote_address, direction: both, rate_limit: {unit: second, requests_per_unit: 5, \
             burst: 4}}\n  - {key: destination_port, value: 53, direction: out, descriptors: \
             [{key: source_address, rate_limit: {unit: second, requests_per_unit: 3, burst: \
             2}}]}\n  - {key: destination_port, direction: both, budget: slow}\n  - {key: \
             generic_key, value: all, direction: out, rate_limit: {unit: second, \
             requests_per_unit: 9, burst: 9}}\n",
        None,
    ),
];
