//! Every kind of header.

use limiter_common::header::{Fragment, Icmp, Ports, Reach, Version};
use limiter_common::source::Source;
use limiter_decision::packet::{Facts, MAX_EXTENSIONS, MAX_TRANSPORT_OFFSET};

use crate::bytes::{
    AUTHENTICATION, ESP, FRAGMENT, HOP_BY_HOP, NO_NEXT, OPTIONS, PORTS, ROUTING, TCP, UDP, V4_FROM,
    V6_FROM, V6_TO, chain, ethernet, extension, fragment, ipv4, ipv4_packet, ipv6, tcp,
};
use crate::facts;

const KNOWN_PORTS: Option<Ports> = Some(Ports { source: 0x1234, destination: 443 });

fn known(frame: &[u8]) -> Facts {
    facts(frame).expect("a frame with facts")
}

/// Everything about the transport that a row of a table can differ in.
#[derive(Debug, PartialEq)]
struct Row {
    reach: Reach,
    protocol: Option<u8>,
    offset: Option<u16>,
    ports: Option<Ports>,
    flags: Option<u8>,
    icmp: Option<Icmp>,
    opens: Option<bool>,
}

const NOTHING: Row = Row {
    reach: Reach::Cut,
    protocol: None,
    offset: None,
    ports: None,
    flags: None,
    icmp: None,
    opens: None,
};

fn syn_at(offset: u16) -> Row {
    Row {
        reach: Reach::Transport,
        protocol: Some(TCP),
        offset: Some(offset),
        ports: KNOWN_PORTS,
        flags: Some(2),
        icmp: None,
        opens: Some(true),
    }
}

fn other_at(offset: u16, protocol: u8) -> Row {
    Row { protocol: Some(protocol), ports: None, flags: None, opens: Some(false), ..syn_at(offset) }
}

fn row(frame: &[u8]) -> Row {
    let facts = known(frame);
    Row {
        reach: facts.reach(),
        protocol: facts.protocol(),
        offset: facts.transport_offset(),
        ports: facts.ports(),
        flags: facts.tcp_flags(),
        icmp: facts.icmp(),
        opens: facts.opens_connection(),
    }
}

#[test]
fn addresses_and_class_of_both_versions() {
    let v4 = known(&ipv4(5, 0, UDP, &PORTS));
    assert_eq!(v4.version(), Version::V4);
    assert_eq!(v4.source(), Source::V4(V4_FROM));
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    assert_eq!(v4.source_address(), mapped);
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 2];
    assert_eq!(v4.destination_address(), mapped);
    assert_eq!((v4.dscp(), v4.ecn()), (46, 1));
    assert_eq!((v4.vlan(), v4.network_offset()), (None, 14));

    let v6 = known(&ipv6(UDP, &PORTS));
    assert_eq!(v6.version(), Version::V6);
    assert_eq!(v6.source(), Source::V6([0x20, 1, 0xd, 0xb8, 1, 2, 3, 4]));
    assert_eq!((v6.source_address(), v6.destination_address()), (V6_FROM, V6_TO));
    assert_eq!((v6.dscp(), v6.ecn()), (46, 1));
}

#[test]
fn the_outer_tag_is_the_vlan() {
    let packet = ipv4_packet(5, 0, TCP, &tcp(2));
    for (tags, vlan, offset) in [
        (&[(0x8100, 0xffff)][..], Some(4095), 18),
        (&[(0x8100, 0xe000)], Some(0), 18),
        (&[(0x88a8, 0x2064), (0x8100, 0x0007)], Some(100), 22),
        (&[(0x9100, 0x0064), (0x9100, 0x0007)], Some(100), 22),
    ] {
        let frame = ethernet(tags, 0x0800, &packet);
        let facts = known(&frame);
        assert_eq!((facts.vlan(), facts.network_offset()), (vlan, offset), "{tags:x?}");
        assert_eq!(row(&frame), syn_at(offset + 20), "{tags:x?}");
    }
}

#[test]
fn ipv4_options_are_skipped() {
    for words in 5..=15 {
        let offset = 14 + 4 * u16::from(words);
        assert_eq!(row(&ipv4(words, 0, TCP, &tcp(2))), syn_at(offset), "{words} words");
    }
    // Too short to be true: nothing behind it is believed, also when it looks like TCP.
    for words in 0..5 {
        let expected = Row { protocol: Some(TCP), ..NOTHING };
        assert_eq!(row(&ipv4(words, 0, TCP, &tcp(2))), expected, "{words} words");
        let expected = Row { protocol: Some(UDP), opens: Some(false), ..NOTHING };
        assert_eq!(row(&ipv4(words, 0, UDP, &tcp(2))), expected, "{words} words");
    }
    // Past the frame.
    let mut frame = ipv4(5, 0, TCP, &tcp(2));
    frame[14] = 0x4f;
    assert_eq!(row(&frame), Row { protocol: Some(TCP), ..NOTHING });
}

