//! Sources that meet in one line: who makes an entry, who leaves, and whose bucket is charged.

use limiter_common::bucket::{Resolved, Slot, Word};
use limiter_common::time::Ticks;
use loom::sync::Arc;
use loom::thread;

use crate::lines_maps::{Held, Maps, conforms, source};
use crate::maps::{
    NOW, burst, every_order_within, fails_without_fences, owing, resolved, unlimited,
};

/// The limit of a source that is in the slot of its number.
fn own(number: u8) -> Resolved {
    resolved(1, u32::from(number), Slot::NONE, false)
}

/// A source that owes nothing, and one that owes its burst.
fn drained(number: u8) -> Held {
    (number, owing(0, false), own(number))
}

fn owes(number: u8) -> Held {
    (number, owing(1, false), own(number))
}

/// Packets of these sources at once, each on a CPU of its own, while this one does something else:
/// which of them passed.
fn at_once<const N: usize>(
    maps: &Arc<Maps>,
    numbers: [u8; N],
    meanwhile: impl FnOnce(&Maps),
) -> [bool; N] {
    let others = numbers.map(|number| {
        let maps = Arc::clone(maps);
        thread::spawn(move || conforms(maps.packet(number)))
    });
    meanwhile(maps);
    others.map(|other| other.join().unwrap())
}

/// A packet on another CPU and one on this one.
fn two(maps: &Arc<Maps>, there: u8, here: u8) -> [bool; 2] {
    let mut passed = false;
    let [other] = at_once(maps, [there], |maps| passed = conforms(maps.packet(here)));
    [other, passed]
}

fn count(passed: &[bool]) -> usize {
    passed.iter().filter(|passed| **passed).count()
}

/// The entries of a line when nobody is at work: the name and the time of each, each name once, and
/// no entry that leaves.
fn entries(maps: &Maps) -> Vec<(u64, Word)> {
    let mut found: Vec<(u64, Word)> = Vec::new();
    assert_eq!(maps.locked(), 0, "a line was left locked");
    for (name, word, _) in maps.ways() {
        assert!(!word.is_gone(), "an entry was left half made");
        if name != 0 {
            assert!(found.iter().all(|(other, _)| *other != name), "a source has two entries");
            found.push((name, word));
        }
    }
    found
}

fn time_of(maps: &Maps, number: u8) -> Option<Ticks> {
    let name = source(number).name().unwrap();
    entries(maps).into_iter().find(|(other, _)| *other == name).map(|(_, word)| word.tat())
}

/// Two first packets of one source make one entry, and get what one bucket holds: in an empty line,
/// and where another source has to leave, at the first way that they look at and at the second.
#[test]
fn first_packets_make_one_entry() {
    for held in [
        [None, None],
        [Some(drained(2)), None],
        [None, Some(drained(2))],
        [Some(drained(2)), Some(owes(3))],
        [Some(owes(3)), Some(drained(2))],
    ] {
        for room in 1..=2 {
            every_order_within(2, move || {
                let limits = [burst(1, 0), burst(room, 0), burst(1, 0), burst(1, 0)];
                let maps = Arc::new(Maps::new(&limits, held));
                let passed = count(&two(&maps, 1, 1));
                let expected = usize::try_from(room).unwrap();
                assert!(passed <= expected, "two buckets");
                assert!(passed > 0, "both went without");
                assert_eq!(passed + maps.pass_of(1, 3), expected);
                assert!(time_of(&maps, 1).is_some());
            });
        }
    }
}

/// Three first packets of one source make one entry, and get what one bucket holds.
#[test]
fn three_first_packets_make_one_entry() {
    every_order_within(2, || {
        let limits = [burst(1, 0), burst(2, 0)];
        let maps = Arc::new(Maps::new(&limits, [None, None]));
        let mut passed = 0;
        let others = at_once(&maps, [1, 1], |maps| passed = maps.pass_of(1, 1));
        passed += count(&others);
        assert!(passed <= 2);
        assert_eq!(passed + maps.pass_of(1, 3), 2);
        entries(&maps);
    });
}

