//! Each descriptor matches and keys as docs/rules.md says.

use limiter_common::verdict::Reason;
use limiter_common::wire::{FRAGMENT_SHIFT, FlagClass, TableKey, field};
use limiter_tests::packet::{Extension, Fragment, Frame, Transport};

use super::{begin_anew, halves, keyed, mapped, passed, program, reason, tcp, udp, v4, v6};

const TWO: &str = "rate_limit: {unit: day, requests_per_unit: 2}";
const NO_KEY: TableKey = TableKey::EMPTY;

/// A table with one key: the first two frames have it with different values, the third has it not.
fn keys(rule: &str, fields: u32, with: [(&Frame, TableKey); 2], without: Option<&Frame>) {
    let program = program(&format!("descriptors: [{{{rule}, {TWO}}}]"));
    for (frame, key) in with {
        let frame = frame.build();
        assert_eq!(keyed(&program, fields, key), None, "{rule}: no packet yet");
        assert_eq!(passed(&program, &frame, 5), 2, "{rule}: {key:?}");
        let bucket = keyed(&program, fields, key).unwrap();
        assert_eq!((bucket.passed, bucket.dropped), (2, 3), "{rule}: {key:?}");
    }
    if let Some(frame) = without {
        let frame = frame.build();
        assert_eq!(passed(&program, &frame, 5), 5, "{rule}: a packet without the key");
        assert_eq!(reason(&program, &frame), Reason::NoRule, "{rule}");
    }
}

#[test]
fn a_masked_source_keys_by_its_prefix() {
    let net = |second: [u8; 4]| TableKey { version: 4, source: mapped(second), ..NO_KEY };
    let rule = "key: masked_remote_address, v4_prefix_mask_len: 24";
    let other = Frame::ipv4([192, 0, 3, 9], [198, 51, 100, 1]);
    let with = [(&v4(77), net([192, 0, 2, 0])), (&other, net([192, 0, 3, 0]))];
    keys(rule, field::SOURCE, with, Some(&v6(1, 1)));
}

#[test]
fn a_whole_ipv6_address_is_a_key_if_the_mask_says_so() {
    let source = |last| {
        let mut address = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        address[15] = last;
        TableKey { version: 6, source: halves(address), ..NO_KEY }
    };
    let rule = "key: masked_remote_address, v6_prefix_mask_len: 128";
    keys(rule, field::SOURCE, [(&v6(1, 1), source(1)), (&v6(1, 2), source(2))], Some(&v4(1)));
}

#[test]
fn a_destination_is_the_whole_address_of_either_family() {
    let mut to = [0; 16];
    (to[0], to[15]) = (0xfd, 1);
    let with = [
        (&v4(1), TableKey { version: 4, destination: mapped([198, 51, 100, 1]), ..NO_KEY }),
        (&v6(1, 1), TableKey { version: 6, destination: halves(to), ..NO_KEY }),
    ];
    keys("key: destination_address", field::DESTINATION, with, None);
}

#[test]
fn a_port_is_one_of_tcp_or_udp_and_a_ping_has_none() {
    let port = |port| TableKey { destination_port: port, ..NO_KEY };
    let with = [(&v4(1).transport(udp(53)), port(53)), (&v6(1, 1).transport(tcp(2, 22)), port(22))];
    let ping = v4(1).transport(Transport::Echo { id: 1, sequence: 1 });
    keys("key: destination_port", field::DESTINATION_PORT, with, Some(&ping));
}

#[test]
fn a_later_fragment_has_no_port() {
    let program = program(&format!("descriptors: [{{key: destination_port, {TWO}}}]"));
    let later = v4(1).fragment(Fragment { id: 1, offset: 10, more: false }).payload(&[0; 40]);
    assert_eq!(passed(&program, &later.build(), 5), 5);
}

#[test]
fn a_protocol_is_found_behind_extension_headers() {
    let protocol = |protocol| TableKey { protocol, ..NO_KEY };
    let chain = v6(1, 1).extension(Extension::HopByHop(0)).transport(udp(53));
    let with = [(&v4(1).transport(Transport::Raw(47)), protocol(47)), (&chain, protocol(17))];
    keys("key: protocol", field::PROTOCOL, with, None);
}

