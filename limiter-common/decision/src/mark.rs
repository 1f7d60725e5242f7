//! Marks instead of drops: the differentiated services field (RFC 2474) and explicit congestion
//! notification (RFC 3168), rewritten in place.
//!
//! Both share one byte, the type of service of IPv4 and the traffic class of IPv6:
//!
//! ```text
//!   7 6 5 4 3 2   1 0
//!  |   DSCP     | ECN |
//! ```
//!
//! A mark changes its own part of that byte, and in IPv4 the header checksum. It is updated and not
//! computed anew (RFC 1624), so options need not be read, and a header that arrives damaged leaves
//! damaged: the mark does not make it look right.

use crate::checksum::Sum;

const ECN: u8 = 0b11;
const DSCP: u8 = !ECN;

const NOT_CAPABLE: u8 = 0b00;
const CE: u8 = 0b11;

/// A differentiated services code point (RFC 2474), 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// The largest value.
    pub const MAX: u8 = 63;

    /// `None` above [`Self::MAX`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn new(value: u8) -> Option<Self> {
        if value > Self::MAX { None } else { Some(Self(value)) }
    }

    /// The value, 0 to 63.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// A mark that is written into a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The code point is set; ECN stays.
    Dscp(Dscp),
    /// Congestion experienced. The code point stays. Only for a packet whose sender said that it
    /// understands it (ECN 1, 2 or 3): to any other it would say nothing, so RFC 3168, 5 has it
    /// dropped instead.
    CongestionExperienced,
}

impl Mark {
    /// A mark with this code point, `None` above 63.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn dscp(value: u8) -> Option<Self> {
        match Dscp::new(value) {
            Some(value) => Some(Self::Dscp(value)),
            None => None,
        }
    }

    /// The byte that replaces `class`; `None` if the mark must not be set.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    const fn class(self, class: u8) -> Option<u8> {
        match self {
            Self::Dscp(Dscp(value)) => Some(value << 2 | class & ECN),
            Self::CongestionExperienced if class & ECN == NOT_CAPABLE => None,
            Self::CongestionExperienced => Some(class & DSCP | CE),
        }
    }
}

/// The first twelve bytes of an IPv4 header with the mark in them: the type of service (byte 1) and
/// the checksum (bytes 10 and 11) change, and neither when the mark was there already.
///
/// `None` for [`Mark::CongestionExperienced`] on a packet that is not ECN-capable: it is left as it
/// is, and the caller decides what follows.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn v4(head: &[u8; 12], mark: Mark) -> Option<[u8; 12]> {
    let [start, class, l0, l1, i0, i1, f0, f1, ttl, protocol, c0, c1] = *head;
    let Some(marked) = mark.class(class) else {
        return None;
    };
    // The update below would write the checksum 0xffff as 0x0000. They mean the same.
    if marked == class {
        return Some(*head);
    }
    let checksum = u16::from_be_bytes([c0, c1]);
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m'). Equation 2, that of RFC 1141, goes wrong where
    // the result is 0x0000.
    let [c0, c1] = Sum::ZERO
        .word(!checksum)
        .word(!u16::from_be_bytes([start, class]))
        .word(u16::from_be_bytes([start, marked]))
        .checksum();
    Some([start, marked, l0, l1, i0, i1, f0, f1, ttl, protocol, c0, c1])
}

/// The first four bytes of an IPv6 header with the mark in them: the traffic class changes, version
/// and flow label stay. IPv6 has no checksum, and those of TCP, UDP and `ICMPv6` leave the class
/// out (RFC 8200, 8.1).
///
/// `None` as for [`v4`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn v6(head: &[u8; 4], mark: Mark) -> Option<[u8; 4]> {
    // Four bits each: version, class, class, flow label.
    let [start, label, l1, l2] = *head;
    let Some(class) = mark.class(start << 4 | label >> 4) else {
        return None;
    };
    Some([start & 0xf0 | class >> 4, class << 4 | label & 0x0f, l1, l2])
}
