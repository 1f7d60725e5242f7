//! Sorts of packets, as the program's parser distinguishes them.

use super::{Fact, FlagClass, Fragment, Icmp, TCP, Values, Version, has_ports};

pub(super) const ICMP: u8 = 1;
pub(super) const IGMP: u8 = 2;
pub(super) const IPIP: u8 = 4;
pub(super) const UDP: u8 = 17;
pub(super) const DCCP: u8 = 33;
pub(super) const IPV6: u8 = 41;
pub(super) const GRE: u8 = 47;
pub(super) const AUTHENTICATION: u8 = 51;
pub(super) const ICMPV6: u8 = 58;
pub(super) const SCTP: u8 = 132;
pub(super) const UDP_LITE: u8 = 136;

/// The port of VXLAN: the only one whose packets are looked into.
pub(super) const VXLAN_PORT: u16 = 4789;

/// Extension headers of IPv6 that the parser walks through, so that they are no protocol there.
const EXTENSIONS: [u8; 8] = [0, 43, 44, AUTHENTICATION, 60, 135, 139, 140];

/// One protocol for each sort, where the keys name none; the last one stands for any other.
const PROTOCOLS: [u8; 7] = [TCP, UDP, ICMP, ICMPV6, IPIP, GRE, 253];

/// `ICMPv6` of neighbour discovery, to which no rule applies.
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// The transport header is there.
    Whole,
    /// The frame ends within a header.
    Cut,
    /// No transport header: a later fragment, or too many headers before it.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sort {
    pub(super) version: Version,
    /// The protocol, where a header that was reached names it.
    pub(super) protocol: Option<u8>,
    /// The kind of fragment that it counts as.
    pub(super) piece: Fragment,
    pub(super) depth: Depth,
    /// The class of TCP flags that it counts as.
    pub(super) flags: Option<FlagClass>,
}

impl Sort {
    /// All sorts; of one protocol, if that is given.
    pub(super) fn all(protocol: Option<u8>) -> impl Iterator<Item = Self> {
        let protocols: Vec<Option<u8>> = match protocol {
            Some(number) => vec![Some(number)],
            None => PROTOCOLS.into_iter().map(Some).chain([None]).collect(),
        };
        let versions = [Version::V4, Version::V6].into_iter();
        versions.flat_map(move |version| {
            let protocols = protocols.clone().into_iter();
            protocols.flat_map(move |protocol| Self::of(version, protocol))
        })
    }

    fn of(version: Version, protocol: Option<u8>) -> Vec<Self> {
        let sort = |piece, depth, flags| Self { version, protocol, piece, depth, flags };
        let Some(number) = protocol else {
            return vec![
                // Too many headers, and a frame that ends within one: maybe a SYN.
                sort(Fragment::Later, Depth::Nothing, Some(FlagClass::Syn)),
                sort(Fragment::Whole, Depth::Cut, Some(FlagClass::Syn)),
                sort(Fragment::First, Depth::Cut, Some(FlagClass::Syn)),
                sort(Fragment::Later, Depth::Nothing, None),
            ];
        };
        let walked = match version {
            Version::V4 => number == AUTHENTICATION,
            Version::V6 => EXTENSIONS.contains(&number),
        };
        if walked {
            return Vec::new();
        }
        let mut sorts = vec![sort(Fragment::Later, Depth::Nothing, None)];
        for piece in [Fragment::Whole, Fragment::First] {
            if number == TCP {
                let all = FlagClass::ALL.into_iter();
                sorts.extend(all.map(|class| sort(piece, Depth::Whole, Some(class))));
                sorts.push(sort(piece, Depth::Cut, Some(FlagClass::Syn)));
            } else {
                sorts.push(sort(piece, Depth::Whole, None));
                sorts.push(sort(piece, Depth::Cut, None));
            }
        }
        sorts
    }

    /// True if packets of this sort can be whole, and as the standards say.
    pub(super) fn is_proper(self) -> bool {
        let family = match (self.version, self.protocol) {
            (_, None) => false,
            (Version::V4, Some(number)) => number != ICMPV6 && !matches!(number, 0 | 43 | 44 | 60),
            (Version::V6, Some(number)) => !matches!(number, ICMP | IGMP),
        };
        family && (self.depth == Depth::Whole || self.piece == Fragment::Later)
    }