#[test]
fn tcp_flags_are_classes_and_udp_has_none() {
    let classes = [
        (2, FlagClass::Syn),
        (18, FlagClass::SynAck),
        (4, FlagClass::Rst),
        (17, FlagClass::Fin),
        (16, FlagClass::Ack),
        (8, FlagClass::Other),
    ];
    let program = program(&format!("descriptors: [{{key: tcp_flags, {TWO}}}]"));
    for (flags, class) in classes {
        let frame = v4(1).transport(tcp(flags, 80)).build();
        assert_eq!(passed(&program, &frame, 5), 2, "{}", class.name());
        let key = TableKey { flags: class as u8, ..NO_KEY };
        assert_eq!(keyed(&program, field::TCP_FLAGS, key).unwrap().passed, 2, "{}", class.name());
    }
    assert_eq!(passed(&program, &v4(1).transport(udp(80)).build(), 5), 5);
}

/// Pings of both families are one message, and so have one bucket where no address is a key.
#[test]
fn an_icmp_type_is_a_message_of_both_families() {
    let program = program(&format!("descriptors: [{{key: icmp_type, {TWO}}}]"));
    let icmp = |frame: Frame, kind| frame.transport(Transport::Icmp { kind, code: 0 }).build();
    for (message, of_v4, of_v6) in [
        (8, 8, 128),
        (0, 0, 129),
        (3, 3, 1),
        (11, 11, 3),
        (12, 12, 4),
        (5, 5, 137),
        (9, 9, 134),
        (10, 10, 133),
    ] {
        assert_eq!(passed(&program, &icmp(v4(1), of_v4), 1), 1, "{of_v4}");
        assert_eq!(passed(&program, &icmp(v6(1, 1), of_v6), 5), 1, "{of_v6}");
        assert_eq!(passed(&program, &icmp(v4(2), of_v4), 1), 0, "{of_v4}");
        let key = TableKey { destination_port: message, ..NO_KEY };
        let bucket = keyed(&program, field::ICMP_TYPE, key).unwrap();
        assert_eq!((bucket.passed, bucket.dropped), (2, 5), "{message}");
    }
    // Each number that only one of them has is a message of its own.
    for (frame, message) in
        [(icmp(v4(1), 4), 4), (icmp(v6(1, 1), 2), 2), (icmp(v6(1, 1), 143), 143)]
    {
        assert_eq!(passed(&program, &frame, 5), 2);
        let key = TableKey { destination_port: message, ..NO_KEY };
        assert_eq!(keyed(&program, field::ICMP_TYPE, key).unwrap().passed, 2, "{message}");
    }
}

/// A rule with a name is for that message of either family. A later fragment has no type, and
/// neither has what is not ICMP, be it in the table of ports with the same number.
#[test]
fn an_icmp_type_is_that_of_an_icmp_header_in_the_frame() {
    let program = program(&format!(
        "descriptors: [{{key: icmp_type, value: echo-request, {TWO}}}, {{key: destination_port, \
         {TWO}}}]"
    ));
    let ping = Transport::Echo { id: 1, sequence: 1 };
    let later = v4(1).transport(ping).fragment(Fragment { id: 1, offset: 10, more: false });
    let other = Transport::Icmp { kind: 0, code: 0 };
    // The other family's protocol number is not its own ICMP.
    let foreign = v6(1, 1).transport(Transport::Raw(1)).payload(&[8; 8]);
    for frame in [later.payload(&[8; 40]), v4(1).transport(other), foreign] {
        assert_eq!(passed(&program, &frame.build(), 5), 5, "{frame:?}");
    }
    // The bucket of port 8.
    assert_eq!(passed(&program, &v4(1).transport(udp(8)).build(), 2), 2);
    let first = v6(1, 1).transport(ping).fragment(Fragment { id: 1, offset: 0, more: true });
    assert_eq!(passed(&program, &first.payload(&[0; 32]).build(), 5), 2);
    assert_eq!(passed(&program, &v4(1).transport(ping).build(), 5), 0);
    assert_eq!(reason(&program, &v4(1).transport(ping).build()), Reason::OverLimit);
    assert_eq!(passed(&program, &v4(1).transport(udp(8)).build(), 2), 0);
}

