//! The packet inside a tunnel, built and taken apart by etherparse, and the same frames without
//! their Ethernet header.

use etherparse::{EtherType, Ethernet2Header, IpNumber, PacketBuilder, SlicedPacket, VlanId};
use limiter_common::header::{self, Version};
use limiter_decision::packet::{self, Facts, Layer3};
use proptest::prelude::*;

const OUTER: ([u8; 4], [u8; 4]) = ([192, 0, 2, 1], [198, 51, 100, 1]);
const INNER_V4: ([u8; 4], [u8; 4]) = ([10, 1, 2, 3], [10, 9, 9, 9]);
const INNER_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

fn with_inner(frame: &[u8]) -> Facts {
    let mut facts = crate::facts(frame).unwrap();
    packet::inner(&frame, &mut facts);
    facts
}

fn found(frame: &[u8]) -> Option<(Version, [u8; 16])> {
    let facts = with_inner(frame);
    facts.inner_version().map(|version| (version, facts.inner_address()))
}

fn v4_packet() -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(INNER_V4.0, INNER_V4.1, 64).udp(1, 2).write(&mut packet, b"abc").unwrap();
    packet
}

fn v6_packet() -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv6(INNER_V6, [2; 16], 64).udp(1, 2).write(&mut packet, b"abc").unwrap();
    packet
}

fn outer(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(OUTER.0, OUTER.1, 64)
        .write(&mut frame, IpNumber(protocol), payload)
        .unwrap();
    frame
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [3; 16], 64);
    builder.udp(40_000, port).write(&mut frame, payload).unwrap();
    frame
}

fn framed(tags: &[u16], kind: EtherType, packet: &[u8]) -> Vec<u8> {
    let mut kinds = vec![0x8100u16; tags.len()];
    kinds.push(kind.0);
    let header =
        Ethernet2Header { source: [6; 6], destination: [8; 6], ether_type: EtherType(kinds[0]) };
    let mut frame = Vec::new();
    header.write(&mut frame).unwrap();
    for (tag, next) in tags.iter().zip(&kinds[1..]) {
        frame.extend(VlanId::try_new(*tag).unwrap().value().to_be_bytes());
        frame.extend(next.to_be_bytes());
    }
    frame.extend(packet);
    frame
}

fn gre(flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = flags.to_be_bytes().to_vec();
    bytes.extend(kind.to_be_bytes());
    let words = (flags & 0xb000).count_ones();
    bytes.extend(vec![0xaa; 4 * usize::try_from(words).unwrap()]);
    bytes.extend(payload);
    bytes
}

fn vxlan(flags: u8, frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flags, 0, 0, 0, 0, 0, 7, 0];
    bytes.extend(frame);
    bytes
}

const V4_IS: Option<(Version, [u8; 16])> =
    Some((Version::V4, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]));
const V6_IS: Option<(Version, [u8; 16])> = Some((Version::V6, INNER_V6));

/// IPv4 in IP, IPv6 in IP.
#[test]
fn every_tunnel_shows_its_inner_source() {
    for (name, frame, expected) in [
        ("IPIP", outer(4, &v4_packet()), V4_IS),
        ("6in4", outer(41, &v6_packet()), V6_IS),
        ("GRE", outer(47, &gre(0, 0x0800, &v4_packet())), V4_IS),
        ("GRE, IPv6", outer(47, &gre(0, 0x86dd, &v6_packet())), V6_IS),
        ("GRE, checksum", outer(47, &gre(0x8000, 0x0800, &v4_packet())), V4_IS),
        ("GRE, all of it", outer(47, &gre(0xb000, 0x0800, &v4_packet())), V4_IS),
        (
            "GRE, Ethernet",
            outer(47, &gre(0x2000, 0x6558, &framed(&[], EtherType::IPV4, &v4_packet()))),
            V4_IS,
        ),
        ("VXLAN", udp(4789, &vxlan(8, &framed(&[], EtherType::IPV6, &v6_packet()))), V6_IS),
        (
            "VXLAN, two tags",
            udp(4789, &vxlan(8, &framed(&[5, 7], EtherType::IPV4, &v4_packet()))),
            V4_IS,
        ),
    ] {
        assert_eq!(found(&frame), expected, "{name}");
        // The outer source is what it was.
        let facts = with_inner(&frame);
        assert_eq!(facts.source(), crate::facts(&frame).unwrap().source(), "{name}");
    }
}

#[test]
fn what_is_no_tunnel_has_no_inner_source() {
    let mut later = outer(4, &v4_packet());
    later[14 + 7] = 9;
    for (name, frame) in [
        ("no tunnel", udp(53, &vxlan(8, &framed(&[], EtherType::IPV4, &v4_packet())))),
        ("VXLAN without an identifier", {
            udp(4789, &vxlan(0, &framed(&[], EtherType::IPV4, &v4_packet())))
        }),
        ("VXLAN, three tags", {
            udp(4789, &vxlan(8, &framed(&[1, 2, 3], EtherType::IPV4, &v4_packet())))
        }),
        ("VXLAN with ARP", udp(4789, &vxlan(8, &framed(&[], EtherType::ARP, &[0; 28])))),
        ("IPIP that holds IPv6", outer(4, &v6_packet())),
        ("6in4 that holds IPv4", outer(41, &v4_packet())),
        ("GRE with routing", outer(47, &gre(0x4000, 0x0800, &v4_packet()))),
        ("GRE of version 1 (PPTP)", outer(47, &gre(0x2001, 0x880b, &v4_packet()))),
        ("GRE with something else", outer(47, &gre(0, 0x8847, &v4_packet()))),
        ("a later fragment", later),
    ] {
        assert_eq!(found(&frame), None, "{name}");
    }
}

