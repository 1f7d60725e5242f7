//! A store that does not count, and nodes of which one has other rules: what each node passes is
//! bounded by its own account of the limit. docs/design/cluster.md, "What a node takes" and "Other
//! rules".

use fastrand::Rng;
use limiter_sharing::account::Answer;
use limiter_sharing::key::Seen;
use limiter_sharing::quota::Quota;
use limiter_sharing::rate::Rate;
use limiter_sharing::window::{Window, WindowKind};
use limiter_sharing::{OnPartition, Settings, SharedLimit};
use proptest::prelude::*;

use crate::bound::few_cases;
use crate::simulator::load::{self, Pattern};
use crate::simulator::meter::Meter;
use crate::simulator::net::{Lies, Load, Outcome, run};
use crate::simulator::scene::{SECOND, scene, settings, share};

/// Units that one node passes beyond its own account in a window of any length up to the whole run.
fn share_beside(limit: &SharedLimit, seconds: u64) -> i64 {
    let beside = if limit.settings().strict { 0 } else { share(limit, seconds * SECOND) };
    i64::try_from(beside).expect("fits")
}

fn lied_to(settings: Settings, lies: Lies, load: &Load) -> Outcome {
    let mut scene = scene(settings, load, 20);
    scene.faults.lies = lies;
    run(&scene)
}

#[test]
fn a_store_that_grants_everything_gives_a_node_its_own_limit() {
    for (always, strict) in [(true, false), (false, false), (false, true)] {
        let settings = Settings { always, strict, ..settings(3) };
        let limit = SharedLimit::new(settings).expect("good");
        let load = load::one(30_000.0);
        let outcome = lied_to(settings, Lies::Generous, &*load);
        let beside = if always { 0 } else { share_beside(&limit, 20) };
        assert!(outcome.over <= beside, "{beside} allowed: {outcome:?}");
        // The store does lie, and the node has its own limit all the same.
        assert!(outcome.beyond > 10_000, "{outcome:?}");
        assert!(outcome.admitted > 14_000, "{outcome:?}");
    }
}

#[test]
fn three_nodes_of_a_store_that_grants_everything_have_three_limits() {
    let settings = Settings { always: true, ..settings(3) };
    let outcome = lied_to(settings, Lies::Generous, &*load::even(3, 90_000.0));
    // 3 * (B + R W) is 2 * (B + R W) over B + R W, in the longest window.
    assert!(outcome.over <= 2 * (1000 + 20 * 1000), "{outcome:?}");
    assert!(outcome.admitted > 3 * 19_000, "{outcome:?}");
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn no_lie_gives_a_node_more_than_its_own_limit(
        seed: u64, always: bool, strict: bool, sync in 50_000u64..500_000,
    ) {
        let on_partition = OnPartition::Closed;
        let settings = Settings { sync, always, strict, on_partition, ..settings(1) };
        let limit = SharedLimit::new(settings).expect("good");
        let mut rng = Rng::with_seed(seed);
        let pattern = Pattern::random(&mut rng, 1, sync, 1000.0);
        let load = move |node: usize, now: u64| pattern.at(node, now);
        let mut scene = scene(settings, &load, 10);
        (scene.seed, scene.faults.lies) = (seed, Lies::Random);
        let outcome = run(&scene);
        prop_assert!(outcome.over <= share_beside(&limit, 10), "{outcome:?}");
    }

    /// A window, however its units are granted: two quotas, a packet, and a quota in each length.
    #[test]
    fn no_lie_gives_a_node_more_than_two_quotas_at_once(
        answers in prop::collection::vec((0u64..100, 0u64..5_000_000, 0u64..20), 50..200),
        kind in prop::sample::select(&[
            WindowKind::Fixed, WindowKind::SlidingCounter, WindowKind::SlidingLog,
        ][..]),
    ) {
        let window =
            Window { kind, length: 60 * SECOND, quota: 60, largest: 1, life: 800_000, lease_cap: 250 };
        let mut quota = Quota::new(window, 200_000, 0, 0);
        let mut meter = Meter::new(Rate::new(60, 60 * SECOND).expect("in range"));
        let mut seen = Seen::default();
        let mut now = 0;
        for (share, until, epoch) in answers {
            now += 100_000;
            seen.denied += 50;
            let Some(call) = quota.tick(now, &seen) else { continue };
            let grant = call.demand.want * share.min(99) / 50;
            let grant = grant.min(call.demand.want);
            let answer = Answer { grant, wait: 0, epoch, rest: until, until };
            quota.answered(now, call.sequence, &answer);
            let words = quota.words();
            if now < words.expires && words.granted > seen.used {
                meter.pass(now, words.granted - seen.used);
                seen.used = words.granted;
            }
        }
        prop_assert!(meter.excess() <= 2 * 60 + 1, "{}", meter.excess());
    }
}

/// The bound of docs/design/cluster.md, "Other rules": the quickest rate of all, for as long as the
/// slowest of all bursts takes to drain and for the window.
fn of_other_rules(limits: &[SharedLimit], fastest: &SharedLimit) -> i64 {
    let longest = limits.iter().map(|limit| {
        let (rate, burst) = limit.central();
        rate.micros_of(burst)
    });
    let most = fastest.central().0.units_in(longest.max().expect("one at least"));
    i64::try_from(most).expect("fits")
}

#[test]
fn a_node_with_other_rules_costs_what_is_published() {
    let base = Settings { always: true, ..settings(3) };
    let usual = SharedLimit::new(base).expect("good");
    let rate = |units| Rate::new(units, SECOND).expect("in range");
    for (of_rate, burst) in
        [(10_000, 10_000), (2_000, 1_000), (500, 1_000), (100, 100), (1_000, 4_000)]
    {
        let other =
            SharedLimit::new(Settings { rate: rate(of_rate), burst, ..base }).expect("good");
        let fastest = if of_rate > 1_000 { other } else { usual };
        for (name, load) in [
            ("even", load::even(3, 30_000.0)),
            ("the other alone", load::one(30_000.0)),
            ("moving", load::moving(3, 30_000.0, SECOND)),
            ("bursts", load::bursting(3, 80_000.0)),
        ] {
            // The meter is of the fastest rate; the node with other numbers is the first.
            let mut scene = scene(*fastest.settings(), &*load, 20);
            scene.faults.others =
                if of_rate > 1_000 { vec![(1, usual), (2, usual)] } else { vec![(0, other)] };
            let outcome = run(&scene);
            let over = outcome.over + i64::try_from(fastest.settings().burst).expect("fits");
            let bound = of_other_rules(&[usual, other], &fastest);
            println!("{of_rate}/s, burst {burst}, {name}: {over} over R W, {bound} allowed");
            assert!(over <= bound, "{name}: {bound} allowed: {outcome:?}");
        }
    }
}
