//! IPv6: the class lies across two bytes, between version and flow label.

use etherparse::{Ipv6FlowLabel, Ipv6Header, Ipv6HeaderSlice};
use limiter_decision::mark::{self, Mark};
use proptest::prelude::*;

use crate::{any_mark, expected, marks};

/// Everything that a mark promises.
fn holds(class: u8, label: u32, mark: Mark) -> Result<(), TestCaseError> {
    let before = Ipv6Header {
        traffic_class: class,
        flow_label: Ipv6FlowLabel::try_new(label).unwrap(),
        payload_length: 0x1234,
        hop_limit: 64,
        source: [0x20; 16],
        destination: [0xfd; 16],
        ..Ipv6Header::default()
    };
    let bytes = before.to_bytes();
    let (head, rest) = bytes.split_first_chunk().unwrap();
    let Some(marked) = mark::v6(head, mark) else {
        prop_assert_eq!(expected(mark, class >> 2, class & 3), None);
        return Ok(());
    };
    let after = [&marked, rest].concat();
    let after = Ipv6HeaderSlice::from_slice(&after).unwrap();
    let fields = (after.dscp().value(), after.ecn().value());
    prop_assert_eq!(Some(fields), expected(mark, class >> 2, class & 3));
    // Nothing else.
    prop_assert_eq!(Ipv6Header { traffic_class: class, ..after.to_header() }, before);
    Ok(())
}

#[test]
fn every_mark_on_every_class() {
    for class in 0..=255 {
        for mark in marks() {
            for label in [0, 0xf_ffff, 0xa_5a5a] {
                holds(class, label, mark).unwrap();
            }
        }
    }
}

#[test]
fn one_by_hand() {
    let head = [0x6b, 0x91, 0x23, 0x45];
    assert_eq!(mark::v6(&head, Mark::CongestionExperienced), Some([0x6b, 0xb1, 0x23, 0x45]));
    assert_eq!(mark::v6(&head, Mark::dscp(0).unwrap()), Some([0x60, 0x11, 0x23, 0x45]));
    assert_eq!(mark::v6(&[0x60, 0, 0, 0], Mark::CongestionExperienced), None);
}

proptest! {
    #[test]
    fn any_header(class in any::<u8>(), label in 0..=0xf_ffffu32, mark in any_mark()) {
        holds(class, label, mark)?;
    }
}
