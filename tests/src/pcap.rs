//! Captures that a test makes up, as pcap.

/// The header of a file of Ethernet frames, with times in microseconds.
pub fn header() -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    file.extend([0; 8]);
    file.extend([255, 255, 0, 0, 1, 0, 0, 0]);
    file
}

/// A UDP packet of 10.0.0.0 and so many addresses on, so many microseconds after a moment.
pub fn packet(micros: u64, host: u32) -> Vec<u8> {
    let mut packet = Vec::with_capacity(58);
    let seconds = 1_700_000_000 + micros / 1_000_000;
    for word in [seconds, micros % 1_000_000, 42, 42] {
        packet.extend(u32::try_from(word).unwrap_or(u32::MAX).to_le_bytes());
    }
    packet.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
    packet.extend([0, 0]);
    packet.extend((0x0a00_0000 + host).to_be_bytes());
    packet.extend([198, 51, 100, 1, 4, 210, 0, 53, 0, 8, 0, 0]);
    packet
}
