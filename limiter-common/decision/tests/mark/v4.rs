//! IPv4: the class and the checksum.

use etherparse::{IpFragOffset, IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv4Options};
use limiter_decision::mark::{self, Mark};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::{any_mark, class, expected, marks};

/// Any header with a right checksum.
fn headers() -> impl Strategy<Value = Vec<u8>> {
    let options = (0..=10usize).prop_flat_map(|words| vec(any::<u8>(), words * 4));
    let flags = (0..8192u16, any::<bool>(), any::<bool>());
    (any::<([u8; 4], [u8; 4], u8, u16, u16, u8, u8)>(), flags, options).prop_map(
        |(
            (source, destination, class, length, id, time_to_live, protocol),
            (offset, df, mf),
            options,
        )| {
            let mut header = Ipv4Header {
                dscp: (class >> 2).try_into().unwrap(),
                ecn: (class & 3).try_into().unwrap(),
                total_len: length,
                identification: id,
                dont_fragment: df,
                more_fragments: mf,
                fragment_offset: IpFragOffset::try_new(offset).unwrap(),
                time_to_live,
                protocol: IpNumber(protocol),
                source,
                destination,
                options: Ipv4Options::try_from(options.as_slice()).unwrap(),
                ..Ipv4Header::default()
            };
            header.header_checksum = header.calc_header_checksum();
            header.to_bytes().to_vec()
        },
    )
}

/// A header of 20 bytes with this class and a right checksum. The id decides what that is.
fn header(class: u8, id: u16) -> Vec<u8> {
    let mut header = Ipv4Header {
        dscp: (class >> 2).try_into().unwrap(),
        ecn: (class & 3).try_into().unwrap(),
        total_len: 20,
        identification: id,
        time_to_live: 64,
        source: [192, 0, 2, 1],
        destination: [198, 51, 100, 2],
        ..Ipv4Header::default()
    };
    header.header_checksum = header.calc_header_checksum();
    header.to_bytes().to_vec()
}

fn marked(header: &[u8], mark: Mark) -> Option<Vec<u8>> {
    let (head, rest) = header.split_first_chunk().unwrap();
    mark::v4(head, mark).map(|head| [&head, rest].concat())
}

/// The stored checksum, and the one that etherparse computes.
fn checksums(header: &[u8]) -> (u16, u16) {
    let header = Ipv4HeaderSlice::from_slice(header).unwrap();
    (header.header_checksum(), header.to_header().calc_header_checksum())
}

/// Everything that a mark promises for a header with a right checksum.
fn holds(header: &[u8], mark: Mark) -> Result<(), TestCaseError> {
    let before = Ipv4HeaderSlice::from_slice(header).unwrap();
    let (dscp, ecn) = (before.dcp().value(), before.ecn().value());
    let after = marked(header, mark);
    let fields = after.as_ref().map(|after| {
        let after = Ipv4HeaderSlice::from_slice(after).unwrap();
        (after.dcp().value(), after.ecn().value())
    });
    prop_assert_eq!(fields, expected(mark, dscp, ecn));
    let Some(mut after) = after else {
        return Ok(());
    };
    let (stored, computed) = checksums(&after);
    prop_assert_eq!(stored, computed, "{:?} of {:02x?}", mark, header);
    if fields == Some((dscp, ecn)) {
        prop_assert_eq!(&after[..], header);
    }
    // Nothing else.
    after[1] = header[1];
    after[10..12].copy_from_slice(&header[10..12]);
    prop_assert_eq!(&after[..], header);
    Ok(())
}

#[test]
fn every_mark_on_every_class() {
    for before in 0..=255 {
        for mark in marks() {
            holds(&header(before, 0x1234), mark).unwrap();
        }
    }
}

/// Each id is another checksum: all that there can be, before and after.
#[test]
fn every_checksum() {
    let mut seen = vec![(false, false); 1 << 16];
    for id in 0..=u16::MAX {
        let header = header(class(46, 1), id);
        for mark in [Mark::dscp(0).unwrap(), Mark::CongestionExperienced] {
            holds(&header, mark).unwrap();
        }
        seen[usize::from(checksums(&header).0)].0 = true;
        let after = marked(&header, Mark::dscp(63).unwrap()).unwrap();
        seen[usize::from(checksums(&after).0)].1 = true;
    }
    // 0xffff is the checksum of zeros only.
    assert!(seen[..0xffff].iter().all(|(before, after)| *before && *after));
    assert_eq!(seen[0xffff], (false, false));
}

/// The equations before RFC 1624 go wrong at the two zeros of one's complement.
#[test]
fn both_zeros() {
    let head = |class, checksum: [u8; 2]| {
        let [high, low] = checksum;
        [0x45, class, 0, 0, 0, 0, 0, 0, 0, 0, high, low]
    };
    // ~(0xffff + ~0x4500 + 0x4504) = 0xfffb, and not 0xfffa or 0xfffc.
    let after = mark::v4(&head(0, [0, 0]), Mark::dscp(1).unwrap());
    assert_eq!(after, Some(head(4, [0xff, 0xfb])));
    // And back, where RFC 1141 gives 0xffff.
    let after = mark::v4(&head(4, [0xff, 0xfb]), Mark::dscp(0).unwrap());
    assert_eq!(after, Some(head(0, [0, 0])));
    // A checksum that receivers also take for zero is not written back.
    let after = mark::v4(&head(0, [0xff, 0xff]), Mark::dscp(1).unwrap());
    assert_eq!(after, Some(head(4, [0xff, 0xfb])));
}

#[test]
fn a_mark_that_is_there_changes_nothing() {
    for checksum in [[0, 0], [0xff, 0xff], [0x12, 0x34]] {
        let [high, low] = checksum;
        let head = [0x45, class(46, 3), 1, 2, 3, 4, 5, 6, 7, 8, high, low];
        assert_eq!(mark::v4(&head, Mark::dscp(46).unwrap()), Some(head));
        assert_eq!(mark::v4(&head, Mark::CongestionExperienced), Some(head));
    }
}

#[test]
fn not_ecn_capable_is_left_as_it_is() {
    for dscp in 0..64 {
        assert_eq!(marked(&header(class(dscp, 0), 7), Mark::CongestionExperienced), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_header(header in headers(), mark in any_mark()) {
        holds(&header, mark)?;
    }

    /// A header that arrives damaged leaves damaged, by the same amount.
    #[test]
    fn a_wrong_checksum_stays_wrong(header in headers(), mark in any_mark(), wrong in 1..0xffffu16) {
        let mut damaged = header.clone();
        let stored = checksums(&header).0;
        // One's complement: with the carry.
        let (sum, carry) = stored.overflowing_add(wrong);
        damaged[10..12].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        if let Some(after) = marked(&damaged, mark) {
            let (stored, computed) = checksums(&after);
            let difference = (u32::from(stored) + 0xffff - u32::from(computed)) % 0xffff;
            prop_assert_eq!(difference, u32::from(wrong));
        }
    }

    /// There and back is where it was.
    #[test]
    fn back_again(header in headers(), mark in any_mark()) {
        let dscp = Ipv4HeaderSlice::from_slice(&header).unwrap().dcp().value();
        if let (Mark::Dscp(_), Some(after)) = (mark, marked(&header, mark)) {
            prop_assert_eq!(marked(&after, Mark::dscp(dscp).unwrap()), Some(header));
        }
    }
}
