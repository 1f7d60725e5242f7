//! Packets that cause answers, built by etherparse.

use etherparse::{Ipv4HeaderSlice, PacketBuilder, PacketBuilderStep, TcpHeader};

pub(crate) const V4_FROM: [u8; 4] = [192, 0, 2, 1];
pub(crate) const V4_TO: [u8; 4] = [198, 51, 100, 2];
pub(crate) const V6_FROM: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub(crate) const V6_TO: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

const MAC_FROM: [u8; 6] = [2, 0x11, 0x12, 0x13, 0x14, 0x15];
const MAC_TO: [u8; 6] = [6, 0x21, 0x22, 0x23, 0x24, 0x25];

/// The type of Ethernet before IPv6.
const IPV6: [u8; 2] = [0x86, 0xdd];

/// The layers of etherparse before a transport header.
pub(crate) type Ip = PacketBuilderStep<etherparse::IpHeaders>;

pub(crate) fn v4() -> Ip {
    PacketBuilder::ethernet2(MAC_FROM, MAC_TO).ipv4(V4_FROM, V4_TO, 7)
}

pub(crate) fn v6() -> Ip {
    PacketBuilder::ethernet2(MAC_FROM, MAC_TO).ipv6(V6_FROM, V6_TO, 7)
}

pub(crate) fn udp(ip: Ip) -> Vec<u8> {
    let builder = ip.udp(0x1234, 53);
    let mut frame = Vec::with_capacity(builder.size(60));
    builder.write(&mut frame, &[0xda; 60]).unwrap();
    frame
}

/// A segment with these flags and no data.
pub(crate) fn tcp(ip: Ip, flags: u8) -> Vec<u8> {
    let builder = ip.tcp_header(header(flags));
    let mut frame = Vec::with_capacity(builder.size(0));
    builder.write(&mut frame, &[]).unwrap();
    frame
}

fn header(flags: u8) -> TcpHeader {
    TcpHeader {
        source_port: 0x1234,
        destination_port: 443,
        sequence_number: 0x0102_0304,
        acknowledgment_number: 0x0506_0708,
        fin: flags & 1 != 0,
        syn: flags & 2 != 0,
        rst: flags & 4 != 0,
        psh: flags & 8 != 0,
        ack: flags & 16 != 0,
        urg: flags & 32 != 0,
        ece: flags & 64 != 0,
        cwr: flags & 128 != 0,
        window_size: 1024,
        ..TcpHeader::default()
    }
}

/// An ICMP message of this type, of either version.
pub(crate) fn icmp(ip: Ip, kind: u8) -> Vec<u8> {
    // Timestamps have one length only, and etherparse knows it.
    let data = if matches!(kind, 13 | 14) { 12 } else { 56 };
    let message = [&[kind, 0, 0, 0, 0, 1, 0, 2], &vec![0; data][..]].concat();
    raw(ip, |frame| if is_v6(frame) { 58 } else { 1 }, &message)
}

pub(crate) fn protocol(ip: Ip, number: u8) -> Vec<u8> {
    raw(ip, |_| number, &[0xda; 64])
}

fn raw(ip: Ip, number: impl FnOnce(&[u8]) -> u8, carried: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ip.size(carried.len()));
    ip.write(&mut frame, etherparse::IpNumber(255), carried).unwrap();
    // etherparse computes checksums for protocols that it knows.
    let number = number(&frame);
    let at = if is_v6(&frame) { 14 + 6 } else { 14 + 9 };
    frame[at] = number;
    frame
}

fn is_v6(frame: &[u8]) -> bool {
    frame[12..14] == IPV6
}

/// The frame with these bytes at an offset into its IP header.
pub(crate) fn with(mut frame: Vec<u8>, offset: usize, bytes: &[u8]) -> Vec<u8> {
    frame[14 + offset..][..bytes.len()].copy_from_slice(bytes);
    frame
}

/// The frame with more bytes at an offset into its IP header.
pub(crate) fn insert(mut frame: Vec<u8>, offset: usize, bytes: &[u8]) -> Vec<u8> {
    frame.splice(14 + offset..14 + offset, bytes.iter().copied());
    frame
}

/// The frame with the IPv4 checksum that it should have.
pub(crate) fn repaired(frame: Vec<u8>) -> Vec<u8> {
    if is_v6(&frame) {
        return frame;
    }
    let header = Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap();
    let checksum = header.to_header().calc_header_checksum();
    with(frame, 10, &checksum.to_be_bytes())
}

pub(crate) fn from(frame: Vec<u8>, address: &[u8]) -> Vec<u8> {
    let offset = if is_v6(&frame) { 8 } else { 12 };
    with(frame, offset, address)
}

pub(crate) fn to(frame: Vec<u8>, address: &[u8]) -> Vec<u8> {
    let offset = if is_v6(&frame) { 24 } else { 16 };
    with(frame, offset, address)
}
