//! One source, its network and a shared budget at once.

use limiter_tests::packet::Frame;

use super::{passed, program, v4, v6};

#[test]
fn a_source_and_its_slash_24_are_limited_at_once() {
    let program = program(
        "descriptors:
  - key: remote_address
    rate_limit: {unit: day, requests_per_unit: 3}
    aggregates: [{v4_prefix_mask_len: 24, rate_limit: {unit: day, requests_per_unit: 5}}]
",
    );
    assert_eq!(passed(&program, &v4(1).build(), 9), 3);
    assert_eq!(passed(&program, &v4(2).build(), 9), 2);
    assert_eq!(passed(&program, &v4(3).build(), 9), 0);
    assert_eq!(passed(&program, &Frame::ipv4([192, 0, 3, 1], [198, 51, 100, 1]).build(), 9), 3);
    assert_eq!(passed(&program, &v6(1, 1).build(), 9), 3, "no mask, no aggregate");
}

#[test]
fn an_ipv6_host_its_64_its_56_and_its_48_are_limited_at_once() {
    let program = program(
        "descriptors:
  - key: masked_remote_address
    v6_prefix_mask_len: 128
    rate_limit: {unit: day, requests_per_unit: 2}
    aggregates:
      - {v6_prefix_mask_len: 64, rate_limit: {unit: day, requests_per_unit: 5}}
      - {v6_prefix_mask_len: 56, rate_limit: {unit: day, requests_per_unit: 9}}
      - {v6_prefix_mask_len: 48, rate_limit: {unit: day, requests_per_unit: 12}}
",
    );
    let send = |subnet, last| passed(&program, &v6(subnet, last).build(), 20);
    // A /64 has five: two hosts of two, and one of what is left.
    assert_eq!([send(1, 1), send(1, 2), send(1, 3), send(1, 4)], [2, 2, 1, 0]);
    // The /56 has nine, so four are left for another /64 of it.
    assert_eq!([send(2, 1), send(2, 2), send(2, 3)], [2, 2, 0]);
    // The /48 has twelve, so three are left for another /56 of it.
    assert_eq!([send(0x100, 1), send(0x100, 2), send(0x100, 3)], [2, 1, 0]);
}

#[test]
fn a_budget_is_shared_by_prefixes_of_both_families_and_by_tables() {
    let program = program(
        "budgets: [{name: customer, rate_limit: {unit: day, requests_per_unit: 10}}]
descriptors:
  - {key: remote_address, value: [192.0.2.0/28, 192.0.2.64/28, '2001:db8::/48'], budget: customer}
  - {key: vlan, value: 7, budget: customer}
",
    );
    assert_eq!(passed(&program, &v4(1).build(), 3), 3);
    assert_eq!(passed(&program, &v4(65).build(), 3), 3);
    assert_eq!(passed(&program, &v6(1, 1).build(), 3), 3);
    let other = Frame::ipv4([203, 0, 113, 1], [198, 51, 100, 1]);
    assert_eq!(passed(&program, &other.clone().vlan(7).build(), 3), 1);
    assert_eq!(passed(&program, &v4(2).build(), 3), 0, "a source never seen");
    assert_eq!(passed(&program, &v4(200).build(), 3), 3, "no rule");
    assert_eq!(passed(&program, &other.build(), 3), 3, "no rule");
    let budget = program.budget(0).unwrap();
    assert_eq!(budget.words.iter().filter(|word| **word >> 1 != 0).count(), 1);
}
