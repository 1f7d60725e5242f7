//! Random frames of every kind from a few addresses, and random times.

use fastrand::Rng;
use limiter_common::header::Direction;
use limiter_decision::packet::Segments;
use limiter_tests::packet::{Extension, Fragment, Frame, Transport};

pub(crate) fn source_v4(random: &mut Rng) -> [u8; 4] {
    [192, 0, random.u8(2..4), random.u8(0..5)]
}

pub(crate) fn source_v6(random: &mut Rng) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
    address[5] = random.u8(0..2);
    address[7] = random.u8(0..3);
    address[15] = random.u8(0..2);
    address
}

fn transport(random: &mut Rng) -> Transport {
    let source = [40_000, 40_001, 40_002, 1_024, 53][random.usize(0..5)];
    let destination = [22, 53, 443, 9][random.usize(0..4)];
    match random.u8(0..12) {
        0..4 => Transport::Udp { source, destination },
        4..9 => {
            let flags = [2, 2, 18, 16, 24, 4, 17, 0, 8, 20][random.usize(0..10)];
            Transport::Tcp { source, destination, flags }
        }
        9 if random.bool() => Transport::Echo { id: 1, sequence: 1 },
        9 => {
            let kinds = [0, 1, 2, 3, 4, 5, 8, 11, 12, 128, 129, 133, 137, 143, 200];
            Transport::Icmp { kind: kinds[random.usize(0..kinds.len())], code: random.u8(0..2) }
        }
        10 => Transport::Raw(47),
        _ => Transport::Raw([132, 33, 136, 50, 59][random.usize(0..5)]),
    }
}

/// The same with its ports the other way round.
fn answered(transport: Transport) -> Transport {
    match transport {
        Transport::Udp { source: destination, destination: source } => {
            Transport::Udp { source, destination }
        }
        Transport::Tcp { source: destination, destination: source, flags } => {
            Transport::Tcp { source, destination, flags }
        }
        other => other,
    }
}

/// A tunnel, and what is in it.
fn tunnel(random: &mut Rng) -> (Transport, Vec<u8>) {
    let v6 = random.bool();
    let frame = if v6 {
        Frame::ipv6(source_v6(random), [2; 16])
    } else {
        Frame::ipv4([10, 0, random.u8(0..2), random.u8(0..3)], [10, 9, 9, 9])
    };
    let tags: u8 = [0, 0, 0, 1, 2, 3][random.usize(0..6)];
    let frame = (0..tags).fold(frame, |frame, _| frame.vlan(9));
    let frame = frame.payload(&[0; 4]).build();
    let packet = frame[14 + 4 * usize::from(tags)..].to_vec();
    let kind = if v6 { 0x86dd_u16 } else { 0x0800 };
    match random.u8(0..4) {
        0 => (Transport::Raw(if v6 { 41 } else { 4 }), packet),
        1 => {
            let mut bytes = vec![[0, 0x80, 0x20, 0x10, 0xb0, 0x40][random.usize(0..6)], 0];
            bytes.extend(kind.to_be_bytes());
            let words = (bytes[0] & 0xb0).count_ones() as usize;
            bytes.resize(4 + 4 * words, 0xaa);
            bytes.extend(packet);
            (Transport::Raw(47), bytes)
        }
        2 => {
            let bytes = [&[0x20, 0, 0x65, 0x58, 0, 0, 0, 1][..], &frame].concat();
            (Transport::Raw(47), bytes)
        }
        _ => {
            let flags = if random.u8(0..8) == 0 { 0 } else { 8 };
            let bytes = [&[flags, 0, 0, 0, 0, 0, 1, 0][..], &frame].concat();
            let port = [4789, 4789, 4789, 53][random.usize(0..4)];
            (Transport::Udp { source: 40_000, destination: port }, bytes)
        }
    }
}

