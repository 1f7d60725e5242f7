//! Faults: calls and answers lost, late and doubled, nodes cut off and paused, a store
//! that forgets, clocks that are set, members that come and go. The bound of each is in
//! docs/cluster.md.

use fastrand::Rng;
use limiter_sharing::rate::Rate;
use limiter_sharing::{OnPartition, Settings, SharedLimit};
use proptest::prelude::*;

use crate::bound::{few_cases, held};
use crate::simulator::load::{self, Pattern};
use crate::simulator::net::{Faults, Outcome, PART, Scene, run};
use crate::simulator::scene::{SECOND, TRIP, cut, scene, settings, share};

fn over_at_most(outcome: &Outcome, bound: u64) {
    assert!(outcome.over <= i64::try_from(bound).expect("fits"), "{bound} allowed: {outcome:?}");
}

fn passed_in(outcome: &Outcome, from: u64, until: u64) -> u64 {
    let part = |time: u64| usize::try_from(time / PART).expect("fits");
    outcome.parts[part(from)..part(until)].iter().map(|(_, passed)| passed).sum()
}

#[test]
fn a_partition_adds_the_shares_of_those_cut_off() {
    for always in [false, true] {
        let limit = SharedLimit::new(Settings { always, ..settings(8) }).expect("good");
        let (excess, outcome) = cut(Settings { always, ..settings(8) }, 4);
        let bound = excess + 4 * share(&limit, 10 * SECOND + limit.period());
        println!("half cut for 10 s, always {always}: {} over of {bound}", outcome.over);
        over_at_most(&outcome, bound);
        // They do pass their shares: 4 * 31.25 a second beside the rate of the others.
        let passed = passed_in(&outcome, 7 * SECOND, 14 * SECOND);
        assert!((7 * 1100..7 * 1140).contains(&passed), "{passed}");
    }
}

#[test]
fn closed_adds_nothing_and_open_the_whole_limit_of_each() {
    let (excess, outcome) = cut(Settings { on_partition: OnPartition::Closed, ..settings(8) }, 4);
    over_at_most(&outcome, excess);
    let (excess, outcome) = cut(Settings { on_partition: OnPartition::Open, ..settings(8) }, 2);
    over_at_most(&outcome, excess + 2 * (1000 + 10 * 1000 + 225));
    // Each node is offered 375 a second, and has 1000.
    let passed = passed_in(&outcome, 7 * SECOND, 14 * SECOND);
    assert!((7 * 1700..7 * 1800).contains(&passed), "{passed}");
}

#[test]
fn all_cut_off_have_their_shares() {
    let (_, outcome) = cut(settings(8), 8);
    let passed = passed_in(&outcome, 7 * SECOND, 14 * SECOND);
    assert!((7 * 245..=7 * 252).contains(&passed), "{passed}");
}

#[test]
fn a_strict_limit_holds_in_a_partition() {
    for count in [1, 4, 8] {
        let (_, outcome) = cut(Settings { strict: true, ..settings(8) }, count);
        over_at_most(&outcome, 0);
    }
    // A source on one node has what the others' shares leave.
    let load = load::one(3000.0);
    let scene = scene(Settings { strict: true, ..settings(8) }, &*load, 20);
    let passed = passed_in(&run(&scene), 10 * SECOND, 20 * SECOND);
    assert!((7_700..=7_900).contains(&passed), "{passed} of 7,812");
}

#[test]
fn leases_of_a_paused_daemon_end() {
    let load = load::one(900.0);
    let mut scene = scene(Settings { always: true, ..settings(8) }, &*load, 20);
    scene.faults.pauses = vec![(0, 5 * SECOND, 15 * SECOND)];
    let outcome = run(&scene);
    over_at_most(&outcome, share(&scene.limit, 10 * SECOND + scene.limit.period()));
    let passed = passed_in(&outcome, 7 * SECOND, 14 * SECOND);
    assert!((7 * 30..=7 * 32).contains(&passed), "{passed}: the share of a node");
    let again = passed_in(&outcome, 16 * SECOND, 19 * SECOND);
    assert!(again > 3 * 880, "{again}");
}

#[test]
fn a_store_that_forgets_adds_a_burst() {
    for load in [load::even(8, 3000.0), load::one(3000.0), load::bursting(8, 80_000.0)] {
        let mut scene = scene(settings(8), &*load, 20);
        scene.faults.flushes = vec![8 * SECOND];
        let outcome = run(&scene);
        println!("store flushed: {} over", outcome.over);
        over_at_most(&outcome, scene.limit.excess(TRIP) + 1000);
    }
}

