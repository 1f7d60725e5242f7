//! Marks: every code point and every ECN value, with etherparse as an oracle for the fields and for
//! the checksum, which it computes anew.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

mod v4;
mod v6;

use limiter_decision::mark::{Dscp, Mark};
use proptest::prelude::*;

/// A byte of the class field: code point and ECN.
const fn class(dscp: u8, ecn: u8) -> u8 {
    dscp << 2 | ecn
}

fn marks() -> impl Iterator<Item = Mark> {
    (0..=63).filter_map(Mark::dscp).chain([Mark::CongestionExperienced])
}

/// The code point and ECN after a mark, from a table of its own.
fn expected(mark: Mark, dscp: u8, ecn: u8) -> Option<(u8, u8)> {
    match (mark, ecn) {
        (Mark::Dscp(value), _) => Some((value.get(), ecn)),
        (Mark::CongestionExperienced, 0) => None,
        (Mark::CongestionExperienced, _) => Some((dscp, 3)),
    }
}

fn any_mark() -> impl Strategy<Value = Mark> {
    prop::sample::select(marks().collect::<Vec<_>>())
}

#[test]
fn code_points_end_at_63() {
    for value in 0..=255 {
        let known = Dscp::new(value);
        assert_eq!(known.map(Dscp::get), (value < 64).then_some(value));
        assert_eq!(Mark::dscp(value), known.map(Mark::Dscp));
    }
    assert_eq!(marks().count(), 65);
}
