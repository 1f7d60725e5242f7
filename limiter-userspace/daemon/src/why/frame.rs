//! Builds a frame with the facts of a question.

use std::net::IpAddr;

use limiter_common::header::{Fragment, Icmp, SYN, TCP, Version};
use limiter_rules::model::key::has_ports;
use limiter_rules::model::{Direction, Fact};

use super::question::Question;

/// Assumed IPv4 destination of packets: from the range for benchmarks (RFC 2544), in which no host
/// should be.
pub(super) const DESTINATION_V4: [u8; 4] = [198, 18, 0, 1];
/// Assumed IPv6 destination of packets, from the range for benchmarks (RFC 5180).
pub(super) const DESTINATION_V6: [u8; 16] = [0x20, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Experimental protocol (RFC 3692), for a question that names none.
const EXPERIMENT: u8 = 253;

/// Offset of a later fragment, in units of eight bytes.
const LATER: u16 = 185;

/// Assumed time to live of packets.
const DEFAULT_TTL: u16 = 64;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const FRAGMENT_HEADER: u8 = 44;

/// The bytes of the frame, up to its transport header. Facts that are not given are as described by
/// [`super::known::assumed`].
pub(super) fn build(question: &Question) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if let Some(id) = question.value(Fact::Vlan) {
        frame.extend([0x81, 0x00]);
        frame.extend(id.to_be_bytes());
    }
    let given = question.value(Fact::Fragment);
    let piece = Fragment::ALL.into_iter().find(|piece| given == Some(*piece as u16));
    let piece = piece.unwrap_or(Fragment::Whole);
    let protocol = question.protocol().unwrap_or(EXPERIMENT);
    let transport =
        if piece == Fragment::Later { vec![0; 8] } else { transport(question, protocol) };
    let behind = usize::try_from(question.length).unwrap_or(0).saturating_sub(frame.len() + 2);
    let [_, class] = (question.value(Fact::Dscp).unwrap_or(0) << 2).to_be_bytes();
    let [_, ttl] = question.value(Fact::Ttl).unwrap_or(DEFAULT_TTL).to_be_bytes();
    match question.source {
        IpAddr::V4(source) => {
            let destination = match question.destination {
                Some(IpAddr::V4(destination)) => destination.octets(),
                _ => DESTINATION_V4,
            };
            let pieces: u16 = match piece {
                Fragment::Whole => 0,
                Fragment::First => 0x2000,
                Fragment::Later => LATER,
            };
            frame.extend([0x08, 0x00, 0x45, class]);
            frame.extend(short(behind.max(20 + transport.len())));
            frame.extend([0, 1]);
            frame.extend(pieces.to_be_bytes());
            frame.extend([ttl, protocol, 0, 0]);
            frame.extend(addresses(question, source.octets(), destination).concat());
        }
        IpAddr::V6(source) => {
            let destination = match question.destination {
                Some(IpAddr::V6(destination)) => destination.octets(),
                _ => DESTINATION_V6,
            };
            let pieces: Option<u16> = match piece {
                Fragment::Whole => None,
                Fragment::First => Some(1),
                Fragment::Later => Some(LATER << 3),
            };
            let header = if pieces.is_some() { 8 } else { 0 };
            frame.extend([0x86, 0xdd, 0x60 | class >> 4, class << 4, 0, 0]);
            frame.extend(short(behind.saturating_sub(40).max(header + transport.len())));
            frame.extend([if pieces.is_some() { FRAGMENT_HEADER } else { protocol }, ttl]);
            frame.extend(addresses(question, source.octets(), destination).concat());
            if let Some(pieces) = pieces {
                frame.extend([protocol, 0]);
                frame.extend(pieces.to_be_bytes());
                frame.extend([0, 0, 0, 1]);
            }
        }
    }
    frame.extend(transport);
    frame
}

/// Source and destination of the packet: the destination of an outgoing packet is the other end.
fn addresses<T>(question: &Question, other_end: T, own: T) -> [T; 2] {
    match question.direction {
        Direction::In | Direction::Both => [other_end, own],
        Direction::Out => [own, other_end],
    }
}

fn short(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes()
}

fn transport(question: &Question, protocol: u8) -> Vec<u8> {
    // Lengths of the headers of TCP, of SCTP and DCCP, and of all others.
    let length = match protocol {
        TCP => 20,
        33 | 132 => 12,
        _ => 8,
    };
    let mut header = vec![0; length];
    if has_ports(protocol) {
        let port = |fact| question.in_header(fact).unwrap_or(0).to_be_bytes();
        let ports = [port(Fact::SourcePort), port(Fact::DestinationPort)];
        header.splice(..4, ports.concat());
    }
    match protocol {
        TCP => {
            // The header length of five words, and the flags.
            header.splice(12..14, [0x50, question.flags.unwrap_or(SYN)]);
        }
        ICMP => drop(header.splice(..1, [icmp_type(question, Version::V4)])),
        ICMPV6 => drop(header.splice(..1, [icmp_type(question, Version::V6)])),
        _ => {}
    }
    header
}

/// The number of the ICMP type in a family; an echo request if the question gives none.
fn icmp_type(question: &Question, version: Version) -> u8 {
    let message = question.value(Fact::IcmpType).unwrap_or(8);
    let is = |kind: &u8| u16::from(Icmp { kind: *kind, code: 0 }.message(version)) == message;
    // Among several matches, the highest is the assigned one or has the same meaning.
    (0..=u8::MAX).rev().find(is).unwrap_or_default()
}
