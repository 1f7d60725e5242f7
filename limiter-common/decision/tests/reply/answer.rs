//! A frame and its answer, by the steps that the library names; and how long an answer may be.

use limiter_decision::reply::{self, ReplyKind};

use crate::cause::{repaired, tcp, udp, v4, v6, with};
use crate::eligible;

const KINDS: [ReplyKind; 4] =
    [ReplyKind::UnreachableV4, ReplyKind::UnreachableV6, ReplyKind::ResetV4, ReplyKind::ResetV6];

/// The length of the packet in an untagged frame, as IP has it, and of what the frame has of it.
pub(crate) fn lengths(frame: &[u8]) -> Option<(usize, usize)> {
    let field = |at: usize| Some(usize::from(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?)));
    let packet = match frame.get(14)? >> 4 {
        4 => field(14 + 2)?,
        _ => field(14 + 4)? + 40,
    };
    Some((packet, frame.len() - 14))
}

/// The whole answer to an untagged frame.
pub(crate) fn answer(frame: &[u8]) -> Option<(ReplyKind, Vec<u8>)> {
    let kind = eligible(frame)?;
    let (packet, received) = lengths(frame)?;
    kind.length_within(u32::try_from(packet).unwrap(), u32::try_from(received).unwrap())?;
    let cause = &frame[14..];
    if frame[14] >> 4 == 4 && !reply::is_intact_v4(cause.first_chunk()?) {
        return None;
    }
    let answer = match kind {
        ReplyKind::UnreachableV4 => reply::unreachable_v4(cause.first_chunk()?).to_vec(),
        ReplyKind::UnreachableV6 => reply::unreachable_v6(cause.first_chunk()?).to_vec(),
        ReplyKind::ResetV4 => reply::reset_v4(cause.first_chunk()?).to_vec(),
        ReplyKind::ResetV6 => reply::reset_v6(cause.first_chunk()?).to_vec(),
    };
    let link = reply::link(frame.first_chunk()?);
    Some((kind, [&link[..], &frame[12..14], &answer].concat()))
}

#[test]
fn the_length_is_the_builders() {
    let built = [
        reply::unreachable_v4(&[0; 28]).len(),
        reply::unreachable_v6(&[0; 48]).len(),
        reply::reset_v4(&[0; 40]).len(),
        reply::reset_v6(&[0; 60]).len(),
    ];
    assert_eq!(KINDS.map(|kind| usize::try_from(kind.length()).unwrap()), built);
    assert_eq!(built, [56, 96, 40, 60]);
}

/// Against an attempt to have limiter answer a victim.
#[test]
fn never_longer_than_the_cause() {
    for kind in KINDS {
        let length = kind.length();
        for (packet, received, allowed) in [
            (length, length, true),
            (length, length + 1, true),
            (length + 1, length + 1, true),
            (u32::MAX, u32::MAX, true),
            // Too short: the packet, though there is padding.
            (length - 1, length - 1, false),
            (length - 1, length + 100, false),
            (0, 0, false),
            (0, u32::MAX, false),
            // Cut short.
            (length + 1, length, false),
            (length, length - 1, false),
            (u32::MAX, length, false),
        ] {
            let expected = allowed.then_some(length);
            assert_eq!(kind.length_within(packet, received), expected, "{packet} in {received}");
        }
    }
}

#[test]
fn a_padded_packet_is_as_long_as_it_says() {
    // 28 bytes of packet in the least that Ethernet carries.
    let builder = v4().udp(1, 2);
    let mut frame = Vec::with_capacity(60);
    builder.write(&mut frame, &[]).unwrap();
    frame.resize(200, 0);
    assert!(eligible(&frame).is_some());
    assert_eq!(answer(&frame), None);
}

#[test]
fn a_packet_that_is_cut_is_not_answered() {
    for frame in [udp(v4()), udp(v6()), tcp(v4(), 2), tcp(v6(), 2)] {
        let whole = frame.len();
        assert!(answer(&frame).is_some());
        assert!(answer(&frame[..whole - 1]).is_none());
    }
}

/// A receiver discards every header whose checksum etherparse computes otherwise, but for 0xffff:
/// no sender writes it, and it is right where 0x0000 is.
#[test]
fn a_damaged_ipv4_header_is_not_answered() {
    let intact = udp(v4());
    let stored = u16::from_be_bytes([intact[24], intact[25]]);
    for checksum in 0..=u16::MAX {
        let frame = with(intact.clone(), 10, &checksum.to_be_bytes());
        assert_eq!(answer(&frame).is_some(), checksum == stored, "{checksum:#06x}");
    }
    for bit in 0..160 {
        let mut frame = intact.clone();
        frame[14 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(answer(&frame), None, "bit {bit}");
    }
    // The id makes the checksum 0x0000.
    let id = u16::from_be_bytes([intact[18], intact[19]]);
    let (sum, carry) = id.overflowing_add(stored);
    let zero = repaired(with(intact, 4, &(sum + u16::from(carry)).to_be_bytes()));
    assert_eq!(zero[24..26], [0, 0]);
    assert!(answer(&zero).is_some());
    assert!(answer(&with(zero, 10, &[0xff, 0xff])).is_some());
}

#[test]
fn link_addresses_change_places() {
    let addresses = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    assert_eq!(reply::link(&addresses), [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6]);
}
