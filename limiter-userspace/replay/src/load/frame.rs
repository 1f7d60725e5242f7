//! The frames of a load: the headers that rules examine.

use std::net::IpAddr;

/// Transport and destination port of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    Udp(u16),
    /// TCP of an established connection.
    Tcp(u16),
    /// TCP that opens a connection.
    Syn(u16),
}

/// The longest header of [`frame`]: Ethernet, IPv6, TCP.
pub(super) const HEADERS: u64 = 14 + 40 + 20;

/// Addresses that the frames go to.
const TO_V4: [u8; 4] = [192, 0, 2, 1];
const TO_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// The headers of a frame of `size` bytes, as in a capture cut off after them.
pub(super) fn frame(from: IpAddr, port: Port, size: u64) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let (protocol, to) = match port {
        Port::Udp(to) => (17, to),
        Port::Tcp(to) | Port::Syn(to) => (6, to),
    };
    let narrow = |bytes: u64| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    match from {
        IpAddr::V4(from) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(narrow(size.saturating_sub(14)));
            frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            frame.extend(from.octets());
            frame.extend(TO_V4);
        }
        IpAddr::V6(from) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(narrow(size.saturating_sub(54)));
            frame.extend([protocol, 64]);
            frame.extend(from.octets());
            frame.extend(TO_V6);
        }
    }
    frame.extend([0xc0, 0]);
    frame.extend(to.to_be_bytes());
    let ip = if from.is_ipv4() { 20 } else { 40 };
    match port {
        Port::Udp(_) => {
            frame.extend(narrow(size.saturating_sub(14 + ip)));
            frame.extend([0, 0]);
        }
        Port::Tcp(_) | Port::Syn(_) => {
            let flags = if matches!(port, Port::Syn(_)) { 0x02 } else { 0x10 };
            frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        }
    }
    frame
}