/// Two new sources want the one way that is left: one gets it, and nobody gets more than its limit.
#[test]
fn two_sources_want_one_way() {
    for held in [
        [Some(owes(3)), None],
        [Some(owes(3)), Some(drained(0))],
        [Some(drained(0)), Some(owes(3))],
    ] {
        every_order_within(2, move || {
            let limits = [burst(1, 0), burst(1, 0), burst(1, 0), burst(1, 0)];
            let maps = Arc::new(Maps::new(&limits, held));
            let [one, other] = two(&maps, 1, 2);
            assert!(one ^ other, "one of them has an entry");
            assert_eq!(maps.pass_of(1, 2) + maps.pass_of(2, 2), 0);
            assert_eq!(time_of(&maps, 1).is_some(), one);
            assert_eq!(time_of(&maps, 2).is_some(), other);
            assert!(time_of(&maps, 3).is_some(), "a source that owes was evicted");
        });
    }
}

/// A packet of a drained source comes while another one wants its way: no charge lands in the
/// other's bucket, and none is lost.
#[test]
fn a_charge_lands_in_its_own_bucket() {
    for held in [[Some(drained(0)), Some(owes(3))], [Some(owes(3)), Some(drained(0))]] {
        every_order_within(2, move || {
            let limits = [burst(1, 0), burst(4, 0), burst(1, 0), burst(1, 0)];
            let maps = Arc::new(Maps::new(&limits, held));
            let [stayed, came] = two(&maps, 0, 1);
            // The way has one of them. Who has it was charged for its own packet alone.
            let one = owing(1, false).tat();
            match (time_of(&maps, 0), time_of(&maps, 1)) {
                (Some(time), None) => {
                    assert!(stayed && !came);
                    assert_eq!(time, one);
                    assert_eq!(maps.pass_of(0, 2), 0);
                }
                (None, Some(time)) => {
                    assert!(came && !stayed, "a packet passed uncharged");
                    assert_eq!(time, one);
                    assert_eq!(maps.pass_of(1, 5), 3);
                }
                both => panic!("{both:?}"),
            }
        });
    }
}

/// On processors that change the places of loads, a fence keeps the name behind the word.
#[test]
fn without_fences_a_charge_lands_in_another_bucket() {
    assert!(fails_without_fences(a_charge_lands_in_its_own_bucket));
}

/// Two packets of a limited source, which takes the way of an unlimited one: what is known of the
/// way is never older than its name.
fn a_way_of_an_unlimited_source() {
    every_order_within(2, || {
        let limits = [unlimited(0), burst(1, 0), burst(1, 0), burst(1, 0)];
        let maps = Arc::new(Maps::new(&limits, [Some(drained(0)), Some(owes(3))]));
        let passed = count(&two(&maps, 1, 1));
        assert_eq!(passed + maps.pass_of(1, 2), 1);
    });
}

#[test]
fn a_way_has_not_the_limit_of_the_source_before() {
    a_way_of_an_unlimited_source();
}

/// On processors that change the places of loads, fences keep the limit behind the word, and the
/// word behind the name.
#[test]
fn without_fences_a_way_has_the_limit_of_the_source_before() {
    assert!(fails_without_fences(a_way_of_an_unlimited_source));
}

/// A way that goes from one source to another and back while a packet of the first is under
/// way. What passes is what one bucket of each gives.
#[test]
fn a_way_that_comes_back() {
    every_order_within(2, || {
        let limits = [burst(2, 0), burst(1, 0), burst(1, 0), burst(1, 0)];
        let maps = Arc::new(Maps::new(&limits, [Some(drained(0)), Some(owes(3))]));
        let other = {
            let maps = Arc::clone(&maps);
            thread::spawn(move || conforms(maps.packet(0)))
        };
        let came = conforms(maps.packet(1));
        let here = conforms(maps.packet(0));
        let passed = usize::from(here) + usize::from(other.join().unwrap()) + maps.pass_of(0, 3);
        // Time stands still, so the one who came owes, and nobody gets the way back.
        assert_eq!(passed, if came { 0 } else { 2 });
        assert_eq!(maps.pass_of(1, 2), 0);
    });
}

