//! Actions over a limit: marks, answers and redirections, byte by byte, in the kernel and in
//! the model.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use etherparse::{Ipv4HeaderSlice, PacketHeaders};
use limiter_common::verdict::Reason;
use limiter_datapath::Way;
use limiter_decision::reply;
use limiter_tests::packet::{Extension, Fragment, Frame, Transport};
use limiter_tests::pair::Pair;
use limiter_tests::root::require_root;

const V4: [u8; 4] = [192, 0, 2, 1];
const V4_TO: [u8; 4] = [192, 0, 2, 254];
const V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5];
const V6_TO: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

const SYN: Transport = Transport::Tcp { source: 40_000, destination: 80, flags: 2 };
const ACK: Transport = Transport::Tcp { source: 40_000, destination: 80, flags: 16 };

/// One packet an hour of each source, and then the action. The port makes a table of it.
fn source_rule(action: &str) -> String {
    format!(
        "descriptors: [{{key: remote_address, \
         rate_limit: {{unit: hour, requests_per_unit: 1}}, action: {action}}}]\n"
    )
}

fn table_rule(action: &str) -> String {
    format!(
        "descriptors: [{{key: protocol, descriptors: [{{key: remote_address, \
         rate_limit: {{unit: hour, requests_per_unit: 1}}, action: {action}}}]}}]\n"
    )
}

/// After which nothing is used up under the rules here.
const LONG: u64 = 2 * 3_600_000_000_000;

/// Both places of a limit: the source table, and a keyed table.
fn both(action: &str) -> [String; 2] {
    [source_rule(action), table_rule(action)]
}

fn v4() -> Frame {
    Frame::ipv4(V4, V4_TO)
}

fn v6() -> Frame {
    Frame::ipv6(V6, V6_TO)
}

/// A frame with another class byte; the checksum of IPv4 is mended by etherparse.
fn classed(mut frame: Vec<u8>, class: u8) -> Vec<u8> {
    let network = frame.len() - frame_tail(&frame);
    if frame[network] >> 4 == 4 {
        frame[network + 1] = class;
        let header = Ipv4HeaderSlice::from_slice(&frame[network..]).unwrap().to_header();
        let sum = header.calc_header_checksum().to_be_bytes();
        frame[network + 10..network + 12].copy_from_slice(&sum);
    } else {
        frame[network] = 0x60 | class >> 4;
        frame[network + 1] = class << 4 | frame[network + 1] & 0x0f;
    }
    frame
}

/// Bytes from the network header on.
fn frame_tail(frame: &[u8]) -> usize {
    let tags = frame[12..].chunks(4).take_while(|tag| tag[..2] == [0x81, 0x00]).count();
    frame.len() - 14 - 4 * tags
}

/// The mark is the only change, and the checksum is right; a frame that cannot carry it is left
/// alone and counted all the same.
#[test]
fn a_mark_changes_its_bits_and_nothing_else() {
    require_root();
    for (action, mark) in [
        ("{mark: {dscp: cs1}}", (|class| 8 << 2 | class & 3) as fn(u8) -> u8),
        ("{mark: {ecn: true}}", |class| match class & 3 {
            0 => class,
            _ => class | 3,
        }),
    ] {
        for rules in both(action) {
            let mut pair = Pair::load(&rules).unwrap();
            for frame in [v4(), v6(), v4().vlan(7), v6().vlan(7).vlan(8), v4().options(&[1; 4])] {
                pair.after(LONG).unwrap();
                let frame = frame.payload(&[5; 64]).build();
                assert_eq!(pair.send(&frame).unwrap().reason, Reason::Conforming);
                for class in 0..=255 {
                    let frame = classed(frame.clone(), class);
                    let sent = pair.send(&frame).unwrap();
                    assert_eq!((sent.reason, sent.way), (Reason::Marked, Way::Pass));
                    assert_eq!(sent.frame, classed(frame, mark(class)), "{action} {class}");
                }
            }
        }
    }
}

/// A soft limit in shadow mode counts what it would mark, and leaves it as it is.
#[test]
fn shadow_mode_marks_nothing() {
    require_root();
    let rules = |shadow| {
        format!(
            "descriptors: [{{key: protocol, shadow_mode: {shadow}, rate_limit: {{unit: hour, \
             requests_per_unit: 1, ceiling: {{unit: hour, requests_per_unit: 9}}, \
             mark: {{dscp: cs1}}}}}}]\n"
        )
    };
    for shadow in [false, true] {
        let mut pair = Pair::load(&rules(shadow)).unwrap();
        let frame = v4().build();
        pair.send(&frame).unwrap();
        let sent = pair.send(&frame).unwrap();
        assert_eq!(sent.reason, Reason::Marked);
        assert_eq!(sent.frame == frame, shadow);
    }
}

