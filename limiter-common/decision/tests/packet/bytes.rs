//! Frames written byte by byte.

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const ESP: u8 = 50;
pub(crate) const AUTHENTICATION: u8 = 51;
pub(crate) const NO_NEXT: u8 = 59;
pub(crate) const OPTIONS: u8 = 60;

pub(crate) const V4_FROM: [u8; 4] = [192, 0, 2, 1];
pub(crate) const V4_TO: [u8; 4] = [198, 51, 100, 2];
pub(crate) const V6_FROM: [u8; 16] = [0x20, 1, 0xd, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
pub(crate) const V6_TO: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0xf1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xfc];

/// Ports 0x1234 and 443, flags at the end, and six bytes more.
pub(crate) fn tcp(flags: u8) -> Vec<u8> {
    let mut header = vec![0x12, 0x34, 0x01, 0xbb, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, flags];
    header.extend([0; 6]);
    header
}

/// Ports 0x1234 and 443, and four bytes more: UDP and the beginning of the others.
pub(crate) const PORTS: [u8; 8] = [0x12, 0x34, 0x01, 0xbb, 0, 8, 0, 0];

pub(crate) fn ethernet(tags: &[(u16, u16)], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    for (protocol, control) in tags {
        frame.extend(protocol.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(packet);
    frame
}

/// An IPv4 packet; `words` is the header's length field, and how long it is, if at least 5.
pub(crate) fn ipv4_packet(words: u8, position: u16, protocol: u8, carried: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x40 | words, 0b1011_1001, 0, 0, 0, 7];
    packet.extend(position.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(V4_FROM);
    packet.extend(V4_TO);
    packet.resize(20.max(usize::from(words) * 4), 1);
    packet.extend(carried);
    packet
}

pub(crate) fn ipv4(words: u8, position: u16, protocol: u8, carried: &[u8]) -> Vec<u8> {
    ethernet(&[], 0x0800, &ipv4_packet(words, position, protocol, carried))
}

pub(crate) fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    // Traffic class 0xb9, flow label 0x12345.
    let mut packet = vec![0x6b, 0x91, 0x23, 0x45, 0, 0, next, 64];
    packet.extend(V6_FROM);
    packet.extend(V6_TO);
    packet.extend(rest);
    ethernet(&[], 0x86dd, &packet)
}

/// An extension header with a length field.
pub(crate) fn extension(next: u8, units: u8, length: usize) -> Vec<u8> {
    let mut header = vec![next, units];
    header.resize(length, 0xee);
    header
}

pub(crate) fn fragment(next: u8, position: u16) -> Vec<u8> {
    let [high, low] = position.to_be_bytes();
    vec![next, 0xee, high, low, 0, 0, 0, 7]
}

/// IPv6 with headers of `kinds`, of eight bytes each, and then TCP.
pub(crate) fn chain(kinds: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    for next in kinds.iter().skip(1).chain([&TCP]) {
        rest.extend(extension(*next, 0, 8));
    }
    rest.extend(tcp(2));
    ipv6(kinds[0], &rest)
}
