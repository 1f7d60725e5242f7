//! The facts that etherparse finds in a frame. It shares no code with the parser, so if both agree,
//! both are wrong only by one and the same misreading of the standards.

use etherparse::{
    IpNumber, IpPayloadSlice, Ipv6ExtensionSlice, NetSlice, SlicedPacket, TcpHeaderSlice,
    UdpHeaderSlice,
};
use limiter_common::header::{Fragment, Version};
use limiter_decision::packet::Facts;

/// Everything that both can say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    version: u8,
    source: Vec<u8>,
    destination: Vec<u8>,
    vlan: Option<u16>,
    dscp: u8,
    ecn: u8,
    first_fragment: bool,
    later_fragment: bool,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
    tcp_flags: Option<u8>,
    icmp: Option<(u8, u8)>,
    opens_connection: Option<bool>,
    network_offset: usize,
    transport_offset: Option<usize>,
}

/// The answer of the parser.
pub(crate) fn parser(facts: &Facts) -> Said {
    let address = |address: [u8; 16]| match facts.version() {
        Version::V4 => {
            assert_eq!(address[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
            address[12..].to_vec()
        }
        Version::V6 => address.to_vec(),
    };
    Said {
        version: facts.version() as u8,
        source: address(facts.source_address()),
        destination: address(facts.destination_address()),
        vlan: facts.vlan(),
        dscp: facts.dscp(),
        ecn: facts.ecn(),
        first_fragment: facts.fragment() == Fragment::First,
        later_fragment: facts.fragment() == Fragment::Later,
        protocol: facts.protocol(),
        ports: facts.ports().map(|ports| (ports.source, ports.destination)),
        tcp_flags: facts.tcp_flags(),
        icmp: facts.icmp().map(|icmp| (icmp.kind, icmp.code)),
        opens_connection: facts.opens_connection(),
        network_offset: facts.network_offset().into(),
        transport_offset: facts.transport_offset().map(usize::from),
    }
}

/// The answer of etherparse for a whole and valid frame with at most two tags.
///
/// # Panics
///
/// When etherparse refuses it.
pub(crate) fn etherparse(frame: &[u8]) -> Said {
    let packet = SlicedPacket::from_ethernet(frame).expect("etherparse takes the frame");
    let vlan = packet.vlan_ids().first().map(|id| id.value());
    match packet.net.as_ref().expect("IP") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let later = header.fragments_offset().value() > 0;
            let said = Said {
                version: 4,
                source: header.source().to_vec(),
                destination: header.destination().to_vec(),
                vlan,
                dscp: header.dcp().value(),
                ecn: header.ecn().value(),
                first_fragment: header.more_fragments() && !later,
                later_fragment: later,
                network_offset: position(frame, header.slice()),
                ..Said::default()
            };
            said.carrying(frame, ip.payload())
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let fragments = || {
                ip.extensions().clone().into_iter().filter_map(|extension| match extension {
                    Ipv6ExtensionSlice::Fragment(fragment) => Some(fragment),
                    _ => None,
                })
            };
            let later = fragments().any(|fragment| fragment.fragment_offset().value() > 0);
            let said = Said {
                version: 6,
                source: header.source().to_vec(),
                destination: header.destination().to_vec(),
                vlan,
                dscp: header.dscp().value(),
                ecn: header.ecn().value(),
                first_fragment: !later && fragments().any(|fragment| fragment.more_fragments()),
                later_fragment: later,
                network_offset: position(frame, header.slice()),
                ..Said::default()
            };
            said.carrying(frame, ip.payload())
        }
        NetSlice::Arp(_) => panic!("ARP has no facts"),
    }
}

impl Said {
    fn carrying(mut self, frame: &[u8], carried: &IpPayloadSlice<'_>) -> Self {
        let payload = carried.payload;
        self.protocol = Some(carried.ip_number.0);
        self.opens_connection = Some(false);
        if self.later_fragment {
            return self;
        }
        self.transport_offset = Some(position(frame, payload));
        // Not etherparse's own choice of a transport: it has none for a first fragment.
        match carried.ip_number {
            IpNumber::TCP => {
                let tcp = TcpHeaderSlice::from_slice(payload).expect("TCP");
                self.ports = Some((tcp.source_port(), tcp.destination_port()));
                let flags = [
                    tcp.fin(),
                    tcp.syn(),
                    tcp.rst(),
                    tcp.psh(),
                    tcp.ack(),
                    tcp.urg(),
                    tcp.ece(),
                    tcp.cwr(),
                ];
                let bits = flags.iter().enumerate().map(|(bit, set)| u8::from(*set) << bit);
                self.tcp_flags = Some(bits.sum());
                self.opens_connection = Some(tcp.syn() && !tcp.ack());
            }
            IpNumber::UDP => {
                let udp = UdpHeaderSlice::from_slice(payload).expect("UDP");
                self.ports = Some((udp.source_port(), udp.destination_port()));
            }
            // etherparse does not know them; they begin with the ports.
            IpNumber::SCTP | IpNumber::DCCP | IpNumber::UDP_LITE => {
                let port = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
                self.ports = Some((port(0), port(2)));
            }
            IpNumber::ICMP if self.version == 4 => self.icmp = Some((payload[0], payload[1])),
            IpNumber::IPV6_ICMP if self.version == 6 => {
                self.icmp = Some((payload[0], payload[1]));
            }
            _ => {}
        }
        self
    }
}

fn position(frame: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - frame.as_ptr() as usize
}