#[test]
fn icmp_types_are_found_where_they_are() {
    let ping = Transport::Echo { id: 1, sequence: 1 };
    let (v4, v6) = (v4(1).transport(ping), v6(1, 1).transport(ping));
    let chain = |headers: u32| {
        (0..headers).fold(v6.clone(), |frame, _| frame.extension(Extension::Destination(0)))
    };
    let piece = |offset, more| Fragment { id: 1, offset, more };
    let (first, later, atomic) = (piece(0, true), piece(185, false), piece(0, false));
    let cut = |frame: Frame, length: usize| frame.build()[..length].to_vec();
    let (mut program, mut days) = (program("descriptors: []"), 0);
    for (what, frame, known) in [
        ("options", v4.clone().options(&[1; 40]).build(), true),
        ("two tags", v4.clone().vlan(1).vlan(2).build(), true),
        ("first fragment", v4.clone().fragment(first).payload(&[0; 64]).build(), true),
        ("later fragment", v4.clone().fragment(later).payload(&[8; 64]).build(), false),
        ("type alone", cut(v4.clone(), 35), false),
        ("type and code", cut(v4.clone(), 36), true),
        ("six extensions", chain(6).build(), true),
        ("seven extensions", chain(7).build(), false),
        ("first of IPv6", v6.clone().fragment(first).payload(&[0; 64]).build(), true),
        ("later of IPv6", v6.clone().fragment(later).payload(&[128; 64]).build(), false),
        ("atomic", v6.clone().fragment(atomic).payload(&[0; 64]).build(), true),
        ("ICMP in IPv6", v6.clone().transport(Transport::Raw(1)).payload(&[8; 8]).build(), false),
        (
            "ICMPv6 in IPv4",
            v4.clone().transport(Transport::Raw(58)).payload(&[128; 8]).build(),
            false,
        ),
    ] {
        let mut of_five = |keys: &str| {
            let rules = format!("descriptors: [{{{keys}, {TWO}}}]");
            days += 1;
            begin_anew(&mut program, &rules, days);
            passed(&program, &frame, 5)
        };
        let of_type = of_five("key: icmp_type, value: echo-request");
        assert_eq!(of_type, if known { 2 } else { 5 }, "{what}");
        assert_eq!(of_five("key: remote_address"), 2, "{what}: by source");
    }
}

/// Six extension headers are walked. Behind one more nobody knows what there is: it counts as an
/// attempt to open a connection and as a later fragment, whatever it is, and has no port.
#[test]
fn what_is_behind_a_deep_chain_counts_as_a_syn_and_a_later_fragment() {
    let behind = |headers: u32, transport: Transport| {
        let frame =
            (0..headers).fold(v6(1, 1), |frame, _| frame.extension(Extension::Destination(0)));
        frame.transport(transport).build()
    };
    let syns = "key: remote_address, rate_limit: {unit: day, requests_per_unit: 2, count: syns}";
    let (mut program, mut days) = (program("descriptors: []"), 0);
    // Of five, as many pass: of a SYN behind six headers, and of a SYN or a datagram behind seven.
    for (rule, of_six, of_seven) in [
        (format!("key: tcp_flags, value: syn, {TWO}"), 2, 2),
        (format!("key: tcp_flags, value: ack, {TWO}"), 5, 5),
        (format!("key: destination_port, value: 80, {TWO}"), 2, 5),
        (syns.to_owned(), 2, 2),
        (format!("key: fragment, value: later, {TWO}"), 5, 2),
        (format!("key: remote_address, {TWO}"), 2, 2),
    ] {
        let mut of_five = |frame: &[u8]| {
            days += 1;
            begin_anew(&mut program, &format!("descriptors: [{{{rule}}}]"), days);
            passed(&program, frame, 5)
        };
        assert_eq!(of_five(&behind(6, tcp(2, 80))), of_six, "{rule}: six");
        for transport in [tcp(2, 80), udp(80)] {
            let passed = of_five(&behind(7, transport));
            assert_eq!(passed, of_seven, "{rule}: {transport:?} behind seven");
        }
    }
}

