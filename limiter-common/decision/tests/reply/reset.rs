//! Resets, by the rules of RFC 9293, 3.10.7.1.

use etherparse::{IpNumber, Ipv4Header, Ipv4Slice, Ipv6Header, Ipv6Slice, TcpHeader, TcpSlice};
use limiter_decision::reply;
use proptest::collection::vec;
use proptest::prelude::*;

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// A segment as the reset's rules see it.
#[derive(Clone, Debug)]
struct Segment {
    ports: (u16, u16),
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    option_words: usize,
    data: u16,
    addresses: ([u8; 16], [u8; 16]),
    noise: (u16, u16, u16),
}

impl Segment {
    /// The header, which etherparse writes, options included.
    fn header(&self) -> Vec<u8> {
        let (window_size, checksum, urgent_pointer) = self.noise;
        let mut header = TcpHeader {
            source_port: self.ports.0,
            destination_port: self.ports.1,
            sequence_number: self.sequence,
            acknowledgment_number: self.acknowledgement,
            fin: self.flags & FIN != 0,
            syn: self.flags & SYN != 0,
            psh: self.flags & 8 != 0,
            ack: self.flags & ACK != 0,
            urg: self.flags & 32 != 0,
            ece: self.flags & 64 != 0,
            cwr: self.flags & 128 != 0,
            window_size,
            checksum,
            urgent_pointer,
            ..TcpHeader::default()
        };
        header.set_options_raw(&vec![1; self.option_words * 4]).unwrap();
        header.to_bytes().to_vec()
    }

    fn v4(&self) -> [u8; 40] {
        let header = self.header();
        let length = u16::try_from(header.len()).unwrap() + self.data;
        let [source, destination] =
            [self.addresses.0, self.addresses.1].map(|address| *address.first_chunk().unwrap());
        let ip = Ipv4Header::new(length, 7, IpNumber::TCP, source, destination).unwrap();
        let packet = [&ip.to_bytes()[..], &header].concat();
        *packet.first_chunk().unwrap()
    }

    fn v6(&self) -> [u8; 60] {
        let header = self.header();
        let ip = Ipv6Header {
            payload_length: u16::try_from(header.len()).unwrap() + self.data,
            next_header: IpNumber::TCP,
            hop_limit: 7,
            source: self.addresses.0,
            destination: self.addresses.1,
            ..Ipv6Header::default()
        };
        let packet = [&ip.to_bytes()[..], &header].concat();
        *packet.first_chunk().unwrap()
    }

    /// The numbers of the answer: sequence number, acknowledgement number, and true if it has ACK.
    fn expected(&self) -> (u32, u32, bool) {
        if self.flags & ACK != 0 {
            return (self.acknowledgement, 0, false);
        }
        let controls = (self.flags & (SYN | FIN)).count_ones();
        (0, self.sequence.wrapping_add(u32::from(self.data)).wrapping_add(controls), true)
    }

    /// The answers over both versions.
    fn holds(&self) -> Result<(), TestCaseError> {
        let original = self.v4();
        let answer = reply::reset_v4(&original);
        let ip = Ipv4Slice::from_slice(&answer).unwrap();
        let header = ip.header().to_header();
        prop_assert_eq!(&header.source[..], &original[16..20]);
        prop_assert_eq!(&header.destination[..], &original[12..16]);
        prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
        prop_assert_eq!(usize::from(header.total_len), answer.len());
        prop_assert_eq!((header.time_to_live, header.identification), (64, 0));
        prop_assert!(header.dont_fragment && !ip.is_payload_fragmented());
        prop_assert_eq!(header.protocol, IpNumber::TCP);
        let tcp = TcpSlice::from_slice(ip.payload().payload).unwrap();
        let checksum = tcp.calc_checksum_ipv4(header.source, header.destination);
        prop_assert_eq!(tcp.checksum(), checksum.unwrap());
        self.answered(&tcp)?;

        let original = self.v6();
        let answer = reply::reset_v6(&original);
        let ip = Ipv6Slice::from_slice(&answer).unwrap();
        let header = ip.header().to_header();
        prop_assert_eq!(&header.source[..], &original[24..40]);
        prop_assert_eq!(&header.destination[..], &original[8..24]);
        prop_assert_eq!(usize::from(header.payload_length) + 40, answer.len());
        prop_assert_eq!((header.hop_limit, header.traffic_class), (64, 0));
        prop_assert_eq!(header.flow_label.value(), 0);
        prop_assert_eq!(header.next_header, IpNumber::TCP);
        let tcp = TcpSlice::from_slice(ip.payload().payload).unwrap();
        let checksum = tcp.calc_checksum_ipv6(header.source, header.destination);
        prop_assert_eq!(tcp.checksum(), checksum.unwrap());
        self.answered(&tcp)
    }

    fn answered(&self, tcp: &TcpSlice<'_>) -> Result<(), TestCaseError> {
        let (sequence, acknowledgement, acknowledges) = self.expected();
        let expected = TcpHeader {
            source_port: self.ports.1,
            destination_port: self.ports.0,
            sequence_number: sequence,
            acknowledgment_number: acknowledgement,
            rst: true,
            ack: acknowledges,
            checksum: tcp.checksum(),
            ..TcpHeader::default()
        };
        prop_assert_eq!(tcp.to_header(), expected);
        prop_assert!(tcp.payload().is_empty());
        Ok(())
    }
}