/// A commit while a source is charged and another one wants its way: nobody gets more than the
/// larger of both limits.
#[test]
fn a_rule_change_while_an_entry_leaves() {
    for (old, new) in [(1, 2), (2, 1)] {
        every_order_within(1, move || {
            let limits = [burst(old, 0), burst(new, 2)];
            let held = |number| Some((number, owing(0, false), resolved(1, 0, Slot::NONE, false)));
            let owed = Some((3, Word::new(NOW.plus(Ticks::new(1 << 50)), false), own(0)));
            let maps = Maps::new(&limits, [held(0), owed]).everybody([Some(1), Some(0)]);
            let maps = Arc::new(maps);
            let both = at_once(&maps, [0, 1], |maps| maps.commit(2));
            let [stayed, came] = both.map(usize::from);
            let larger = usize::try_from(old.max(new)).unwrap();
            assert!(stayed + maps.pass_of(0, 3) <= larger);
            assert!(came + maps.pass_of(1, 3) <= larger);
            entries(&maps);
        });
    }
}

/// A commit while two packets charge one source: as with a bucket in a hash map, nobody in the way
/// of it.
#[test]
fn a_rule_change_under_way() {
    for (old, new) in [(4, 2), (2, 4)] {
        every_order_within(2, move || {
            let limits = [burst(old, 0), burst(new, 2)];
            let held = Some((1, owing(0, false), resolved(1, 0, Slot::NONE, false)));
            let maps = Arc::new(Maps::new(&limits, [held, None]).everybody([Some(1), Some(0)]));
            let passed = count(&at_once(&maps, [1, 1], |maps| maps.commit(2)));
            let passed = passed + maps.pass_of(1, 8);
            assert!((2..=4).contains(&passed), "{passed}");
        });
    }
}

/// A commit gives each source a limit of its own while one of them leaves for the other: the way
/// does not get the limit of the one that left.
#[test]
fn a_way_has_the_limit_of_its_source() {
    every_order_within(1, || {
        let limits = [burst(1, 2), burst(1, 2), burst(1, 0), burst(1, 0)];
        let held = (0, owing(0, false), resolved(1, 3, Slot::NONE, false));
        let maps = Maps::new(&limits, [Some(held), Some(owes(2))]).everybody([None, Some(3)]);
        let maps = Arc::new(maps);
        at_once(&maps, [0, 1], |maps| maps.commit(2));
        for (name, _, resolved) in maps.ways() {
            let own = (0..2).find(|number| name == source(*number).name().unwrap());
            if let Some(number) = own
                && resolved.generation().get() == 2
            {
                assert_eq!(resolved.slot().index(), u32::from(number));
            }
        }
    });
}

/// The limits of sources 0 to 7: one packet, but for one of them.
fn limits(number: u8, room: u64) -> Vec<limiter_common::wire::Limit> {
    (0..8).map(|other| burst(if other == number { room } else { 1 }, 0)).collect()
}

const FULL: [[Option<u8>; 2]; 2] = [[Some(2), Some(4)], [Some(3), Some(5)]];

/// The lines of all, and the overflow: who owes there.
fn owing_in(lines: [[Option<u8>; 2]; 3]) -> [[Option<Held>; 2]; 3] {
    lines.map(|line| line.map(|number| number.map(owes)))
}

