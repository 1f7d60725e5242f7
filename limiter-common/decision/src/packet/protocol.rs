//! Protocol numbers (IANA "Assigned Internet Protocol Numbers").

use network_types::ip::IpProto;

pub(super) const HOP_BY_HOP: u8 = IpProto::HopOpt as u8;
pub(super) const ICMP: u8 = IpProto::Icmp as u8;
pub(super) const UDP: u8 = IpProto::Udp as u8;
pub(super) const DCCP: u8 = IpProto::Dccp as u8;
pub(super) const IPIP: u8 = IpProto::Ipv4 as u8;
pub(super) const IPV6: u8 = IpProto::Ipv6 as u8;
pub(super) const GRE: u8 = IpProto::Gre as u8;
pub(super) const ROUTING: u8 = IpProto::Ipv6Route as u8;
pub(super) const FRAGMENT: u8 = IpProto::Ipv6Frag as u8;
pub(super) const AUTHENTICATION: u8 = IpProto::Ah as u8;
pub(super) const ICMPV6: u8 = IpProto::Ipv6Icmp as u8;
pub(super) const DESTINATION_OPTIONS: u8 = IpProto::Ipv6Opts as u8;
pub(super) const SCTP: u8 = IpProto::Sctp as u8;
pub(super) const MOBILITY: u8 = IpProto::MobilityHeader as u8;
pub(super) const UDP_LITE: u8 = IpProto::UdpLite as u8;
pub(super) const HIP: u8 = IpProto::Hip as u8;
pub(super) const SHIM6: u8 = IpProto::Shim6 as u8;