fn segments() -> impl Strategy<Value = Segment> {
    let number = || prop_oneof![any::<u32>(), Just(0), u32::MAX - 2000..=u32::MAX];
    let data = prop_oneof![0..10u16, 0..1461u16, Just(65_535 - 20 - 60)];
    (
        any::<((u16, u16), u8, ([u8; 16], [u8; 16]), (u16, u16, u16))>(),
        (number(), number(), 0..=10usize, data),
    )
        .prop_map(
            |(
                (ports, flags, addresses, noise),
                (sequence, acknowledgement, option_words, data),
            )| {
                let flags = flags & !4;
                Segment {
                    ports,
                    sequence,
                    acknowledgement,
                    flags,
                    option_words,
                    data,
                    addresses,
                    noise,
                }
            },
        )
}

fn segment(flags: u8, data: u16) -> Segment {
    Segment {
        ports: (0x1234, 443),
        sequence: 1000,
        acknowledgement: 2000,
        flags,
        option_words: 0,
        data,
        addresses: ([0x20; 16], [0x30; 16]),
        noise: (0, 0, 0),
    }
}

/// Sequence number, acknowledgement number and flags of the answer over IPv4.
fn said(original: &[u8; 40]) -> (u32, u32, u8) {
    let answer = reply::reset_v4(original);
    let number = |at: usize| u32::from_be_bytes(*answer[at..].first_chunk().unwrap());
    (number(24), number(28), answer[33])
}

#[test]
fn by_the_flags_of_the_segment() {
    const RST: u8 = 4;
    for (name, flags, data, expected) in [
        ("SYN", SYN, 0, (0, 1001, RST | ACK)),
        ("SYN with data (RFC 7413)", SYN, 100, (0, 1101, RST | ACK)),
        ("FIN", FIN, 0, (0, 1001, RST | ACK)),
        ("SYN and FIN", SYN | FIN, 3, (0, 1005, RST | ACK)),
        ("nothing", 0, 0, (0, 1000, RST | ACK)),
        ("data", 8, 5, (0, 1005, RST | ACK)),
        ("ACK", ACK, 0, (2000, 0, RST)),
        ("SYN and ACK", SYN | ACK, 0, (2000, 0, RST)),
        ("FIN and ACK", FIN | ACK, 7, (2000, 0, RST)),
        ("every flag", !RST, 7, (2000, 0, RST)),
    ] {
        let segment = segment(flags, data);
        assert_eq!(said(&segment.v4()), expected, "{name}");
        segment.holds().unwrap();
    }
}

#[test]
fn sequence_numbers_go_round() {
    for (sequence, data, next) in
        [(u32::MAX, 0, 0), (u32::MAX, 1, 1), (u32::MAX - 1, 0, u32::MAX), (u32::MAX - 9, 9, 0)]
    {
        let segment = Segment { sequence, ..segment(SYN, data) };
        assert_eq!(said(&segment.v4()).1, next);
        segment.holds().unwrap();
    }
}

#[test]
fn headers_that_claim_more_than_there_is() {
    // Total length, data offset in words, bytes of data.
    for (total, words, data) in [
        (40u16, 5u8, 0),
        (41, 5, 1),
        (40, 6, 0),
        (44, 6, 0),
        (45, 6, 1),
        (40, 15, 0),
        (0, 5, 0),
        (19, 5, 0),
        (20, 5, 0),
        (39, 5, 0),
        (100, 15, 20),
        (65_535, 5, 65_495),
        (65_535, 0, 65_515),
    ] {
        let mut original = segment(SYN, 0).v4();
        original[2..4].copy_from_slice(&total.to_be_bytes());
        // The lower four bits are reserved.
        original[32] = words << 4 | 0x0f;
        assert_eq!(said(&original), (0, 1001 + data, 0x14), "{total} bytes, {words} words");
    }
    for (payload, words, data) in
        [(20u16, 5u8, 0u32), (21, 5, 1), (20, 6, 0), (0, 5, 0), (19, 5, 0), (65_535, 5, 65_515)]
    {
        let mut original = segment(SYN, 0).v6();
        original[4..6].copy_from_slice(&payload.to_be_bytes());
        original[52] = words << 4 | 0x0f;
        let answer = reply::reset_v6(&original);
        let next = u32::from_be_bytes(*answer[48..].first_chunk().unwrap());
        assert_eq!(next, 1001 + data, "{payload} bytes, {words} words");
    }
}

/// Every checksum comes out right, 0x0000 too.
#[test]
fn every_checksum() {
    let mut zero = 0;
    for port in 0..=u16::MAX {
        let segment = Segment { ports: (port, 0xffff), ..segment(SYN, 0) };
        segment.holds().unwrap();
        zero += u32::from(reply::reset_v4(&segment.v4())[36..38] == [0, 0]);
    }
    assert_eq!(zero, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn any_segment(segment in segments()) {
        segment.holds()?;
    }

    /// Any bytes have an answer with right checksums.
    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 60)) {
        let answer = reply::reset_v4(bytes.first_chunk().unwrap());
        let ip = Ipv4Slice::from_slice(&answer).unwrap();
        let header = ip.header().to_header();
        prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
        let tcp = TcpSlice::from_slice(ip.payload().payload).unwrap();
        let checksum = tcp.calc_checksum_ipv4(header.source, header.destination);
        prop_assert_eq!(tcp.checksum(), checksum.unwrap());

        let answer = reply::reset_v6(bytes.first_chunk().unwrap());
        let ip = Ipv6Slice::from_slice(&answer).unwrap();
        let header = ip.header().to_header();
        let tcp = TcpSlice::from_slice(ip.payload().payload).unwrap();
        let checksum = tcp.calc_checksum_ipv6(header.source, header.destination);
        prop_assert_eq!(tcp.checksum(), checksum.unwrap());
    }
}