/// A frame from one of a few addresses; mostly to one if it goes out.
pub(crate) fn frame(random: &mut Rng, direction: Direction) -> Vec<u8> {
    let v6 = random.bool();
    let is_answer = direction == Direction::Out && random.u8(0..8) > 0;
    let mut frame = if v6 {
        let mut to = [0; 16];
        (to[0], to[15]) = (0xfd, random.u8(0..3));
        let from = source_v6(random);
        let (from, to) = if is_answer { (to, from) } else { (from, to) };
        let mut frame = Frame::ipv6(from, to);
        for _ in 0..random.u8(0..8).saturating_sub(5) {
            frame = frame.extension(match random.u8(0..3) {
                0 => Extension::HopByHop(0),
                1 => Extension::Routing(random.u8(0..3)),
                _ => Extension::Destination(random.u8(0..3)),
            });
        }
        frame
    } else {
        let to = [198, 51, 100, random.u8(0..3)];
        let from = source_v4(random);
        let (from, to) = if is_answer { (to, from) } else { (from, to) };
        let mut frame = Frame::ipv4(from, to);
        if random.u8(0..10) == 0 {
            frame = frame.options(&vec![1; 4 * random.usize(0..11)]);
        }
        frame
    };
    let tags: u8 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3][random.usize(0..16)];
    for _ in 0..tags {
        frame = frame.vlan([5, 7, 100][random.usize(0..3)]);
    }
    if random.u8(0..10) == 0 {
        let offset = if random.bool() { 0 } else { random.u16(1..100) };
        frame = frame.fragment(Fragment { id: 7, offset, more: random.bool() });
    }
    let length = if random.u8(0..4) == 0 { 1400 } else { 60 };
    let mut payload = vec![0; random.usize(0..length)];
    let mut transport = transport(random);
    if is_answer && random.bool() {
        transport = answered(transport);
    }
    if random.u8(0..6) == 0 {
        (transport, payload) = tunnel(random);
    }
    let mut frame = frame.transport(transport).payload(&payload).build();
    // DSCP and ECN; nobody checks the checksum of the header.
    let ip = 14 + 4 * usize::from(tags);
    let class = [0, 0, 46, 10, 8][random.usize(0..5)] << 2 | random.u8(0..4);
    if v6 {
        frame[ip] = 0x60 | class >> 4;
        frame[ip + 1] = class << 4;
    } else {
        frame[ip + 1] = class;
    }
    // Time to live.
    frame[ip + if v6 { 7 } else { 8 }] = [64, 64, 1, 0, 5, 128, 255][random.usize(0..7)];
    match random.u8(..) {
        // Broken in one byte of the headers, or cut.
        0..16 => {
            let at = random.usize(12..60.min(frame.len()));
            frame[at] = random.u8(..);
        }
        16..24 => frame.truncate(random.usize(14..70).min(frame.len())),
        _ => {}
    }
    frame
}

/// The hook that a frame comes to: XDP, or tc in a direction, where it may be a super-frame.
pub(crate) fn hook(random: &mut Rng) -> Option<(Direction, Option<Segments>)> {
    let direction = match random.u8(0..8) {
        0 => Direction::In,
        1 | 2 => Direction::Out,
        _ => return None,
    };
    let segments = random.bool().then(|| Segments {
        count: random.u32(0..60).saturating_sub(4),
        size: random.u32(1..1_449),
    });
    Some((direction, segments))
}

/// Mostly packets close together, sometimes days, sometimes backwards.
pub(crate) fn advance(random: &mut Rng, now: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    // Eight years: the clock has range for nine.
    let now = if now > 8 * 365 * 86_400 * SECOND { now / 16 } else { now };
    match random.u16(0..1000) {
        0..450 => now,
        450..750 => now + random.u64(0..10_000_000),
        750..930 => now + random.u64(0..SECOND),
        930..960 => now + random.u64(0..100 * SECOND),
        960..965 => now + random.u64(0..7_200 * SECOND),
        965..967 => now + random.u64(0..3 * 86_400 * SECOND),
        967..997 => now.saturating_sub(random.u64(0..1_000_000)),
        997..999 => now.saturating_sub(random.u64(0..5 * SECOND)),
        _ => now.saturating_sub(random.u64(0..3 * 86_400 * SECOND)),
    }
}
