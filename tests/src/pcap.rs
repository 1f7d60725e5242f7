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
    let mut frame = Vec::with_capacity(42);
    frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
    frame.extend([0, 0]);
    frame.extend((0x0a00_0000 + host).to_be_bytes());
    frame.extend([198, 51, 100, 1, 4, 210, 0, 53, 0, 8, 0, 0]);
    record(micros, &frame)
}

/// A whole frame, so many microseconds after a moment.
pub fn record(micros: u64, frame: &[u8]) -> Vec<u8> {
    let length = u64::try_from(frame.len()).unwrap_or(u64::MAX);
    let seconds = 1_700_000_000 + micros / 1_000_000;
    let words = [seconds, micros % 1_000_000, length, length];
    let words = words.map(|word| u32::try_from(word).unwrap_or(u32::MAX).to_le_bytes());
    [words.as_flattened(), frame].concat()
}
