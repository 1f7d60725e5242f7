//! Super-frames: how many packets one stands for, and how large these are.

use limiter_common::frame_size::FrameSize;
use limiter_common::header::{TCP, UDP};

use super::{Bytes, Facts};

const UDP_HEADER: u64 = 8;

/// The byte of a TCP header whose upper half is its length, in words of four bytes.
const TCP_LENGTH: usize = 12;

/// What a buffer of the kernel says of the packets that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Packets: `gso_segs`. 0 where that is not known, as in a super-frame that a guest has sent
    /// (`SKB_GSO_DODGY`).
    pub count: u32,
    /// Bytes behind the headers of each of them, at most: `gso_size`, not 0.
    pub size: u32,
}

impl Segments {
    /// The size of a super-frame of `length` bytes with these facts. Each packet has the headers up
    /// to the end of the TCP or UDP header. In a tunnel, the headers of the packet inside count
    /// once.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn size_of(self, frame: &impl Bytes, facts: &Facts, length: u64) -> FrameSize {
        let headers = headers(frame, facts);
        let Self { count, size } = self;
        let packets = if count == 0 {
            let payload = (length.saturating_sub(headers) & 0xffff_ffff) as u32;
            let full = payload.checked_div(size).unwrap_or(0);
            let is_more = full.wrapping_mul(size) != payload;
            full.wrapping_add(u32::from(is_more))
        } else {
            count
        };
        FrameSize::of_super_frame(length, packets, headers)
    }
}

/// Bytes of headers in front of the payload.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn headers(frame: &impl Bytes, facts: &Facts) -> u64 {
    let Some(offset) = facts.transport_offset() else {
        return facts.network_offset().into();
    };
    let transport = match facts.protocol() {
        Some(TCP) => match frame.read::<1>(usize::from(offset) + TCP_LENGTH) {
            Some([length]) => u64::from(length >> 4) * 4,
            None => 0,
        },
        Some(UDP) => UDP_HEADER,
        _ => 0,
    };
    u64::from(offset).wrapping_add(transport)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::packet;

    fn write(frame: &mut [u8], at: usize, bytes: &[u8]) {
        frame.get_mut(at..at + bytes.len()).expect("inside the frame").copy_from_slice(bytes);
    }

    /// IPv4 and TCP with twelve bytes of options, as Linux sends it.
    fn tcp(length: usize) -> Vec<u8> {
        let mut frame = vec![0; length];
        write(&mut frame, 12, &[8, 0, 0x45, 0]);
        write(&mut frame, 23, &[6]);
        write(&mut frame, 46, &[0x80]);
        frame
    }

    fn size(frame: &[u8], segments: Segments) -> FrameSize {
        let mut facts = Facts::EMPTY;
        packet::facts(&frame, &mut facts).expect("a frame with facts");
        segments.size_of(&frame, &facts, frame.len() as u64)
    }

    /// Figures of Linux 6.18 for one stream, at the way in and at the way out.
    #[test]
    fn each_packet_has_headers_of_its_own() {
        let size = size(&tcp(65_226), Segments { count: 45, size: 1_448 });
        assert_eq!((size.packets(), size.bytes()), (45, 65_226 + 44 * 66));
    }

    #[test]
    fn packets_are_counted_where_a_guest_does_not_say_how_many() {
        let one = |payload: usize| size(&tcp(66 + payload), Segments { count: 0, size: 1_000 });
        for (payload, packets) in [(1, 1), (1_000, 1), (1_001, 2), (2_000, 2), (45_000, 45)] {
            let size = one(payload);
            assert_eq!(size.packets(), packets, "{payload} bytes");
            assert_eq!(size.bytes(), payload as u64 + 66 * packets);
        }
    }

    #[test]
    fn datagrams_have_short_headers() {
        let mut frame = tcp(14 + 20 + 8 + 3 * 1_200);
        write(&mut frame, 23, &[17]);
        let size = size(&frame, Segments { count: 3, size: 1_200 });
        assert_eq!((size.packets(), size.bytes()), (3, 3 * (42 + 1_200)));
    }
}