/// Cut anywhere, a tunnel shows its inner source or none, and the outer facts do not change.
#[test]
fn a_tunnel_cut_anywhere_shows_the_same_or_nothing() {
    for frame in [
        outer(4, &v4_packet()),
        outer(41, &v6_packet()),
        outer(47, &gre(0xb000, 0x6558, &framed(&[5], EtherType::IPV4, &v4_packet()))),
        udp(4789, &vxlan(8, &framed(&[5], EtherType::IPV6, &v6_packet()))),
    ] {
        let whole = found(&frame);
        assert!(whole.is_some());
        for length in 14..frame.len() {
            let Ok(before) = crate::facts(&frame[..length]) else { continue };
            let cut = found(&frame[..length]);
            assert!(cut.is_none() || cut == whole, "{length}: {cut:?}");
            let after = with_inner(&frame[..length]);
            assert_eq!(after.reach(), before.reach(), "{length}");
        }
    }
}

proptest! {
    /// Whatever it holds, the inner source is the one that etherparse finds in the same place.
    #[test]
    fn etherparse_finds_the_same_inner_source(
        source in any::<[u8; 4]>(), flags in any::<u8>(), kind in 0usize..3, rest in any::<[u8; 8]>(),
    ) {
        let mut packet = Vec::new();
        PacketBuilder::ipv4(source, [1; 4], 64).udp(1, 2).write(&mut packet, &rest).unwrap();
        let gre_flags = u16::from(flags & 0xb0) << 8;
        let (frame, start) = match kind {
            0 => (outer(4, &packet), 34),
            1 => {
                let header = 4 + 4 * usize::try_from(gre_flags.count_ones()).unwrap();
                (outer(47, &gre(gre_flags, 0x0800, &packet)), 34 + header)
            }
            _ => (
                udp(4789, &vxlan(flags | 8, &framed(&[], EtherType::IPV4, &packet))),
                14 + 40 + 8 + 8 + 14,
            ),
        };
        let sliced = SlicedPacket::from_ip(&frame[start..]).unwrap();
        let Some(etherparse::NetSlice::Ipv4(slice)) = sliced.net else { panic!("no IPv4") };
        let said = slice.header().source_addr().to_ipv6_mapped().octets();
        prop_assert_eq!(found(&frame), Some((Version::V4, said)));
    }

    /// Any bytes behind a tunnel's headers: no panic, and the outer facts stay.
    #[test]
    fn any_bytes_in_a_tunnel_change_nothing_else(
        protocol in prop::sample::select(vec![4u8, 41, 47, 17]), rest in any::<[u8; 48]>(),
    ) {
        let mut frame = outer(protocol, &rest);
        if protocol == 17 {
            frame[36..38].copy_from_slice(&4789u16.to_be_bytes());
        }
        let before = crate::facts(&frame).unwrap();
        let after = with_inner(&frame);
        prop_assert_eq!(before.source(), after.source());
        prop_assert_eq!(before.ports(), after.ports());
        prop_assert_eq!(before.protocol(), after.protocol());
    }

    /// A frame without its Ethernet header says the same, at offsets that are 14 lower.
    #[test]
    fn without_an_ethernet_header_the_facts_are_the_same(
        frame in crate::generate::frames(), cut in 0usize..200,
    ) {
        prop_assume!(frame.len() > 16 && matches!(frame[12..14], [8, 0] | [0x86, 0xdd]));
        let frame = &frame[..frame.len().min(16 + cut)];
        let ethernet = crate::facts(frame);
        let mut facts = Facts::EMPTY;
        let layer3 = packet::facts(&Layer3(&frame[14..]), &mut facts).map(|()| facts);
        match (ethernet, layer3) {
            (Ok(ethernet), Ok(layer3)) => {
                // The transport may start 14 bytes further before it is too deep.
                prop_assume!(usize::from(ethernet.transport_offset().unwrap_or(0)) < 2000);
                prop_assume!(ethernet.reach() != header::Reach::TooDeep);
                prop_assert_eq!(layer3.network_offset(), 0);
                let less = |offset: u16| offset - 14;
                let offset = ethernet.transport_offset().map(less);
                prop_assert_eq!(layer3.transport_offset(), offset);
                prop_assert_eq!(layer3.source_address(), ethernet.source_address());
                prop_assert_eq!(layer3.destination_address(), ethernet.destination_address());
                prop_assert_eq!(layer3.version(), ethernet.version());
                prop_assert_eq!(layer3.reach(), ethernet.reach());
                prop_assert_eq!(layer3.fragment(), ethernet.fragment());
                prop_assert_eq!(layer3.protocol(), ethernet.protocol());
                prop_assert_eq!(layer3.ports(), ethernet.ports());
                prop_assert_eq!(layer3.tcp_flags(), ethernet.tcp_flags());
                prop_assert_eq!(layer3.icmp(), ethernet.icmp());
                prop_assert_eq!((layer3.dscp(), layer3.ecn()), (ethernet.dscp(), ethernet.ecn()));
            }
            (Err(ethernet), Err(layer3)) => prop_assert_eq!(ethernet, layer3),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
