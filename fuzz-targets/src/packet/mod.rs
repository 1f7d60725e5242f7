//! The packet parser: total, of one mind with itself, and with etherparse where that has an
//! opinion.

mod oracle;

use limiter_common::header::{Fragment, Reach, Version};
use limiter_common::verdict::Reason;
use limiter_decision::packet::{self, Facts, Layer3, MAX_TRANSPORT_OFFSET, Packet};

/// Checks everything that is promised of a frame.
///
/// # Panics
///
/// When a promise is broken.
pub fn check(frame: &[u8]) {
    let mut facts = Facts::EMPTY;
    let reported = packet::facts(&frame, &mut facts);
    match (packet::parse(&frame), reported) {
        (Packet::From(source), Ok(())) => {
            assert_eq!(facts.source(), source, "parse and facts charge different sources");
            bounds(frame, &facts);
            header_decides(frame, &facts);
        }
        (Packet::Exempt(reason), Err(other)) => {
            assert_eq!(reason, other, "parse and facts give different reasons");
            assert_eq!(facts, Facts::EMPTY, "an exempt frame left facts");
            let known = [
                Reason::NotIp,
                Reason::NeighbourDiscovery,
                Reason::DeepVlan,
                Reason::Truncated,
                Reason::Malformed,
            ];
            assert!(known.contains(&reason), "{reason:?} is no reason of the parser");
        }
        (parsed, reported) => panic!("parse says {parsed:?}, facts say {reported:?}"),
    }
    oracle::compare(frame, reported.map(|()| facts));
    if reported.is_ok() {
        tunnelled(frame, facts);
    }
    without_ethernet(frame);
}

/// The look inside of a tunnel adds to the facts, and changes none.
fn tunnelled(frame: &[u8], before: Facts) {
    let mut after = before;
    packet::inner(&frame, &mut after);
    if after.inner_version().is_none() {
        assert_eq!(after, before, "no tunnel, and other facts");
        return;
    }
    let offset = before.transport_offset().unwrap_or_default();
    assert!(usize::from(offset) + 20 <= frame.len(), "nothing there: {after:?}");
    let tunnels = [4, 17, 41, 47];
    assert!(before.protocol().is_some_and(|number| tunnels.contains(&number)), "{after:?}");
    assert_eq!(after.source(), before.source());
    assert_eq!(after.opens_connection(), before.opens_connection());
}

/// Checks the same bytes, read as a frame that begins with its IP header.
fn without_ethernet(bytes: &[u8]) {
    let frame = Layer3(bytes);
    let mut facts = Facts::EMPTY;
    let reported = packet::facts(&frame, &mut facts);
    match (packet::parse(&frame), reported) {
        (Packet::From(source), Ok(())) => {
            assert_eq!(facts.source(), source, "parse and facts charge different sources");
            assert_eq!((facts.network_offset(), facts.vlan()), (0, None), "{facts:?}");
            packet::inner(&frame, &mut facts);
        }
        (Packet::Exempt(reason), Err(other)) => assert_eq!(reason, other),
        (parsed, reported) => panic!("parse says {parsed:?}, facts say {reported:?}"),
    }
}

/// Checks that the facts fit together and lie within the frame.
fn bounds(frame: &[u8], facts: &Facts) {
    let protocol = facts.protocol();
    assert!([14, 18, 22].contains(&facts.network_offset()), "{facts:?}");
    if let Some(offset) = facts.transport_offset() {
        let offset = usize::from(offset);
        assert!(offset <= frame.len() && offset <= MAX_TRANSPORT_OFFSET, "{facts:?}");
        assert!(offset >= usize::from(facts.network_offset()) + 20, "{facts:?}");
        assert!(matches!(facts.reach(), Reach::Transport | Reach::Cut), "{facts:?}");
    } else {
        assert!(facts.ports().is_none() && facts.icmp().is_none(), "{facts:?}");
        assert!(facts.reach() != Reach::Transport, "{facts:?}");
    }
    if facts.fragment() == Fragment::Later {
        assert!(facts.transport_offset().is_none(), "{facts:?}");
    }
    if facts.reach() == Reach::LaterFragment {
        assert!(facts.fragment() == Fragment::Later, "{facts:?}");
    }
    if facts.reach() == Reach::TooDeep {
        assert!(protocol.is_none(), "{facts:?}");
    }
    if facts.tcp_flags().is_some() {
        assert!(protocol == Some(6) && facts.ports().is_some(), "{facts:?}");
    }
    if facts.ports().is_some() {
        assert!(matches!(protocol, Some(6 | 17 | 33 | 132 | 136)), "{facts:?}");
    }
    if facts.icmp().is_some() {
        let own = if facts.version() == Version::V4 { 1 } else { 58 };
        assert!(protocol == Some(own), "{facts:?}");
    }
    assert!(facts.dscp() < 64 && facts.ecn() < 4, "{facts:?}");
    assert!(facts.vlan().is_none_or(|vlan| vlan < 4096), "{facts:?}");
    // A packet of which it cannot be known is an attempt; a later fragment never is one.
    if facts.reach() == Reach::LaterFragment {
        assert!(facts.opens_connection() == Some(false), "{facts:?}");
    }
}

/// Nothing behind the fixed IP header decides who is charged.
fn header_decides(frame: &[u8], facts: &Facts) {
    let fixed = if facts.version() == Version::V4 { 20 } else { 40 };
    let end = usize::from(facts.network_offset()) + fixed;
    let header = &frame[..end];
    assert_eq!(packet::parse(&header), Packet::From(facts.source()), "without what follows");
    let mut longer = frame.to_vec();
    longer.resize(frame.len() + 64, 0);
    let longer = longer.as_slice();
    assert_eq!(packet::parse(&longer), Packet::From(facts.source()), "with padding");
}