/// Every kind of answer, from both places of a limit, with and without tags.
fn answers() -> Vec<(&'static str, Frame)> {
    vec![
        ("UDP", v4().payload(&[7; 100])),
        ("UDP, IPv6", v6().payload(&[7; 100])),
        ("UDP in a VLAN", v4().vlan(3).payload(&[7; 100])),
        ("UDP, IPv6, two tags", v6().vlan(3).vlan(4).payload(&[7; 100])),
        ("echo request", v4().transport(Transport::Echo { id: 1, sequence: 2 }).payload(&[1; 56])),
        (
            "echo request, IPv6",
            v6().transport(Transport::Echo { id: 1, sequence: 2 }).payload(&[1; 56]),
        ),
        ("unknown protocol", v4().transport(Transport::Raw(253)).payload(&[1; 60])),
        ("SYN", v4().transport(SYN)),
        ("SYN, IPv6", v6().transport(SYN)),
        ("segment", v4().transport(ACK).payload(&[9; 500])),
        ("segment, IPv6", v6().vlan(9).transport(ACK).payload(&[9; 500])),
        ("long", v4().payload(&[7; 30_000])),
    ]
}

/// Answer to a frame by the pure builders.
fn expected(frame: &[u8]) -> Vec<u8> {
    let offset = frame.len() - frame_tail(frame);
    let packet = &frame[offset..];
    let answer = match (packet[0] >> 4, packet[9], packet[6]) {
        (4, 6, _) => reply::reset_v4(packet.first_chunk().unwrap()).to_vec(),
        (4, ..) => reply::unreachable_v4(packet.first_chunk().unwrap()).to_vec(),
        (_, _, 6) => reply::reset_v6(packet.first_chunk().unwrap()).to_vec(),
        _ => reply::unreachable_v6(packet.first_chunk().unwrap()).to_vec(),
    };
    let link = reply::link(frame.first_chunk().unwrap());
    [&link[..], &frame[12..offset], &answer].concat()
}

#[test]
fn a_reject_answers_what_the_builders_make() {
    require_root();
    for rules in both("reject") {
        let rules = format!("replies: {{unit: second, requests_per_unit: 1000}}\n{rules}");
        let mut pair = Pair::load(&rules).unwrap();
        for (what, frame) in answers() {
            pair.after(LONG).unwrap();
            let frame = frame.build();
            assert_eq!(pair.send(&frame).unwrap().reason, Reason::Conforming, "{what}");
            let sent = pair.send(&frame).unwrap();
            assert_eq!((sent.reason, sent.way), (Reason::Rejected, Way::Back), "{what}");
            assert_eq!(sent.frame, expected(&frame), "{what}");
            assert!(sent.frame.len() <= frame.len(), "{what}");
            PacketHeaders::from_ethernet_slice(&sent.frame).unwrap();
            // Nothing that limiter sends is answered: two of them are no loop.
            let again = pair.send(&sent.frame).unwrap();
            assert_eq!(again.reason, Reason::Conforming, "{what}");
            assert_eq!(pair.send(&sent.frame).unwrap().way, Way::Drop, "{what}");
        }
    }
}

