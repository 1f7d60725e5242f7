//! How many sources find their lines full, as docs/design/line-table.md says it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::{env, fs};

use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_decision::line::{self, Place};

use crate::maps::{Lines, Maps, Rules, SEED, limit, source};

/// Lines of the table that is filled, 512 of them of the overflow.
const LINES: u32 = 16_384;

/// Bytes of lines a source that owes, of each row.
const BYTES: [u32; 7] = [40, 44, 48, 52, 56, 60, 80];

/// The first line of the table in the documentation, and what is behind it.
const HEAD: &str = "\
| bytes a source that owes | filled: in the overflow | without an entry | coming and going: in the \
overflow | without an entry |
|--:|--:|--:|--:|--:|
";

/// Ticks between two new sources.
const STEP: u64 = 1 << 10;

/// Shares of sources in percent.
struct Shares {
    overflow: f64,
    without: f64,
}

/// Has `sources` owe at the same time, of which `turns` times as many come and go; then, the shares
/// of those that stand in the overflow, and of those that came last and found no room.
fn load(sources: u32, turns: u32) -> Shares {
    let owes = STEP * u64::from(sources);
    let rules =
        Rules { limits: vec![limit(owes, 1, 0)], slot: |_, _| 0, generation: AtomicU64::new(1) };
    let table = Lines::new(usize::try_from(LINES).unwrap());
    let maps = Maps { store: &table, rules: &rules };
    let mut without = VecDeque::new();
    for number in 0..sources * (turns + 1) {
        let now = Ticks::new((1 << 40) + u64::from(number) * STEP);
        let reason = maps.packet(&source(0x0a00_0000 + number), now);
        let refused = reason != Reason::Conforming;
        assert!(!refused || reason == Reason::OverAggregate, "{reason:?}");
        without.push_back(refused);
        // Sources that came before have drained.
        if without.len() > usize::try_from(sources).unwrap() {
            without.pop_front();
        }
    }
    let now = Ticks::new((1 << 40) + u64::from(sources * (turns + 1) - 1) * STEP);
    let share =
        |count: usize| 100.0 * f64::from(u32::try_from(count).unwrap()) / f64::from(sources);
    let without = without.iter().filter(|refused| **refused).count();
    Shares { overflow: share(table.owing_in_overflow(now)), without: share(without) }
}

/// The table for the documentation.
fn table() -> String {
    let mut text = HEAD.to_owned();
    for bytes in BYTES {
        let sources = LINES * 256 / bytes;
        let (filled, churned) = (load(sources, 0), load(sources, 4));
        writeln!(
            text,
            "| {bytes} | {:.3} % | {:.3} % | {:.3} % | {:.3} % |",
            filled.overflow, filled.without, churned.overflow, churned.without
        )
        .unwrap();
    }
    text
}

/// The published shares are those that the decision meets: the sources and the seed are the same
/// in each run. With the bytes that a table is made with, none is without an entry.
#[test]
fn sources_find_their_lines_full_as_often_as_published() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/line-table.md");
    let text = fs::read_to_string(&page).unwrap();
    let begin = text.find(HEAD).expect("docs/design/line-table.md has no such table");
    let end = begin + text[begin..].find("\n\n").unwrap() + 1;
    let made = table();
    let made_with = made.lines().find(|line| line.starts_with("| 60 |")).unwrap();
    let cells: Vec<&str> = made_with.split(" | ").collect();
    assert_eq!((cells[2], cells[4]), ("0.000 %", "0.000 % |"), "{made_with}");
    if env::var_os("LIMITER_UPDATE_PAGES").is_some() {
        fs::write(&page, format!("{}{made}{}", &text[..begin], &text[end..])).unwrap();
        return;
    }
    assert_eq!(&text[begin..end], made, "LIMITER_UPDATE_PAGES=1 writes it");
}

/// An attacker who knows everything but the seed cannot fill the lines of a victim: addresses that
/// would meet in them under another seed are spread over the table.
#[test]
fn addresses_that_are_aimed_with_another_seed_miss() {
    const VICTIM: u32 = 0xc000_0201;
    const AIMED: usize = 2_000;
    let rules =
        Rules { limits: vec![limit(1 << 40, 1, 0)], slot: |_, _| 0, generation: AtomicU64::new(1) };
    let table = Lines::new(1_024);
    let maps = Maps { store: &table, rules: &rules };
    let place = |number: u32, seed: u64| {
        let lines = line::Lines { seed, ..table.all() };
        Place::of(source(number).name().unwrap(), lines)
    };
    let meet = |seed: u64| {
        let victim = place(VICTIM, seed);
        move |number: &u32| {
            let other = place(*number, seed);
            [other.first(), other.second()].contains(&victim.first())
        }
    };
    let aimed: Vec<u32> = (0x0a00_0000..).filter(meet(SEED ^ 1)).take(AIMED).collect();
    let hits = aimed.iter().filter(|number| meet(SEED)(number)).count();
    // Two lines of 992 each: four are expected.
    assert!(hits < 20, "{hits} of {AIMED} hit");
    let now = Ticks::new(1 << 40);
    for number in aimed {
        maps.packet(&source(number), now);
    }
    assert_eq!(maps.packet(&source(VICTIM), now), Reason::Conforming);
}
