//! As many rules as there is room for.

use std::sync::Arc;
use std::time::Instant;

use limiter_rules::model::Part;
use limiter_rules::{Path, Rule, RuleSet};
use limiter_tests::packet::Frame;
use limiter_tests::program::{Program, rule_set};
use limiter_tests::root::require_root;

use super::{START, at, passed, udp, v4};

/// Eight tables; the rule for each source of the last one is still to be multiplied.
const TABLES: &str = "descriptors:
  - {key: vlan, rate_limit: {unit: day, requests_per_unit: 200}}
  - {key: dscp, rate_limit: {unit: day, requests_per_unit: 200}}
  - {key: protocol, rate_limit: {unit: day, requests_per_unit: 200}}
  - {key: tcp_flags, rate_limit: {unit: day, requests_per_unit: 200}}
  - {key: interface, rate_limit: {unit: day, requests_per_unit: 200}}
  - {key: destination_address, rate_limit: {unit: day, requests_per_unit: 200}}
  - {key: masked_remote_address, v4_prefix_mask_len: 16, rate_limit: {unit: day, \
  requests_per_unit: 200}}
  - key: destination_port
    descriptors:
      - {key: remote_address, value: 10.0.0.0, rate_limit: {unit: day, requests_per_unit: 3}}
";

const RULES: u32 = 100_000;

fn address(index: u32) -> [u8; 4] {
    (0x0a00_0000 + index * 7).to_be_bytes()
}

fn many() -> RuleSet {
    let mut set = rule_set(TABLES).unwrap();
    let template = set.rules.pop().unwrap();
    for index in 0..RULES {
        let net = std::net::IpAddr::from(address(index)).into();
        let parts = template.path.parts.iter().map(|part| match part {
            Part::Source(masks, _) => Part::Source(*masks, Some(net)),
            other => other.clone(),
        });
        let path = Path::of(parts.collect::<Vec<_>>());
        set.rules.push(Arc::new(Rule { path, ..Rule::clone(&template) }));
    }
    set
}

#[test]
fn eight_tables_and_a_hundred_thousand_rules_load_and_match() {
    require_root();
    let set = many();
    let mut program = Program::load(4096, 120_000).unwrap();
    let begun = Instant::now();
    let plan = program.apply(&set).unwrap();
    let elapsed = begun.elapsed();
    eprintln!("{RULES} rules planned and committed in {elapsed:.1?}");
    assert_eq!(plan.tables.tables.len(), 8);
    at(&program, START);
    for index in (0..RULES).step_by(9_973) {
        let frame = Frame::ipv4(address(index), [198, 51, 100, 1]).vlan(7).transport(udp(53));
        assert_eq!(passed(&program, &frame.build(), 9), 3, "rule {index}");
    }
    assert_eq!(passed(&program, &v4(1).transport(udp(53)).build(), 9), 9, "no rule in one table");
    // An unchanged rule set changes nothing.
    let plan = program.apply(&set).unwrap();
    assert!(plan.tables.records.is_empty());
}