/// A sender that must not be answered is dropped, and takes nothing from the budget.
#[test]
fn who_must_not_be_answered_is_not() {
    require_root();
    let mut bad_sum = v4().payload(&[0; 64]).build();
    bad_sum[24] ^= 1;
    let first = Fragment { id: 1, offset: 0, more: true };
    let later = Fragment { id: 1, offset: 8, more: false };
    let rst = Transport::Tcp { source: 1, destination: 2, flags: 4 };
    let frames = [
        ("short", v4().payload(&[0; 4]).build()),
        ("short, IPv6", v6().payload(&[0; 4]).build()),
        ("damaged header", bad_sum),
        ("first fragment", v4().fragment(first).payload(&[0; 64]).build()),
        ("later fragment", v6().fragment(later).payload(&[0; 64]).build()),
        ("options", v4().options(&[1; 4]).payload(&[0; 64]).build()),
        ("extension", v6().extension(Extension::HopByHop(0)).payload(&[0; 64]).build()),
        ("reset", v4().transport(rst).build()),
        ("error", v4().transport(Transport::Icmp { kind: 3, code: 1 }).payload(&[0; 64]).build()),
        ("to a group", v4().macs([2; 6], [0xff; 6]).payload(&[0; 64]).build()),
        ("to itself", Frame::ipv4(V4, V4).payload(&[0; 64]).build()),
    ];
    for rules in both("reject") {
        let rules = format!("replies: {{unit: hour, requests_per_unit: 1}}\n{rules}");
        let mut pair = Pair::load(&rules).unwrap();
        for (what, frame) in &frames {
            pair.after(LONG).unwrap();
            let reasons = pair.reasons_of(frame, 3).unwrap();
            let over = Reason::OverLimit;
            assert_eq!(reasons, [Reason::Conforming, over, over], "{what}");
            // The one answer of the hour is still there.
            let other = Frame::ipv4([198, 51, 100, 1], V4_TO).payload(&[0; 64]).build();
            let reasons = pair.reasons_of(&other, 3).unwrap();
            assert_eq!(reasons, [Reason::Conforming, Reason::Rejected, over], "{what}");
        }
    }
}

/// Nobody is notified without `replies`; with it, as many senders as it says.
#[test]
fn the_budget_of_answers_holds() {
    require_root();
    let frame = |last| Frame::ipv4([198, 51, 100, last], V4_TO).payload(&[0; 64]).build();
    for rules in both("reject") {
        let mut pair = Pair::load(&rules).unwrap();
        let reasons = pair.reasons_of(&frame(1), 3).unwrap();
        assert_eq!(reasons, [Reason::Conforming, Reason::OverLimit, Reason::OverLimit]);
        let rules = format!("replies: {{unit: second, requests_per_unit: 10, burst: 5}}\n{rules}");
        pair.apply(&rules).unwrap();
        let count = |pair: &mut Pair| {
            let mut output = 0;
            for last in 1..40 {
                let reasons = pair.reasons_of(&frame(last), 3).unwrap();
                output += reasons.iter().filter(|reason| **reason == Reason::Rejected).count();
            }
            output
        };
        assert_eq!(count(&mut pair), 5);
        pair.after(300_000_000).unwrap();
        assert_eq!(count(&mut pair), 3);
        pair.after(10_000_000_000).unwrap();
        assert_eq!(count(&mut pair), 5);
        // Rules that do not touch the budget leave it as it is.
        pair.apply(&format!("{rules}\n# again\n")).unwrap();
        assert_eq!(count(&mut pair), 0);
    }
}

/// A redirected packet is unchanged, and goes the way that the map has for it.
#[test]
fn a_redirect_leaves_by_the_map() {
    require_root();
    for action in ["{interface: lo}", "{cpu: 0}"] {
        for rules in both(action) {
            let mut pair = Pair::load(&rules).unwrap();
            let frame = v4().vlan(2).payload(&[3; 32]).build();
            assert_eq!(pair.send(&frame).unwrap().way, Way::Pass);
            let sent = pair.send(&frame).unwrap();
            assert_eq!((sent.reason, sent.way), (Reason::Redirected, Way::Redirect), "{action}");
            assert_eq!(sent.frame, frame);
        }
    }
}

/// A packet that a table rejects or bans is charged to no other table, and counted once.
#[test]
fn sums_of_the_counters_hold() {
    require_root();
    let rules = format!("replies: {{unit: hour, requests_per_unit: 2}}\n{}", table_rule("reject"));
    let mut pair = Pair::load(&rules).unwrap();
    let frame = v4().payload(&[3; 64]).build();
    pair.reasons_of(&frame, 7).unwrap();
    let rules: u64 = (0..64)
        .map(|number| {
            let kernel = pair.program.rule_counters(number).unwrap();
            assert_eq!(kernel, pair.model.rule_counters(number), "rule {number}");
            kernel.dropped.packets
        })
        .sum();
    // The budget of answers has refused four of the same six.
    assert_eq!(rules, 6 + 4);
    let reasons = pair.program.reasons().unwrap();
    let of = |reason: Reason| reasons[reason.index() as usize].packets;
    assert_eq!((of(Reason::Rejected), of(Reason::OverLimit)), (2, 4));
}