/// A replica takes over that has not heard the latest of its master; its clock may be another one.
#[test]
fn a_replica_that_takes_over_adds_what_it_has_not_heard() {
    let mut most = 0;
    for always in [false, true] {
        for lag in [5_000, 50_000, 200_000, 1_000_000, 5_000_000] {
            for (step, ahead) in [(0, 0), (300_000, 300), (-300_000, 0)] {
                for (load, least) in [
                    (load::even(8, 3000.0), 4_400),
                    (load::one(3000.0), 4_400),
                    (load::moving(8, 3000.0, SECOND), 4_000),
                    (load::bursting(8, 80_000.0), 0),
                ] {
                    let settings = Settings { always, ..settings(8) };
                    let mut scene = scene(settings, &*load, 20);
                    scene.faults.rewinds = vec![(8 * SECOND, 8 * SECOND + lag)];
                    scene.faults.steps = vec![(8 * SECOND + lag, step)];
                    let outcome = run(&scene);
                    let excess = scene.limit.excess(TRIP);
                    // At most all that the store may have known.
                    let forgotten = outcome.forgotten.min(settings.burst + excess);
                    over_at_most(&outcome, excess + forgotten + ahead);
                    let passed = passed_in(&outcome, 14 * SECOND, 19 * SECOND);
                    assert!(passed >= least, "{passed} after {lag} us were forgotten");
                    most = most.max(outcome.over);
                }
            }
        }
    }
    println!("a replica that has not heard the latest: at most {most} over");
    assert!(most > 0, "nothing came on top, so nothing was forgotten");
}

#[test]
fn a_clock_that_is_set_forward_adds_a_burst_and_one_set_back_nothing() {
    let hour = 3_600_000_000;
    for (step, extra) in [(hour, 1000), (400_000, 1000), (-hour, 0), (-400_000, 0)] {
        for load in [load::even(8, 3000.0), load::one(3000.0), load::skewed(8, 900.0)] {
            let mut scene = scene(settings(8), &*load, 20);
            scene.faults.steps = vec![(8 * SECOND + 30_000, step)];
            let outcome = run(&scene);
            over_at_most(&outcome, scene.limit.excess(TRIP) + extra);
            // Packets pass again within seconds.
            let passed = passed_in(&outcome, 14 * SECOND, 19 * SECOND);
            assert!(passed >= 5 * 880, "{step}: {passed}");
        }
    }
}

#[test]
fn nodes_that_die_leave_what_they_held() {
    let load = load::even(8, 3000.0);
    let mut scene = scene(Settings { always: true, ..settings(8) }, &*load, 30);
    // Their daemons and their packets end: seven of eight, at once.
    scene.faults.cuts = (1..8).map(|node| (node, 8 * SECOND, 99 * SECOND)).collect();
    let load = |node: usize, now: u64| match (node, now < 8 * SECOND) {
        (0, _) => 3000.0,
        (_, true) => 400.0,
        _ => 0.0,
    };
    scene.load = &load;
    let outcome = run(&scene);
    held(&scene, &outcome);
    // Units that they held are accounted as used within two epochs, and drain.
    let passed = passed_in(&outcome, 14 * SECOND, 30 * SECOND);
    assert!(passed >= 16 * 990, "{passed}");
}

#[test]
fn members_come_and_go() {
    let load = load::even(8, 3000.0);
    let mut scene = scene(settings(8), &*load, 24);
    let among = |nodes| scene.limit.among(nodes).expect("good");
    let known = vec![(6 * SECOND, among(6)), (12 * SECOND, among(16)), (18 * SECOND, among(8))];
    // Eight nodes with the share of six, once; and what a smaller share forgives of a larger one.
    let widest = 8 * share(&among(6), scene.limit.period() + TRIP);
    scene.faults.members = known;
    let outcome = run(&scene);
    over_at_most(&outcome, widest + 100);
    let passed = passed_in(&outcome, 6 * SECOND, 24 * SECOND);
    assert!(passed >= 18 * 985, "{passed}");
}

fn any_faults() -> impl Strategy<Value = Faults> {
    (0u32..300, 0u32..300, 0u32..300, 0u32..300).prop_map(|(calls, answers, doubled, late)| {
        Faults { lost_calls: calls, lost_answers: answers, doubled, late, ..Faults::default() }
    })
}

/// Every time without an answer is a partition of a node: its share comes on top, for as long as
/// the node was silent.
fn bound_of(scene: &Scene<'_>, outcome: &Outcome) -> u64 {
    let nodes = scene.limit.settings().nodes;
    nodes * share(&scene.limit, outcome.longest_silence + scene.limit.period() + TRIP)
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn calls_that_go_astray_add_no_more_than_shares(
        faults in any_faults(), sync in 50_000u64..1_000_000, nodes in 1u64..10, seed: u64,
        always: bool,
    ) {
        let rate = Rate::new(1000, SECOND).expect("in range");
        let burst = rate.units_in(2 * sync).max(1000);
        let settings = Settings { rate, sync, burst, always, ..settings(nodes) };
        let mut rng = Rng::with_seed(seed);
        let count = usize::try_from(nodes).expect("fits");
        let pattern = Pattern::random(&mut rng, count, sync, 1000.0);
        let load = move |node: usize, now: u64| pattern.at(node, now);
        let mut scene = scene(settings, &load, 12 + 10 * sync / SECOND);
        scene.seed = seed;
        scene.faults = faults;
        let outcome = run(&scene);
        over_at_most(&outcome, bound_of(&scene, &outcome));
    }
}