#[test]
fn protocols_with_and_without_ports() {
    for protocol in 0..=255 {
        let rest = tcp(0x12);
        let v4 = row(&ipv4(5, 0, protocol, &rest));
        let mut expected = other_at(34, protocol);
        match protocol {
            TCP => (expected.ports, expected.flags) = (KNOWN_PORTS, Some(0x12)),
            UDP | 33 | 132 | 136 => expected.ports = KNOWN_PORTS,
            1 => expected.icmp = Some(Icmp { kind: 0x12, code: 0x34 }),
            // A header with next header 0x12, and with 0x34 in its length field: past the frame.
            AUTHENTICATION => {
                expected = Row { reach: Reach::Cut, offset: None, ..other_at(34, 0x12) };
            }
            _ => {}
        }
        assert_eq!(v4, expected, "IPv4, protocol {protocol}");

        let mut expected = other_at(54, protocol);
        match protocol {
            TCP => (expected.ports, expected.flags) = (KNOWN_PORTS, Some(0x12)),
            UDP | 33 | 132 | 136 => expected.ports = KNOWN_PORTS,
            58 => expected.icmp = Some(Icmp { kind: 0x12, code: 0x34 }),
            HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | OPTIONS | 135 | 139 | 140 => {
                continue;
            }
            _ => {}
        }
        assert_eq!(row(&ipv6(protocol, &rest)), expected, "IPv6, protocol {protocol}");
    }
}

#[test]
fn a_connection_opens_with_syn_and_without_ack() {
    for flags in 0..=255 {
        let facts = known(&ipv4(5, 0, TCP, &tcp(flags)));
        assert_eq!(facts.tcp_flags(), Some(flags));
        assert_eq!(facts.opens_connection(), Some(flags & 0x12 == 0x02), "{flags:#04x}");
    }
}

#[test]
fn transport_headers_that_are_cut() {
    for length in 0..20 {
        let mut expected = syn_at(34);
        if length < 14 {
            expected = Row { reach: Reach::Cut, flags: None, opens: None, ..expected };
        }
        if length < 4 {
            expected.ports = None;
        }
        assert_eq!(row(&ipv4(5, 0, TCP, &tcp(2)[..length])), expected, "TCP of {length} bytes");
        // As the first fragment of a packet cut small on purpose.
        let first = known(&ipv4(5, 0x2000, TCP, &tcp(2)[..length]));
        assert_eq!(first.fragment(), Fragment::First);
        assert_eq!(first.opens_connection(), (length >= 14).then_some(true));
    }
    for length in 0..8 {
        let mut expected = Row { ports: KNOWN_PORTS, ..other_at(54, UDP) };
        if length < 4 {
            expected = Row { reach: Reach::Cut, ports: None, ..expected };
        }
        assert_eq!(row(&ipv6(UDP, &PORTS[..length])), expected, "UDP of {length} bytes");
    }
    for length in 0..2 {
        let expected = Row { reach: Reach::Cut, ..other_at(34, 1) };
        assert_eq!(row(&ipv4(5, 0, 1, &[8, 0][..length])), expected, "ICMP of {length} bytes");
    }
    // Nothing is needed of a protocol without ports.
    assert_eq!(row(&ipv4(5, 0, 47, &[])), other_at(34, 47));
}

#[test]
fn fragments_of_ipv4() {
    let state = |position, carried: &[u8]| {
        let frame = ipv4(5, position, TCP, carried);
        (known(&frame).fragment(), row(&frame))
    };
    let later =
        Row { reach: Reach::LaterFragment, protocol: Some(TCP), opens: Some(false), ..NOTHING };
    assert_eq!(state(0, &tcp(2)), (Fragment::Whole, syn_at(34)));
    // "Don't fragment", and the reserved bit.
    assert_eq!(state(0xc000, &tcp(2)), (Fragment::Whole, syn_at(34)));
    assert_eq!(state(0x2000, &tcp(2)), (Fragment::First, syn_at(34)));
    assert_eq!(state(0x2001, &tcp(2)), (Fragment::Later, later));
    for bit in 0..13 {
        let (fragment, row) = state(1 << bit, &tcp(2));
        assert_eq!((fragment, row.ports, row.flags), (Fragment::Later, None, None));
    }
    let later = known(&ipv4(5, 0x0001, AUTHENTICATION, &extension(TCP, 1, 12)));
    assert_eq!((later.protocol(), later.reach()), (None, Reach::LaterFragment));
}