/// Frames of a test run come in by the loopback interface of the namespace, index 1.
#[test]
fn an_interface_is_the_one_that_the_frame_came_in_by() {
    let lo = program(&format!("descriptors: [{{key: interface, value: lo, {TWO}}}]"));
    assert_eq!(passed(&lo, &v4(1).build(), 5), 2);
    let key = TableKey { interface: 1, ..NO_KEY };
    assert_eq!(keyed(&lo, field::INTERFACE, key).unwrap().passed, 2);
    let other = program(&format!("descriptors: [{{key: interface, value: other, {TWO}}}]"));
    assert_eq!(passed(&other, &v4(1).build(), 5), 5);
}

#[test]
fn a_vlan_is_the_outer_tag_and_untagged_frames_have_none() {
    let vlan = |vlan| TableKey { vlan, ..NO_KEY };
    let with = [(&v4(1).vlan(5), vlan(5)), (&v4(1).vlan(7).vlan(5), vlan(7))];
    keys("key: vlan", field::VLAN, with, Some(&v4(1)));
}

#[test]
fn a_dscp_is_six_bits_of_both_families_and_ecn_is_not_looked_at() {
    let program = program(&format!("descriptors: [{{key: dscp, {TWO}}}]"));
    let mut frame = v4(1).build();
    for ecn in 0..2 {
        frame[15] = 46 << 2 | ecn;
        assert_eq!(passed(&program, &frame, 1), 1);
    }
    let mut frame = v6(1, 1).build();
    (frame[14], frame[15]) = (0x60 | 46 >> 2, 0x81);
    assert_eq!(reason(&program, &frame), Reason::OverLimit);
    let bucket = keyed(&program, field::DSCP, TableKey { dscp: 46, ..NO_KEY }).unwrap();
    assert_eq!((bucket.passed, bucket.dropped), (2, 1));
    // No DSCP is a DSCP: the one that is zero.
    assert_eq!(passed(&program, &v4(1).build(), 5), 2);
}

#[test]
fn a_generic_key_alone_is_for_all_packets_together() {
    let program = program(&format!("descriptors: [{{key: generic_key, value: all, {TWO}}}]"));
    assert_eq!(passed(&program, &v4(1).build(), 1), 1);
    assert_eq!(passed(&program, &v6(9, 1).build(), 1), 1);
    assert_eq!(passed(&program, &v4(2).build(), 5), 0);
}

#[test]
fn a_generic_key_beside_others_is_not_looked_at() {
    let program = program(&format!(
        "descriptors: [{{key: generic_key, value: x, descriptors: [{{key: vlan, {TWO}}}]}}]"
    ));
    assert_eq!(passed(&program, &v4(1).vlan(5).build(), 5), 2);
    assert_eq!(passed(&program, &v4(1).build(), 5), 5);
}

#[test]
fn several_keys_are_one_bucket_for_each_combination() {
    let program = program(&format!(
        "descriptors: [{{key: destination_port, value: 22, descriptors: [{{key: remote_address, \
         {TWO}}}]}}]"
    ));
    for frame in [v4(1), v4(2), v6(1, 1)] {
        assert_eq!(passed(&program, &frame.transport(tcp(2, 22)).build(), 5), 2);
    }
    // Another address of that /64.
    assert_eq!(passed(&program, &v6(1, 2).transport(tcp(2, 22)).build(), 5), 0);
    assert_eq!(passed(&program, &v4(1).transport(tcp(2, 23)).build(), 5), 5);
}