    /// True if such a packet is charged to limits that count SYNs.
    pub(super) fn is_syn(self) -> bool {
        self.flags == Some(FlagClass::Syn)
    }

    /// True if such a packet may belong to an established TCP connection.
    pub(super) fn is_evidence(self) -> bool {
        let syn = matches!(self.flags, None | Some(FlagClass::Syn | FlagClass::SynAck));
        let whole = self.piece == Fragment::Whole && self.depth == Depth::Whole;
        whole && self.protocol == Some(TCP) && !syn
    }

    /// True if packets with this fact can be proper; `None` if none has it.
    pub(super) fn has(self, fact: Fact) -> Option<bool> {
        let has = match fact {
            Fact::DestinationPort | Fact::SourcePort => {
                self.depth != Depth::Nothing && self.protocol.is_some_and(has_ports)
            }
            Fact::Protocol => self.protocol.is_some(),
            Fact::TcpFlags => self.flags.is_some(),
            Fact::IcmpType => {
                self.depth == Depth::Whole
                    && matches!(
                        (self.version, self.protocol),
                        (Version::V4, Some(ICMP)) | (Version::V6, Some(ICMPV6))
                    )
            }
            Fact::Vlan | Fact::Dscp | Fact::Fragment | Fact::PacketLength | Fact::Ttl => true,
        };
        has.then_some(true)
    }

    /// True if packets with one of these values can be proper; `None` if no packet has one.
    pub(super) fn has_one(self, fact: Fact, values: Values) -> Option<bool> {
        self.has(fact)?;
        match fact {
            Fact::DestinationPort | Fact::SourcePort | Fact::Dscp | Fact::Ttl => Some(true),
            Fact::Protocol => {
                let number = self.protocol.map(u16::from);
                number.filter(|number| values.has(*number)).map(|_| true)
            }
            Fact::TcpFlags => {
                let class = self.flags.map(|class| class as u16);
                class.filter(|class| values.has(*class)).map(|_| true)
            }
            Fact::Fragment => values.has(self.piece as u16).then_some(true),
            Fact::IcmpType => self.has_message(values),
            // 4095 is reserved (IEEE 802.1Q).
            Fact::Vlan => Some(values.low() < 4_095),
            Fact::PacketLength => Some(values.high() >= self.least_length()),
        }
    }

    /// True if a message of these numbers is assigned (IANA) and not exempt; none if there is none.
    fn has_message(self, values: Values) -> Option<bool> {
        let mut proper = None;
        for kind in 0..=u8::MAX {
            if !values.has(Icmp { kind, code: 0 }.message(self.version).into()) {
                continue;
            }
            let assigned = match self.version {
                Version::V4 => {
                    matches!(kind, 0 | 3..=6 | 8..=18 | 30..=43 | 253..=255)
                }
                Version::V6 => {
                    matches!(kind, 1..=4 | 100 | 101 | 127..) && !DISCOVERY.contains(&kind)
                }
            };
            proper = Some(proper == Some(true) || assigned);
        }
        proper
    }

    /// The length of the shortest packet that has its headers.
    fn least_length(self) -> u16 {
        let fixed = match self.version {
            Version::V4 => 20,
            Version::V6 => 40,
        };
        let head: u16 = match self.protocol {
            Some(TCP | IPIP) => 20,
            Some(UDP | UDP_LITE | ICMP) => 8,
            Some(SCTP | DCCP) => 12,
            Some(ICMPV6 | GRE) => 4,
            Some(IPV6) => 40,
            _ => 0,
        };
        let payload = match self.piece {
            Fragment::Whole => head,
            // A multiple of eight bytes, with the transport header (RFC 7112).
            Fragment::First => head.max(8).next_multiple_of(8),
            Fragment::Later => 1,
        };
        // IPv6 has a header of eight bytes in each piece.
        let piece =
            if self.version == Version::V6 && self.piece != Fragment::Whole { 8 } else { 0 };
        fixed + piece + payload
    }
}
