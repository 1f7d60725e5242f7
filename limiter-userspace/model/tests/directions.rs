//! A packet meets the rules of its direction and those of both, whatever their keys.

#![expect(clippy::unwrap_used, reason = "a failed conversion is a failed test")]

use std::fmt::Write as _;

use limiter_common::header::Direction;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_model::{Framing, Model, Packet};
use limiter_rules::{Environment, RuleFile};

const NOW: Ticks = Ticks::new(1 << 40);

/// Keys of rules, by the direction of which each has another name, and the protocol of a packet
/// that each is for.
const KEYS: [(&str, u8); 16] = [
    ("key: remote_address", 17),
    ("key: remote_address, value: 192.0.2.1", 17),
    ("key: masked_remote_address, v4_prefix_mask_len: 24", 17),
    ("key: generic_key, value: all", 17),
    ("key: destination_port", 17),
    ("key: destination_port, value: 9", 17),
    ("key: destination_port, value: 5-20", 17),
    ("key: source_port, value: 9", 17),
    ("key: protocol, value: udp", 17),
    ("key: protocol", 1),
    ("key: icmp_type, value: echo-reply", 1),
    ("key: tcp_flags, value: syn-ack", 6),
    ("key: packet_length, value: 1-100", 17),
    ("key: ttl, value: 64", 17),
    ("key: dscp, value: 0", 17),
    ("key: fragment, value: whole", 17),
];

/// A packet that looks the same from both ends, but for its addresses.
fn frame(protocol: u8) -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend([192, 0, 2, 1, 192, 0, 2, 1]);
    match protocol {
        1 => frame.extend([0; 20]),
        6 => frame.extend([0, 9, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0]),
        _ => frame.extend([0, 9, 0, 9, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    }
    frame
}

fn reason(rules: &str, protocol: u8, direction: Direction) -> Reason {
    let mut model = Model::new();
    let set = RuleFile::parse("t.yaml", rules.as_bytes(), 1522).unwrap().rules;
    let machine = Environment { in_at_tc: Some(true), ..Environment::of_frame(1522) };
    let plan = model.installed().plan(&set, 1, 1024, &machine).unwrap();
    model.commit(plan, NOW);
    let frame = frame(protocol);
    model.judge_packet(&Packet::at_tc(Framing::Ethernet, &frame, direction, None, 1), NOW).reason
}

#[test]
fn a_packet_meets_the_rules_of_its_direction_and_of_both() {
    // Without another rule, and beside rules of other tables and of each direction.
    let besides = ["", "out", "both", "in"];
    for (keys, protocol) in KEYS {
        for of_rule in ["in", "out", "both"] {
            for beside in besides {
                let mut rules = "descriptors:\n".to_owned();
                let mut add = |keys: &str, direction: &str| {
                    let limit = "rate_limit: {rate: 9/s}";
                    writeln!(rules, "  - {{{keys}, direction: {direction}, {limit}}}").unwrap();
                };
                add(keys, of_rule);
                if !beside.is_empty() {
                    add("key: vlan, value: 7", beside);
                }
                for (direction, name) in [(Direction::In, "in"), (Direction::Out, "out")] {
                    let meets = of_rule == "both" || of_rule == name;
                    let expected = if meets { Reason::Conforming } else { Reason::NoRule };
                    let reason = reason(&rules, protocol, direction);
                    assert_eq!(reason, expected, "{name} beside {beside:?}: {rules}");
                }
            }
        }
    }
}
