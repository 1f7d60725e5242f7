//! Values of keys that have a name.

use limiter_common::header::{Fragment, TCP};
use limiter_common::wire::FlagClass;

/// Protocols with a name (IANA).
pub const PROTOCOLS: [(&str, u8); 17] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

/// DSCPs with a name (RFC 2474, 2597, 3246, 5865, 8622).
pub const DSCPS: [(&str, u8); 23] = [
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

pub(super) const FLAG_CLASSES: [(&str, u8); 6] = [
    (FlagClass::Syn.name(), FlagClass::Syn as u8),
    (FlagClass::SynAck.name(), FlagClass::SynAck as u8),
    (FlagClass::Rst.name(), FlagClass::Rst as u8),
    (FlagClass::Fin.name(), FlagClass::Fin as u8),
    (FlagClass::Ack.name(), FlagClass::Ack as u8),
    (FlagClass::Other.name(), FlagClass::Other as u8),
];

/// Types of ICMP and `ICMPv6` with a name, by the numbers of [`Icmp::message`] (RFC 792, 950, 2710,
/// 3810, 4443, 4861).
pub(super) const ICMP_TYPES: [(&str, u8); 20] = [
    ("echo-request", 8),
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("packet-too-big", 2),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("redirect", 5),
    ("source-quench", 4),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
    ("multicast-listener-query", 130),
    ("multicast-listener-report", 131),
    ("multicast-listener-done", 132),
    ("multicast-listener-report-v2", 143),
    ("router-solicitation", 10),
    ("router-advertisement", 9),
    ("neighbour-solicitation", 135),
    ("neighbour-advertisement", 136),
];

/// Protocols with types: ICMP and `ICMPv6`.
pub(super) const WITH_TYPES: [u8; 2] = [1, 58];

pub(super) const PIECES: [(&str, u8); 3] = [
    (Fragment::Whole.name(), Fragment::Whole as u8),
    (Fragment::First.name(), Fragment::First as u8),
    (Fragment::Later.name(), Fragment::Later as u8),
];

/// Protocols whose packets have ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
pub(super) const WITH_PORTS: [u8; 5] = [TCP, 17, 33, 132, 136];
