//! "Communication administratively prohibited".

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::icmpv6::DestUnreachableCode;
use etherparse::{
    Icmpv4Slice, Icmpv4Type, Icmpv6Slice, Icmpv6Type, IpNumber, Ipv4Slice, Ipv6Slice,
};
use limiter_decision::reply;
use proptest::prelude::*;

use crate::answer::answer;
use crate::cause::{V4_FROM, V4_TO, V6_FROM, V6_TO, udp, v4, v6};

/// Checks what holds of every answer to these 28 bytes.
fn v4_holds(original: &[u8; 28]) -> Result<(), TestCaseError> {
    let answer = reply::unreachable_v4(original);
    prop_assert_eq!(&answer[..28], &reply::unreachable_v4_head(original));
    let ip = Ipv4Slice::from_slice(&answer).unwrap();
    let header = ip.header().to_header();
    prop_assert_eq!(&header.source[..], &original[16..20]);
    prop_assert_eq!(&header.destination[..], &original[12..16]);
    prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
    prop_assert_eq!(usize::from(header.total_len), answer.len());
    prop_assert_eq!((header.time_to_live, header.identification), (64, 0));
    prop_assert!(header.dont_fragment && !ip.is_payload_fragmented());
    prop_assert_eq!((header.dscp.value(), header.ecn.value()), (0, 0));
    prop_assert!(header.options.is_empty());
    prop_assert_eq!(ip.payload().ip_number, IpNumber::ICMP);

    let icmp = Icmpv4Slice::from_slice(ip.payload().payload).unwrap();
    let prohibited = DestUnreachableHeader::FilterProhibited;
    prop_assert_eq!(icmp.icmp_type(), Icmpv4Type::DestinationUnreachable(prohibited));
    prop_assert_eq!((icmp.type_u8(), icmp.code_u8(), icmp.bytes5to8()), (3, 13, [0; 4]));
    prop_assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()));
    prop_assert_eq!(icmp.payload(), original);
    Ok(())
}

/// Checks what holds of every answer to these 48 bytes.
fn v6_holds(original: &[u8; 48]) -> Result<(), TestCaseError> {
    let answer = reply::unreachable_v6(original);
    prop_assert_eq!(&answer[..48], &reply::unreachable_v6_head(original));
    let ip = Ipv6Slice::from_slice(&answer).unwrap();
    let header = ip.header().to_header();
    prop_assert_eq!(&header.source[..], &original[24..40]);
    prop_assert_eq!(&header.destination[..], &original[8..24]);
    prop_assert_eq!(usize::from(header.payload_length) + 40, answer.len());
    prop_assert_eq!((header.hop_limit, header.traffic_class), (64, 0));
    prop_assert_eq!(header.flow_label.value(), 0);
    prop_assert_eq!(ip.payload().ip_number, IpNumber::IPV6_ICMP);

    let icmp = Icmpv6Slice::from_slice(ip.payload().payload).unwrap();
    let prohibited = DestUnreachableCode::Prohibited;
    prop_assert_eq!(icmp.icmp_type(), Icmpv6Type::DestinationUnreachable(prohibited));
    prop_assert_eq!((icmp.type_u8(), icmp.code_u8(), icmp.bytes5to8()), (1, 1, [0; 4]));
    let checksum =
        icmp.icmp_type().calc_checksum(header.source, header.destination, icmp.payload());
    prop_assert_eq!(icmp.checksum(), checksum.unwrap());
    prop_assert_eq!(icmp.payload(), original);
    Ok(())
}

#[test]
fn the_whole_frame() {
    let cause = udp(v4());
    let (_, frame) = answer(&cause).unwrap();
    let ip = Ipv4Slice::from_slice(&frame[14..]).unwrap();
    assert_eq!((ip.header().source(), ip.header().destination()), (V4_TO, V4_FROM));
    assert_eq!(frame[14 + 28..], cause[14..14 + 28]);

    let cause = udp(v6());
    let (_, frame) = answer(&cause).unwrap();
    let ip = Ipv6Slice::from_slice(&frame[14..]).unwrap();
    assert_eq!((ip.header().source(), ip.header().destination()), (V6_TO, V6_FROM));
    assert_eq!(frame[14 + 48..], cause[14..14 + 48]);
}

/// From RFC 792 and RFC 1071 with paper and pencil.
#[test]
fn one_by_hand() {
    let mut original = [0; 28];
    original[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 2]);
    // 0x4500 + 0x0038 + 0x4000 + 0x4001 + 0xc000 + 0x0201 + 0xc633 + 0x6402 = 0x2b16f -> 0xb171
    let ip = [0x45, 0, 0, 56, 0, 0, 0x40, 0, 64, 1, 0x4e, 0x8e, 198, 51, 100, 2, 192, 0, 2, 1];
    // 0x030d + 0xc000 + 0x0201 + 0xc633 + 0x6402 = 0x1ef43 -> 0xef44
    let icmp = [3, 13, 0x10, 0xbb, 0, 0, 0, 0];
    assert_eq!(reply::unreachable_v4_head(&original), [&ip[..], &icmp].concat()[..]);
}

/// Sums at the edge: all carries, none, and every word that completes one to 0xffff.
#[test]
fn checksums_at_the_edge() {
    for byte in [0, 1, 0x7f, 0x80, 0xff] {
        v4_holds(&[byte; 28]).unwrap();
        v6_holds(&[byte; 48]).unwrap();
    }
    for at in (0..28).step_by(2) {
        let mut original = [0; 28];
        // 0x030d and this are 0xffff: a checksum of 0x0000.
        original[at..at + 2].copy_from_slice(&[0xfc, 0xf2]);
        v4_holds(&original).unwrap();
        assert_eq!(reply::unreachable_v4(&original)[22..24], [0, 0]);
    }
    for word in 0..=u16::MAX {
        let mut original = [0xff; 48];
        original[46..].copy_from_slice(&word.to_be_bytes());
        v6_holds(&original).unwrap();
        let mut original = [0; 28];
        original[18..20].copy_from_slice(&word.to_be_bytes());
        v4_holds(&original).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn any_v4(original in any::<[u8; 28]>()) {
        v4_holds(&original)?;
    }

    #[test]
    fn any_v6(halves in any::<([u8; 24], [u8; 24])>()) {
        let mut original = [0; 48];
        original[..24].copy_from_slice(&halves.0);
        original[24..].copy_from_slice(&halves.1);
        v6_holds(&original)?;
    }
}
