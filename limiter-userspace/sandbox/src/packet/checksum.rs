//! The Internet checksum (RFC 1071).

/// The checksum over the parts, as if they were one; each part but the last has an even length.
pub(crate) fn internet(parts: [&[u8]; 2]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        // Sums two words of 16 bits at a time: 2^16 counts as 1 in this sum.
        let (pairs, rest) = part.as_chunks::<4>();
        for pair in pairs {
            sum += u64::from(u32::from_be_bytes(*pair));
        }
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_be_bytes(last));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}