/// Two first packets of one source make one entry: in its first line, in its second one, in the
/// overflow, and where nobody may leave but there.
#[test]
fn first_packets_make_one_entry_in_three_lines() {
    let [first, second] = FULL;
    for [one, other] in [
        [[None, None], [None, None]],
        [[Some(2), None], [None, None]],
        [[Some(2), None], [Some(3), None]],
        [first, second],
    ] {
        every_order_within(1, move || {
            let held = owing_in([one, other, [None, None]]);
            let maps = Arc::new(Maps::spread(&limits(0, 2), held));
            let passed = count(&two(&maps, 0, 0));
            assert!((1..=2).contains(&passed), "{passed}");
            assert_eq!(passed + maps.pass_of(0, 3), 2);
            assert!(time_of(&maps, 0).is_some());
        });
    }
}

/// Two new sources whose lines are each other's second: both get an entry, and nobody waits for
/// ever.
#[test]
fn sources_of_two_lines_do_not_wait_for_each_other() {
    for held in [
        [[None, None], [None, None], [None, None]],
        [[Some(2), None], [Some(3), None], [None, None]],
        [FULL[0], FULL[1], [None, None]],
    ] {
        every_order_within(1, move || {
            let maps = Arc::new(Maps::spread(&limits(0, 1), owing_in(held)));
            let passed = two(&maps, 0, 1);
            // A CPU that waited too long for a lock has made no entry, and passed no packet.
            for (number, passed) in [0, 1].into_iter().zip(passed) {
                assert_eq!(usize::from(passed) + maps.pass_of(number, 2), 1);
                assert!(time_of(&maps, number).is_some());
            }
        });
    }
}

/// A source in the overflow drains, and sends while another one wants its way there: no charge
/// lands in the other's bucket, none is lost, and no source has two entries.
#[test]
fn a_source_of_the_overflow_that_leaves_and_comes() {
    let [first, second] = FULL;
    for stays in [0, 1] {
        every_order_within(1, move || {
            let mut held = owing_in([first, second, [None, Some(7)]]);
            held[2][0] = Some(drained(stays));
            let maps = Arc::new(Maps::spread(&limits(6, 1), held));
            let [stayed, came] = two(&maps, stays, 6);
            let again = maps.pass_of(stays, 2);
            assert!(usize::from(stayed) + again <= 1, "a charge was lost");
            assert!(usize::from(came) + maps.pass_of(6, 2) <= 1);
            assert!(stayed || came, "both went without");
            entries(&maps);
        });
    }
}

/// A source stands in the overflow when a way in its first line is free again: it keeps the one
/// entry, whoever looks for it.
#[test]
fn a_source_of_the_overflow_gets_no_second_entry() {
    every_order_within(1, || {
        let mut held = owing_in([[Some(2), None], FULL[1], [None, None]]);
        held[2][0] = Some(drained(0));
        let maps = Arc::new(Maps::spread(&limits(0, 2), held));
        let passed = count(&two(&maps, 0, 0));
        assert_eq!(passed + maps.pass_of(0, 3), 2);
        entries(&maps);
    });
}

/// A commit gives sources other limits while one of them leaves its second line for the other: no
/// way gets the limit of the one that left.
#[test]
fn a_way_of_a_second_line_has_the_limit_of_its_source() {
    every_order_within(1, || {
        let own = [burst(1, 2), burst(1, 2), burst(1, 0), burst(1, 0)];
        let held = [
            [Some(owes(2)), Some(owes(2 + 2))],
            [Some((0, owing(0, false), resolved(1, 3, Slot::NONE, false))), Some(owes(3))],
            [Some(owes(5)), Some(owes(7))],
        ];
        let limits: Vec<_> = own.into_iter().chain([burst(1, 0); 4]).collect();
        let maps = Arc::new(Maps::spread(&limits, held).everybody([None, Some(3)]));
        at_once(&maps, [0, 1], |maps| maps.commit(2));
        for (name, _, resolved) in maps.ways() {
            let own = (0..2).find(|number| name == source(*number).name().unwrap());
            if let Some(number) = own
                && resolved.generation().get() == 2
            {
                assert_eq!(resolved.slot().index(), u32::from(number));
            }
        }
        entries(&maps);
    });
}
