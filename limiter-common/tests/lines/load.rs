//! How many sources find their line full, as docs/line-table.md says it.

use std::sync::atomic::AtomicU64;

use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;

use crate::world::{Lines, Rules, World, limit, source};

const WAYS: u32 = 7;

/// The share of sources without an entry while `mean` of them a line owe at once: sources come to
/// lines as in Poisson's distribution, and a line has seven.
fn share(mean: f64) -> f64 {
    let mut probability = (-mean).exp();
    let mut over = 0.0;
    for count in 1..200_u32 {
        probability *= mean / f64::from(count);
        over += probability * f64::from(count.saturating_sub(WAYS));
    }
    over / mean
}

/// The rows of the table in the documentation: bytes a source, sources a line, share in percent.
fn published() -> Vec<(f64, f64, f64)> {
    let page = include_str!("../../../docs/line-table.md");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.split('|').map(str::trim).collect();
        let number = |index: usize| {
            cells.get(index)?.strip_suffix(" %").unwrap_or(cells[index]).parse().ok()
        };
        Some((number(0)?, number(1)?, number(2)?))
    });
    rows.collect()
}

/// The table is what the formula says, to the digits that it has.
#[test]
fn the_published_shares_are_those_of_the_formula() {
    let rows = published();
    assert!(rows.len() >= 5, "{rows:?}");
    for (bytes, mean, percent) in rows {
        assert!((256.0 / bytes - mean).abs() < 0.006, "{bytes} bytes are {mean} sources a line");
        let exact = 100.0 * share(256.0 / bytes);
        assert!(
            (exact - percent).abs() <= 0.051 * exact,
            "{bytes} bytes: {exact} %, not {percent}"
        );
    }
}

/// The table is what sources meet that the decision judges: each sends once, and owes from then on.
#[test]
fn sources_find_their_line_full_as_often_as_published() {
    const LINES: u32 = 40_000;
    let rules =
        Rules { limits: vec![limit(1 << 40, 1, 0)], slot: |_, _| 0, generation: AtomicU64::new(1) };
    for (_, mean, percent) in published() {
        let table = Lines::new(usize::try_from(LINES).unwrap());
        let world = World { store: &table, rules: &rules };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let sources = (mean * f64::from(LINES)) as u32;
        let now = Ticks::new(1 << 40);
        let first = 0x0a00_0000;
        let mut without = 0_u32;
        for number in 0..sources {
            match world.packet(&source(first + number), now) {
                Reason::Conforming => {}
                Reason::OverAggregate => without += 1,
                other => panic!("{other:?}"),
            }
        }
        let expected = percent / 100.0 * f64::from(sources);
        // Five deviations of a count of rare events that come in small groups, and the digits of
        // the table.
        let slack = 5.0 * (2.0 * expected).sqrt() + 0.06 * expected + 3.0;
        let off = (f64::from(without) - expected).abs();
        assert!(off <= slack, "{mean} a line: {without} of {sources} without, not {expected:.0}");
    }
}
