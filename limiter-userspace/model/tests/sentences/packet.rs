//! Packets: made of few values, so that rules meet them, and written as frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Whole,
    First,
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) flags: u8,
    pub(crate) icmp: u8,
    pub(crate) ttl: u8,
    pub(crate) dscp: u8,
    pub(crate) vlan: Option<u16>,
    pub(crate) interface: u32,
    pub(crate) piece: Piece,
    /// Bytes behind the transport header.
    pub(crate) payload: u16,
}

pub(crate) const SYN: u8 = 2;

fn v4(last: [u8; 4]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(last))
}

fn v6(site: u16, net: u16, host: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, site, net, 0, 0, 0, host))
}

pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    let ends = any::<bool>().prop_flat_map(|is_v4| {
        let (sources, destinations) = if is_v4 {
            (
                vec![
                    v4([192, 0, 2, 1]),
                    v4([192, 0, 2, 2]),
                    v4([192, 0, 2, 200]),
                    v4([198, 51, 100, 1]),
                ],
                vec![v4([203, 0, 113, 1]), v4([203, 0, 113, 2]), v4([10, 0, 0, 1])],
            )
        } else {
            (
                vec![v6(0, 1, 1), v6(0, 1, 2), v6(0, 2, 1), v6(1, 1, 1)],
                vec![v6(9, 0, 1), v6(9, 0, 2), v6(8, 0, 1)],
            )
        };
        (prop::sample::select(sources), prop::sample::select(destinations))
    });
    let of = |values: &[u16]| prop::sample::select(values.to_vec());
    let bytes = |values: &[u8]| prop::sample::select(values.to_vec());
    let link = (prop::sample::select(vec![None, None, Some(7), Some(8)]), 1u32..3);
    let piece = prop::sample::select(vec![Piece::Whole; 6]).prop_union(prop::sample::select(vec![
        Piece::Whole,
        Piece::First,
        Piece::Later,
    ]));
    (
        ends,
        bytes(&[TCP, TCP, TCP, UDP, UDP, ICMP, ICMPV6, 47]),
        (of(&[53, 1000]), of(&[22, 53, 80, 85, 90])),
        (bytes(&[SYN, SYN | 16, 16, 1, 4]), bytes(&[8, 0, 128, 3])),
        (bytes(&[1, 64]), bytes(&[0, 46])),
        (link, piece, of(&[0, 8, 400])),
    )
        .prop_map(
            |(ends, protocol, ports, (flags, icmp), (ttl, dscp), (link, piece, payload))| Packet {
                source: ends.0,
                destination: ends.1,
                protocol,
                source_port: ports.0,
                destination_port: ports.1,
                flags,
                icmp,
                ttl,
                dscp,
                vlan: link.0,
                interface: link.1,
                piece,
                payload,
            },
        )
}

impl Packet {
    /// Bytes of the IP header and what is behind it.
    pub(crate) fn length(&self) -> u16 {
        let fixed = if self.source.is_ipv4() { 20 } else { 40 };
        let piece = if !self.source.is_ipv4() && self.piece != Piece::Whole { 8 } else { 0 };
        fixed + piece + u16::try_from(self.behind().len()).unwrap()
    }

    /// The transport header and the payload.
    fn behind(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.piece != Piece::Later {
            let ports = [self.source_port.to_be_bytes(), self.destination_port.to_be_bytes()];
            match self.protocol {
                TCP => {
                    bytes.extend(ports.concat());
                    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, self.flags, 1, 0, 0, 0, 0, 0]);
                }
                UDP => {
                    bytes.extend(ports.concat());
                    bytes.extend([0, 8, 0, 0]);
                }
                ICMP | ICMPV6 => bytes.extend([self.icmp, 0, 0, 0, 0, 1, 0, 1]),
                _ => bytes.extend([0; 4]),
            }
        }
        bytes.extend(vec![0; usize::from(self.payload)]);
        if self.piece == Piece::Later {
            bytes.push(0);
        }
        bytes
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if let Some(vlan) = self.vlan {
            frame.extend([0x81, 0]);
            frame.extend(vlan.to_be_bytes());
        }
        let (offset, more) = match self.piece {
            Piece::Whole => (0u16, false),
            Piece::First => (0, true),
            Piece::Later => (8, false),
        };
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([8, 0, 0x45, self.dscp << 2]);
                frame.extend(self.length().to_be_bytes());
                frame.extend([0, 1]);
                frame.extend((offset | if more { 0x2000 } else { 0 }).to_be_bytes());
                frame.extend([self.ttl, self.protocol, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd, 0x60 | self.dscp >> 2, self.dscp << 6, 0, 0]);
                frame.extend((self.length() - 40).to_be_bytes());
                let next = if self.piece == Piece::Whole { self.protocol } else { 44 };
                frame.extend([next, self.ttl]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                if self.piece != Piece::Whole {
                    frame.extend([self.protocol, 0]);
                    frame.extend((offset << 3 | u16::from(more)).to_be_bytes());
                    frame.extend([0, 0, 0, 1]);
                }
            }
            _ => unreachable!("both ends are of one family"),
        }
        frame.extend(self.behind());
        frame
    }
}
