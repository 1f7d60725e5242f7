//! Transport headers and other contents of an IP packet.

use super::checksum;
use super::network::Network;

/// A transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP between two ports.
    Udp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// TCP between two ports, without options.
    Tcp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// The flag byte: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
        flags: u8,
    },
    /// An echo request, in ICMP or `ICMPv6` after the IP version.
    Echo {
        /// Identifier.
        id: u16,
        /// Sequence number of the echo.
        sequence: u16,
    },
    /// A message of ICMP or `ICMPv6`; the payload is its body.
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
    },
    /// Any protocol number; the payload follows the IP header at once.
    Raw(u8),
}

impl Transport {
    pub(super) fn protocol(self, ipv6: bool) -> u8 {
        match self {
            Self::Udp { .. } => 17,
            Self::Tcp { .. } => 6,
            Self::Echo { .. } | Self::Icmp { .. } => {
                if ipv6 {
                    58
                } else {
                    1
                }
            }
            Self::Raw(protocol) => protocol,
        }
    }

    /// Header and payload, with the checksum over both.
    pub(super) fn segment(self, network: &Network, payload: &[u8]) -> Vec<u8> {
        let mut segment = Vec::with_capacity(20 + payload.len());
        let at = match self {
            Self::Udp { source, destination } => {
                let length = u16::try_from(8 + payload.len()).unwrap_or(0);
                for field in [source, destination, length, 0] {
                    segment.extend(field.to_be_bytes());
                }
                Some(6)
            }
            Self::Tcp { source, destination, flags } => {
                segment.extend(source.to_be_bytes());
                segment.extend(destination.to_be_bytes());
                segment.extend([0; 8]);
                segment.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
                Some(16)
            }
            Self::Echo { id, sequence } => {
                let kind = if network.is_ipv6() { 128 } else { 8 };
                segment.extend([kind, 0, 0, 0]);
                segment.extend(id.to_be_bytes());
                segment.extend(sequence.to_be_bytes());
                Some(2)
            }
            Self::Icmp { kind, code } => {
                segment.extend([kind, code, 0, 0]);
                Some(2)
            }
            Self::Raw(_) => None,
        };
        segment.extend(payload);
        if let Some(at) = at {
            let pseudo = match (self, network.is_ipv6()) {
                // ICMP for IPv4 has no pseudo header.
                (Self::Echo { .. } | Self::Icmp { .. }, false) => Vec::new(),
                (_, ipv6) => network.pseudo_header(self.protocol(ipv6), segment.len()),
            };
            let mut sum = checksum::internet([pseudo.as_slice(), &segment]);
            if sum == 0 && matches!(self, Self::Udp { .. }) {
                // Zero means "no checksum" in UDP.
                sum = 0xffff;
            }
            segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        segment
    }
}