/// The outer key weighs most, and any value is more specific than none.
#[test]
fn the_most_specific_rule_wins() {
    let program = program(
        "descriptors:
  - key: destination_port
    value: 443
    descriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 9}}]
  - key: destination_port
    descriptors:
      - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 1}}
      - {key: remote_address, value: 192.0.2.0/24, rate_limit: {unit: day, requests_per_unit: 2}}
      - {key: remote_address, value: 192.0.2.0/30, rate_limit: {unit: day, requests_per_unit: 3}}
      - {key: remote_address, value: 192.0.2.1, rate_limit: {unlimited: true}}
      - {key: remote_address, value: '2001:db8::/32', rate_limit: {unit: day, requests_per_unit: 4}}
",
    );
    let to = |frame: Frame, port| passed(&program, &frame.transport(udp(port)).build(), 12);
    assert_eq!(to(v4(9), 443), 9);
    assert_eq!(to(v4(9), 80), 2);
    assert_eq!(to(v4(2), 80), 3);
    assert_eq!(to(v4(1), 80), 12);
    assert_eq!(to(v4(1), 443), 9);
    assert_eq!(to(v6(3, 1), 80), 4);
    assert_eq!(to(Frame::ipv4([203, 0, 113, 1], [198, 51, 100, 1]), 80), 1);
}

#[test]
fn the_longest_destination_prefix_wins() {
    let program = program(
        "descriptors:
  - {key: destination_address, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: destination_address, value: 198.51.0.0/16, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: destination_address, value: 198.51.100.0/24, rate_limit: {unit: day, requests_per_unit: \
  3}}
",
    );
    let to = |to: [u8; 4]| passed(&program, &Frame::ipv4([192, 0, 2, 1], to).build(), 9);
    assert_eq!(to([198, 51, 100, 1]), 3);
    assert_eq!(to([198, 51, 7, 1]), 2);
    assert_eq!(to([8, 8, 8, 8]), 1);
}

#[test]
fn a_fragment_is_whole_first_or_later() {
    let piece = |offset, more| v4(1).fragment(Fragment { id: 1, offset, more }).payload(&[0; 40]);
    let key = |piece: u8| TableKey { flags: piece << FRAGMENT_SHIFT, ..NO_KEY };
    keys("key: fragment", field::FRAGMENT, [(&v4(1), key(0)), (&piece(0, true), key(1))], None);
    let later = |v6: bool| {
        let position = Fragment { id: 1, offset: 9, more: true };
        if v6 { self::v6(1, 1).fragment(position).payload(&[0; 40]) } else { piece(9, true) }
    };
    for v6 in [false, true] {
        let program = program(&format!("descriptors: [{{key: fragment, value: later, {TWO}}}]"));
        assert_eq!(passed(&program, &later(v6).build(), 5), 2);
        assert_eq!(
            passed(&program, &piece(0, true).build(), 5),
            5,
            "the first one is no later one"
        );
        assert_eq!(passed(&program, &v4(1).build(), 5), 5);
    }
}

/// A budget of later fragments beside the source's own limit: both hold.
#[test]
fn later_fragments_have_a_budget_of_their_own() {
    let program = program(
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 6}}\n  \
         - {key: fragment, value: later, descriptors: [{key: remote_address, rate_limit: {unit: \
         day, \
         requests_per_unit: 2}}]}\n",
    );
    let later = v4(1).fragment(Fragment { id: 1, offset: 9, more: true }).payload(&[0; 40]);
    assert_eq!(passed(&program, &later.build(), 5), 2);
    // Of the six, two are used up.
    assert_eq!(passed(&program, &v4(1).build(), 9), 4);
}

/// Extension headers without end hide a fragment header: they are charged as later fragments.
#[test]
fn a_chain_too_deep_is_charged_as_a_later_fragment() {
    let program = program(&format!("descriptors: [{{key: fragment, value: later, {TWO}}}]"));
    let deep = (0..7).fold(v6(1, 1), |frame, _| frame.extension(Extension::Destination(0)));
    assert_eq!(passed(&program, &deep.build(), 5), 2);
}