#[test]
fn fragments_of_ipv6() {
    let state = |next, position, carried: &[u8]| {
        let frame = ipv6(FRAGMENT, &[fragment(next, position), carried.to_vec()].concat());
        (known(&frame).fragment(), row(&frame))
    };
    let later =
        Row { reach: Reach::LaterFragment, protocol: Some(TCP), opens: Some(false), ..NOTHING };
    // Atomic, and with the reserved bits.
    assert_eq!(state(TCP, 0, &tcp(2)), (Fragment::Whole, syn_at(62)));
    assert_eq!(state(TCP, 6, &tcp(2)), (Fragment::Whole, syn_at(62)));
    assert_eq!(state(TCP, 1, &tcp(2)), (Fragment::First, syn_at(62)));
    for bit in 3..16 {
        assert_eq!(state(TCP, 1 << bit, &tcp(2)).0, Fragment::Later);
        assert_eq!(state(TCP, 1 << bit | 1, &tcp(2)).0, Fragment::Later);
    }
    assert_eq!(state(TCP, 9, &tcp(2)), (Fragment::Later, later));
    // The first fragment of this one goes on with options: nobody knows the protocol of this one.
    let later = Row { reach: Reach::LaterFragment, opens: Some(false), ..NOTHING };
    assert_eq!(state(OPTIONS, 8, &tcp(2)), (Fragment::Later, later));
    // The first one, with options behind.
    let rest = [extension(TCP, 0, 8), tcp(2)].concat();
    assert_eq!(state(OPTIONS, 1, &rest), (Fragment::First, syn_at(70)));
    // A fragment of a fragment.
    let rest = [fragment(TCP, 8), tcp(2)].concat();
    assert_eq!(state(FRAGMENT, 1, &rest).0, Fragment::Later);
    let rest = [fragment(TCP, 0), tcp(2)].concat();
    assert_eq!(state(FRAGMENT, 1, &rest), (Fragment::First, syn_at(70)));
}

#[test]
fn every_extension_header_by_its_own_length() {
    for kind in [HOP_BY_HOP, ROUTING, OPTIONS, 135, 139, 140] {
        for units in [0u8, 1, 2, 7, 100] {
            let length = 8 * (usize::from(units) + 1);
            let frame = ipv6(kind, &[extension(TCP, units, length), tcp(2)].concat());
            let offset = u16::try_from(54 + length).unwrap();
            assert_eq!(row(&frame), syn_at(offset), "header {kind}, length field {units}");
        }
    }
    for units in [0u8, 1, 2, 4, 5, 255] {
        let length = 4 * (usize::from(units) + 2);
        let rest = [extension(TCP, units, length), tcp(2)].concat();
        let offset = u16::try_from(length).unwrap();
        assert_eq!(row(&ipv6(AUTHENTICATION, &rest)), syn_at(54 + offset));
        assert_eq!(row(&ipv4(5, 0, AUTHENTICATION, &rest)), syn_at(34 + offset));
        assert_eq!(row(&ipv4(6, 0, AUTHENTICATION, &rest)), syn_at(38 + offset));
    }
}

#[test]
fn esp_and_no_next_header_end_the_chain() {
    for last in [ESP, NO_NEXT] {
        let frame = ipv6(HOP_BY_HOP, &[extension(last, 0, 8), tcp(2)].concat());
        assert_eq!(row(&frame), other_at(62, last));
    }
}

#[test]
fn the_chain_is_walked_six_deep() {
    let kinds = [HOP_BY_HOP, OPTIONS, ROUTING, 135, 139, 140, OPTIONS, OPTIONS];
    for depth in 1..=8u16 {
        let frame = chain(&kinds[..depth.into()]);
        let expected = if u64::from(depth) <= MAX_EXTENSIONS {
            syn_at(54 + 8 * depth)
        } else {
            Row { reach: Reach::TooDeep, ..NOTHING }
        };
        assert_eq!(row(&frame), expected, "{depth} headers");
    }
}

#[test]
fn the_chain_ends_at_2047() {
    // 54 + 1992 = 2046, and eight more are too many; odd lengths need a tag's offset.
    assert_eq!(MAX_TRANSPORT_OFFSET, 2047);
    let at = |units: u8| {
        let length = 8 * (usize::from(units) + 1);
        row(&ipv6(OPTIONS, &[extension(TCP, units, length), tcp(2)].concat()))
    };
    assert_eq!(at(248), syn_at(2046));
    assert_eq!(at(249), Row { reach: Reach::TooDeep, ..NOTHING });
    assert_eq!(at(255), Row { reach: Reach::TooDeep, ..NOTHING });
    // IPv4 is bounded too.
    let header = || extension(AUTHENTICATION, 255, 1028);
    let rest = [header(), header(), tcp(2)].concat();
    let expected = Row { reach: Reach::TooDeep, ..NOTHING };
    assert_eq!(row(&ipv4(5, 0, AUTHENTICATION, &rest)), expected);
}

#[test]
fn extension_headers_that_are_cut() {
    let frame = ipv6(HOP_BY_HOP, &[extension(47, 0, 8), vec![1, 2, 3]].concat());
    let start = 54;
    // The header itself, and where its length leads.
    for length in start..start + 8 {
        let mut expected = NOTHING;
        if length >= start + 4 {
            // The protocol behind is known, and that its header is not there.
            expected = Row { protocol: Some(47), opens: Some(false), ..NOTHING };
        }
        assert_eq!(row(&frame[..length]), expected, "{length} bytes");
    }
    assert_eq!(row(&frame[..start + 8]), other_at(62, 47));
}
