//! The state machine of a key, and the store's account of one, step by step: what a simulation is
//! too coarse to distinguish.

use limiter_sharing::account::{Account, Answer, Central, Demand, Report};
use limiter_sharing::key::{Key, Seen, Words};
use limiter_sharing::{Settings, SharedLimit};

use crate::simulator::scene::settings;

const SYNC: u64 = 200_000;

fn key(always: bool) -> Key {
    Key::new(SharedLimit::new(Settings { always, ..settings(8) }).expect("good"), 0, 0)
}

fn answer(grant: u64) -> Answer {
    Answer { grant, wait: 0, epoch: 9, rest: 1_000_000, until: u64::MAX }
}

fn seen(used: u64, shared: u64, owed: u64) -> Seen {
    Seen { used, denied: 0, shared, owed }
}

#[test]
fn what_the_share_passed_since_the_key_was_not_there_is_reported_once() {
    let mut key = key(false);
    assert_eq!(key.tick(1_000, &seen(0, 5, 3)), None);
    key.not_hot(&seen(0, 5, 3));
    // Twelve passed since, and some of it has drained: all of it is reported.
    let call = key.tick(60_000, &seen(0, 17, 8)).expect("half of the share is used");
    assert_eq!(call.demand.owed, 3 + 12);
    key.failed(70_000, call.sequence);
    let call = key.tick(130_000, &seen(0, 18, 8)).expect("it asks again");
    assert_eq!(call.demand.owed, 3 + 13, "it is not known whether it was reported");
    // Packets that pass while the call is under way are reported by the next one.
    assert_eq!(key.tick(131_000, &seen(0, 20, 8)), None);
    key.answered(135_000, call.sequence, &answer(50));
    let call = key.tick(135_000 + SYNC, &seen(0, 20, 0)).expect("a period is over");
    assert_eq!(call.demand.owed, 2);
    key.answered(140_000 + SYNC, call.sequence, &answer(50));
    let call = key.tick(140_000 + 2 * SYNC, &seen(0, 20, 0)).expect("a period is over");
    assert_eq!(call.demand.owed, 0);
}

#[test]
fn a_line_that_ended_stays_ended_until_it_was_reported_to_the_store() {
    let mut key = key(false);
    let call = key.tick(10_000, &seen(0, 10, 10)).expect("the share is used");
    key.answered(12_000, call.sequence, &answer(100));
    assert_eq!(key.words(), Words { granted: 100, expires: 10_000 + 4 * SYNC });
    let call = key.tick(10_000 + SYNC, &seen(50, 10, 0)).expect("a period is over");
    // The daemon sleeps until the line has ended. Then the share passes some.
    let late = 10_000 + 5 * SYNC;
    key.failed(late, call.sequence);
    assert_eq!(key.tick(late, &seen(100, 15, 7)), None);
    assert_eq!(key.words().expires, 0);
    let late = late + SYNC / 4;
    let call = key.tick(late, &seen(100, 17, 7)).expect("due again");
    assert_eq!((key.words().expires, call.demand.owed), (0, 7));
    key.answered(late + 2_000, call.sequence, &answer(10));
    assert_eq!(key.words(), Words { granted: 110, expires: late + 4 * SYNC });
}

/// Against an attempt to answer nonsense.
#[test]
fn an_answer_counts_once_and_only_for_its_call() {
    let mut key = key(true);
    let first = key.tick(0, &seen(0, 0, 0)).expect("due at once");
    key.failed(SYNC, first.sequence);
    let second = key.tick(SYNC + SYNC / 4, &seen(0, 0, 0)).expect("due again");
    key.answered(SYNC + 60_000, first.sequence, &answer(12));
    assert_eq!(key.words().granted, 0, "nobody knows how old it is");
    for _ in 0..2 {
        key.answered(SYNC + 61_000, second.sequence, &answer(12));
        assert_eq!(key.words().granted, 12);
    }
}

#[test]
fn units_of_a_silent_node_are_owed_when_they_cannot_be_used_any_more() {
    let limit = SharedLimit::new(settings(8)).expect("good");
    let central = Central::of(&limit);
    let begin = 1_000 * central.epoch;
    let mut account = Account::new(&central, begin);
    let none = Report::default();
    let demand = |want| Demand { epoch: 0, latest: none, before: none, owed: 0, want };
    let granted = account.exchange(&central, begin, &demand(400));
    assert_eq!(granted.grant, 400);
    // Longer than any of them lives at its node.
    let end = begin + 2 * central.epoch;
    assert!(end - begin >= limit.life());
    let before = account.exchange(&central, end - 1, &demand(0));
    assert_eq!((account.held_before, account.tat.owed(central.rate, end - 1)), (400, 0));
    assert_eq!(before.rest, 400_001, "they drain after that");
    let after = account.exchange(&central, end + 100_000, &demand(0));
    assert_eq!((account.held_before, account.tat.owed(central.rate, end + 100_000)), (0, 300));
    assert_eq!(after.rest, 300_000);
}

/// A node holds no more than the cap of the burst, but what arrives in a sync period at the whole
/// rate.
#[test]
fn a_node_holds_at_most_its_cap() {
    let most = |lease_cap, burst| {
        let settings = Settings { lease_cap, burst, ..settings(8) };
        SharedLimit::new(settings).expect("settings are good").most()
    };
    assert_eq!(
        [0, 10, 250, 500, 1000].map(|cap| most(cap, 10_000)),
        [200, 200, 2500, 5000, 10_000]
    );
    assert_eq!(most(1000, 400), 400);
}