#[test]
fn an_inner_source_is_that_of_the_packet_in_the_tunnel() {
    let inside = |frame: Frame| frame.payload(&[0; 8]).build()[14..].to_vec();
    let ipip = v4(1)
        .transport(Transport::Raw(4))
        .payload(&inside(Frame::ipv4([10, 0, 0, 7], [10, 0, 0, 8])));
    let six = v6(1, 1).transport(Transport::Raw(41)).payload(&inside(v6(7, 9)));
    let mut prefix = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    prefix[8..].fill(0);
    let with = [
        (&ipip, TableKey { version: 4, source: mapped([10, 0, 0, 7]), ..NO_KEY }),
        (&six, TableKey { version: 6, source: halves(prefix), ..NO_KEY }),
    ];
    keys("key: inner_remote_address", field::INNER, with, Some(&v4(1)));
}

/// Two outer sources that carry the same inner one share its bucket, and each has its own as well.
#[test]
fn an_inner_source_is_limited_through_any_tunnel() {
    let program = program(
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 4}}\n  \
         - {key: inner_remote_address, value: 10.0.0.0/8, rate_limit: {unit: day, \
         requests_per_unit: 5}}\n",
    );
    let inside = Frame::ipv4([10, 0, 0, 7], [10, 0, 0, 8]).build()[14..].to_vec();
    let through = |last| v4(last).transport(Transport::Raw(4)).payload(&inside).build();
    assert_eq!(passed(&program, &through(1), 9), 4, "the outer limit");
    assert_eq!(passed(&program, &through(2), 9), 1, "what is left of the inner one");
    assert_eq!(passed(&program, &v4(2).build(), 9), 3, "what is left of the second outer one");
}

