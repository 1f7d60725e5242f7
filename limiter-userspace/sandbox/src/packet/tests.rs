//! The builder against etherparse, which shares no code with it.

use etherparse::{EtherType, IpNumber, NetSlice, SlicedPacket, TransportSlice};

use super::*;

const V4: ([u8; 4], [u8; 4]) = ([192, 0, 2, 1], [198, 51, 100, 2]);

fn v6() -> ([u8; 16], [u8; 16]) {
    let address = |last| {
        let mut address = [0u8; 16];
        address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        address[15] = last;
        address
    };
    (address(1), address(2))
}

fn parse(frame: &[u8]) -> SlicedPacket<'_> {
    SlicedPacket::from_ethernet(frame).expect("etherparse takes the frame")
}

#[test]
fn udp_over_ipv4_with_options() {
    let frame = Frame::ipv4(V4.0, V4.1)
        .options(&[1, 1, 1, 1, 1])
        .transport(Transport::Udp { source: 1000, destination: 53 })
        .payload(b"hello")
        .build();
    let packet = parse(&frame);
    let Some(NetSlice::Ipv4(ip)) = &packet.net else { panic!("no IPv4") };
    assert_eq!((ip.header().source(), ip.header().destination()), V4);
    assert_eq!(ip.header().ihl(), 7);
    assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
    let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("no UDP") };
    assert_eq!(
        (udp.source_port(), udp.destination_port(), udp.payload()),
        (1000, 53, &b"hello"[..])
    );
    let header = udp.to_header();
    let sum = header.calc_checksum_ipv4_raw(V4.0, V4.1, b"hello").expect("short payload");
    assert_eq!(udp.checksum(), sum);
}

#[test]
fn tcp_over_ipv4() {
    let transport = Transport::Tcp { source: 7, destination: 443, flags: 0b10_0010 };
    let frame = Frame::ipv4(V4.0, V4.1).transport(transport).payload(&[1, 2, 3]).build();
    let packet = parse(&frame);
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { panic!("no TCP") };
    assert!(tcp.syn() && tcp.urg() && !tcp.ack());
    let sum = tcp.calc_checksum_ipv4(V4.0, V4.1).expect("short payload");
    assert_eq!(tcp.checksum(), sum);
}

#[test]
fn echo_over_both_versions() {
    let echo = Transport::Echo { id: 5, sequence: 9 };
    let frame = Frame::ipv4(V4.0, V4.1).transport(echo).payload(b"abc").build();
    let Some(TransportSlice::Icmpv4(icmp)) = parse(&frame).transport else { panic!("no ICMP") };
    assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(b"abc"));

    let (source, destination) = v6();
    let frame = Frame::ipv6(source, destination).transport(echo).payload(b"abc").build();
    let Some(TransportSlice::Icmpv6(icmp)) = parse(&frame).transport else { panic!("no ICMPv6") };
    let sum = icmp.icmp_type().calc_checksum(source, destination, b"abc").expect("short payload");
    assert_eq!(icmp.checksum(), sum);
}

#[test]
fn vlan_tags_are_nested_in_order() {
    let frame = Frame::ipv4(V4.0, V4.1).tag(TAG_SERVICE, 200).vlan(100).build();
    let packet = parse(&frame);
    let ids: Vec<u16> = packet.vlan_ids().iter().map(|id| id.value()).collect();
    assert_eq!(ids, [200, 100]);
    assert!(matches!(packet.net, Some(NetSlice::Ipv4(_))));
}

#[test]
fn ipv6_with_a_chain_of_extension_headers() {
    let (source, destination) = v6();
    let extensions = [
        Extension::HopByHop(0),
        Extension::Routing(1),
        Extension::Destination(40),
        Extension::Authentication(3),
    ];
    let mut frame = Frame::ipv6(source, destination).payload(b"data");
    for extension in extensions {
        frame = frame.extension(extension);
    }
    let frame = frame.build();
    let packet = parse(&frame);
    let Some(NetSlice::Ipv6(ip)) = &packet.net else { panic!("no IPv6") };
    assert_eq!((ip.header().source(), ip.header().destination()), (source, destination));
    assert_eq!(ip.header().next_header(), IpNumber::IPV6_HEADER_HOP_BY_HOP);
    assert_eq!(ip.extensions().clone().into_iter().count(), extensions.len());
    let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("no UDP") };
    assert_eq!(udp.payload(), b"data");
    let sum = udp.to_header().calc_checksum_ipv6_raw(source, destination, b"data");
    assert_eq!(udp.checksum(), sum.expect("short payload"));
}

#[test]
fn fragments_of_both_versions() {
    for (offset, more) in [(0, true), (3, true), (8191, false)] {
        let fragment = Fragment { id: 0x1234, offset, more };
        let frame = Frame::ipv4(V4.0, V4.1).fragment(fragment).payload(&[0; 24]).build();
        let packet = parse(&frame);
        let Some(NetSlice::Ipv4(ip)) = &packet.net else { panic!("no IPv4") };
        assert_eq!(ip.header().identification(), 0x1234);
        assert_eq!(ip.header().more_fragments(), more);
        assert_eq!(ip.header().fragments_offset().value(), offset);
        assert_eq!(ip.payload().payload.len(), if offset == 0 { 32 } else { 24 });

        let (source, destination) = v6();
        let frame = Frame::ipv6(source, destination).fragment(fragment).payload(&[0; 24]).build();
        let packet = parse(&frame);
        let Some(NetSlice::Ipv6(ip)) = &packet.net else { panic!("no IPv6") };
        assert!(ip.is_payload_fragmented());
        assert_eq!(ip.payload().payload.len(), if offset == 0 { 32 } else { 24 });
    }
}

#[test]
fn raw_protocols_and_ethernet_addresses() {
    let (own, peer) = ([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 8]);
    let frame = Frame::ipv4(V4.0, V4.1).macs(own, peer).transport(Transport::Raw(47)).build();
    let packet = parse(&frame);
    let ethernet = packet.link.expect("Ethernet").to_header().expect("Ethernet");
    let ethernet = ethernet.ethernet2().expect("Ethernet II");
    assert_eq!((ethernet.source, ethernet.destination), (own, peer));
    assert_eq!(ethernet.ether_type, EtherType::IPV4);
    let Some(NetSlice::Ipv4(ip)) = &packet.net else { panic!("no IPv4") };
    assert_eq!(ip.header().protocol(), IpNumber::GRE);
}
