//! Protocol numbers (IANA "Assigned Internet Protocol Numbers").

pub(super) const HOP_BY_HOP: u8 = 0;
pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const DCCP: u8 = 33;
pub(super) const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
pub(super) const AUTHENTICATION: u8 = 51;
pub(super) const ICMPV6: u8 = 58;
pub(super) const DESTINATION_OPTIONS: u8 = 60;
pub(super) const SCTP: u8 = 132;
pub(super) const MOBILITY: u8 = 135;
pub(super) const UDP_LITE: u8 = 136;
pub(super) const HIP: u8 = 139;
pub(super) const SHIM6: u8 = 140;