/// An IPv6 packet may claim the address that stands for an IPv4 source. It is another source.
#[test]
fn an_ipv4_mapped_source_is_not_the_ipv4_source() {
    let mut claimed = [0; 16];
    claimed[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
    let mut to = [0; 16];
    (to[0], to[15]) = (0xfd, 1);
    let mapped = Frame::ipv6(claimed, to).build();
    let all = [
        "key: remote_address",
        "key: masked_remote_address, v4_prefix_mask_len: 32, v6_prefix_mask_len: 128",
        "key: destination_port, descriptors: [{key: remote_address, LIMIT}]",
    ];
    for rule in all {
        let limited = if rule.contains("LIMIT") {
            rule.replace("LIMIT", TWO)
        } else {
            format!("{rule}, {TWO}")
        };
        let program = program(&format!("descriptors: [{{{limited}}}]"));
        assert_eq!(passed(&program, &mapped, 5), 2, "{rule}");
        assert_eq!(passed(&program, &v4(1).build(), 5), 2, "{rule}: its own two");
    }
    // Nor does a rule for the IPv4 address hold for it.
    let program =
        program(&format!("descriptors: [{{key: remote_address, value: 192.0.2.1, {TWO}}}]"));
    assert_eq!(passed(&program, &mapped, 5), 5);
    assert_eq!(reason(&program, &mapped), Reason::NoRule);
}

#[test]
fn martians_are_dropped_where_the_file_says_so() {
    let rule = format!("descriptors: [{{key: remote_address, {TWO}}}]\n");
    let dropping = program(&format!("martians: drop\n{rule}"));
    let charging = program(&rule);
    let to = [198, 51, 100, 1];
    let mut mapped = [0; 16];
    mapped[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
    let mut group = [0; 16];
    (group[0], group[15]) = (0xff, 1);
    for frame in [
        Frame::ipv4([127, 0, 0, 1], to).build(),
        Frame::ipv4([0, 0, 0, 1], to).build(),
        Frame::ipv4([224, 0, 0, 1], to).build(),
        Frame::ipv4([255, 255, 255, 255], to).build(),
        Frame::ipv6(mapped, [2; 16]).build(),
        Frame::ipv6(group, [2; 16]).build(),
    ] {
        assert_eq!(reason(&dropping, &frame), Reason::Martian);
        assert_eq!(reason(&charging, &frame), Reason::Conforming);
    }
    // A host without an address asks for one from here (RFC 2131).
    assert_eq!(reason(&dropping, &Frame::ipv4([0, 0, 0, 0], to).build()), Reason::Conforming);
    assert_eq!(passed(&dropping, &v4(1).build(), 5), 2);
}

#[test]
fn a_source_port_is_one_of_tcp_or_udp() {
    let port = |port| TableKey { source_port: port, ..NO_KEY };
    let from = |source| Transport::Udp { source, destination: 53 };
    let tcp = Transport::Tcp { source: 123, destination: 22, flags: 2 };
    let with = [(&v4(1).transport(from(53)), port(53)), (&v6(1, 1).transport(tcp), port(123))];
    let ping = v4(1).transport(Transport::Echo { id: 1, sequence: 1 });
    keys("key: source_port", field::SOURCE_PORT, with, Some(&ping));
}

/// As the header says it: 20 bytes of IPv4 or 40 of IPv6, 8 of UDP, and what it carries.
#[test]
fn a_packet_s_length_is_that_of_the_ip_packet() {
    let length = |packet_length| TableKey { packet_length, ..NO_KEY };
    let with = [
        (&v4(1).transport(udp(9)).payload(&[0; 72]), length(100)),
        (&v6(1, 1).transport(udp(9)).payload(&[0; 72]), length(120)),
    ];
    keys("key: packet_length", field::PACKET_LENGTH, with, None);
}

#[test]
fn a_time_to_live_is_that_of_the_header() {
    let program = program(&format!("descriptors: [{{key: ttl, value: 0-5, {TWO}}}]"));
    let with = |mut frame: Vec<u8>, at: usize, ttl: u8| {
        frame[at] = ttl;
        frame
    };
    let of_v4 = |ttl| with(v4(1).build(), 14 + 8, ttl);
    let of_v6 = |ttl| with(v6(1, 1).build(), 14 + 7, ttl);
    assert_eq!(reason(&program, &of_v4(6)), Reason::NoRule);
    assert_eq!(reason(&program, &of_v6(255)), Reason::NoRule);
    // Both families, and all values of the range, share one bucket.
    assert_eq!(passed(&program, &of_v4(5), 1), 1);
    assert_eq!(passed(&program, &of_v6(0), 1), 1);
    assert_eq!(reason(&program, &of_v4(3)), Reason::OverLimit);
}

#[test]
fn a_range_is_one_value_and_what_is_inside_it_another() {
    let mut program = program(&format!(
        "descriptors:
  - {{key: destination_port, value: 80-90, descriptors: [{{key: remote_address, {TWO}}}]}}
  - {{key: destination_port, value: 85, descriptors: [{{key: remote_address, {TWO}}}]}}
  - {{key: destination_port, descriptors: [{{key: remote_address, value: 192.0.2.9, action: \
         drop}}]}}"
    ));
    let to = |last, port| v4(last).transport(udp(port)).build();
    for (port, wanted) in [(79, 5), (80, 1), (90, 1), (84, 0), (86, 0), (85, 2), (91, 5)] {
        let count = if matches!(port, 80 | 90) { 1 } else { 5 };
        assert_eq!(passed(&program, &to(1, port), count), wanted, "{port}");
    }
    // The rule without a value is for the ports that no other one names.
    assert_eq!(reason(&program, &to(9, 79)), Reason::Blocked);
    assert_eq!(reason(&program, &to(9, 88)), Reason::Conforming);
    // A range that grows keeps its buckets, and so does a restart.
    program.restart().unwrap();
    assert_eq!(reason(&program, &to(1, 88)), Reason::OverLimit);
    program
        .apply_file(&format!(
            "descriptors: [{{key: destination_port, value: 80-100, descriptors: [{{key: \
             remote_address, {TWO}}}]}}]"
        ))
        .unwrap();
    assert_eq!(reason(&program, &to(1, 95)), Reason::OverLimit);
    assert_eq!(reason(&program, &to(2, 95)), Reason::Conforming);
}
