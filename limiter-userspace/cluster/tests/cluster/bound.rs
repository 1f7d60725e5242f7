//! The bound of docs/cluster.md in every window, and that what is below the limit passes.

use fastrand::Rng;
use limiter_sharing::rate::Rate;
use limiter_sharing::{Settings, SharedLimit};
use proptest::prelude::*;

use crate::simulator::load::{self, Pattern};
use crate::simulator::net::{Outcome, Scene, run};
use crate::simulator::scene::{SECOND, TRIP, after, scene, settings};

/// The published bound, of all nodes in contact.
pub(crate) fn held(scene: &Scene<'_>, outcome: &Outcome) {
    let bound = scene.limit.excess(TRIP);
    assert!(
        outcome.over <= i64::try_from(bound).expect("fits"),
        "{} over, {bound} allowed: {outcome:?}",
        outcome.over
    );
    // The nodes' own accounts are never in the way of a store that counts.
    assert_eq!(outcome.beyond, 0, "{outcome:?}");
}

#[test]
fn no_load_is_over_the_bound_and_what_is_below_the_limit_passes() {
    println!(
        "{:26} {:7} {:>6} {:>6} {:>9} {:>9} {:>6}",
        "load", "", "over", "bound", "offered/s", "passed/s", "calls/s"
    );
    for always in [false, true] {
        for (name, load, part) in &load::all(8, 1000.0) {
            let scene = scene(Settings { always, ..settings(8) }, &**load, 24);
            let outcome = run(&scene);
            let (offered, passed) = after(&outcome, 4);
            let kind = if always { "always" } else { "hot" };
            println!(
                "{name:26} {kind:7} {:6} {:6} {:9} {:9} {:6}",
                outcome.over,
                scene.limit.excess(TRIP),
                offered / 20,
                passed / 20,
                outcome.calls / 24
            );
            held(&scene, &outcome);
            let wanted = (offered.min(20_000) as f64 * part) as u64;
            assert!(passed >= wanted, "{name}: {passed} of {offered}");
        }
    }
}

#[test]
fn every_sync_period_holds_the_bound_and_reaches_the_rate() {
    for sync in [50_000, 200_000, SECOND, 10 * SECOND] {
        for (load, part) in [(load::even(8, 3000.0), 0.97), (load::even(8, 900.0), 0.99)] {
            // The least burst that is allowed.
            let burst = 2 * sync / 1000;
            let seconds = 20 + 12 * sync / SECOND;
            let scene = scene(Settings { sync, burst, ..settings(8) }, &*load, seconds);
            let outcome = run(&scene);
            held(&scene, &outcome);
            let (offered, passed) = after(&outcome, seconds / 2);
            let allowed = 1000.0 * (seconds - seconds / 2) as f64;
            assert!(
                passed as f64 >= allowed.min(offered as f64) * part,
                "{sync}: {passed} of {offered}"
            );
        }
    }
}

#[test]
fn a_hundred_nodes_share_a_limit() {
    for (load, part) in [(load::even(100, 3000.0), 0.98), (load::even(100, 900.0), 0.98)] {
        let scene = scene(settings(100), &*load, 12);
        let outcome = run(&scene);
        held(&scene, &outcome);
        let (offered, passed) = after(&outcome, 4);
        println!(
            "a hundred nodes: {} over of {}, {passed} passed of {offered}, {} calls a second",
            outcome.over,
            scene.limit.excess(TRIP),
            outcome.calls / 12
        );
        assert!(passed as f64 >= 8000.0_f64.min(offered as f64) * part);
    }
}

#[test]
fn five_a_day_are_five() {
    let rate = Rate::new(5, 86_400 * SECOND).expect("in range");
    let few = Settings { rate, burst: 5, ..settings(8) };
    assert_eq!(SharedLimit::new(few).expect("good").cold(), None);
    let in_turn = [load::moving(8, 2.0, 3 * SECOND), load::moving(8, 1.0, SECOND)];
    for load in [load::even(8, 2.0), load::one(3.0)].into_iter().chain(in_turn) {
        let scene = scene(few, &*load, 60);
        let outcome = run(&scene);
        held(&scene, &outcome);
        assert_eq!(outcome.admitted, 5, "{outcome:?}");
    }
}

#[test]
fn bytes_are_as_exact_as_packets() {
    // 1 Gbit/s in frames of 1,514 bytes, twice as many as are allowed.
    let rate = Rate::new(125_000_000, SECOND).expect("in range");
    let bytes = Settings { rate, burst: 62_500_000, largest: 1522, always: true, ..settings(8) };
    let load = load::even(8, 250_000_000.0);
    let mut scene = scene(bytes, &*load, 3);
    scene.packet = 1514;
    let outcome = run(&scene);
    held(&scene, &outcome);
    let (_, passed) = after(&outcome, 1);
    assert!(passed > 2 * 123_000_000, "{passed}");
}

/// Cases of a property that takes a simulation each.
pub(crate) fn few_cases() -> ProptestConfig {
    ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() }
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let numbers = (1u64..12, 50_000u64..2_000_000, 1u64..5000, 0u64..4000);
    (numbers, 0u64..=1000, 0u64..=500, any::<bool>(), any::<bool>()).prop_map(
        |((nodes, sync, rate, more), share_of_rate, share_of_burst, strict, always)| {
            let rate = Rate::new(rate, SECOND).expect("in range");
            // Units that shares take from a strict limit come on top.
            let burst = (2 * rate.units_in(2 * sync) + more + 2).max(4);
            let share_of_rate = if strict { share_of_rate.min(500) } else { share_of_rate };
            Settings {
                rate,
                burst,
                sync,
                strict,
                always,
                share_of_rate,
                share_of_burst,
                ..settings(nodes)
            }
        },
    )
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn no_random_load_is_over_the_bound(settings in any_settings(), seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let rate = settings.rate.units() as f64 / settings.rate.micros() as f64 * 1e6;
        let nodes = usize::try_from(settings.nodes).expect("fits");
        let pattern = Pattern::random(&mut rng, nodes, settings.sync, rate);
        let load = move |node: usize, now: u64| pattern.at(node, now);
        let mut scene = scene(settings, &load, 6 + 10 * settings.sync / SECOND);
        scene.seed = seed;
        held(&scene, &run(&scene));
    }
}

/// Climbs from random patterns to those that exceed the most; `LIMITER_CLUSTER_SEARCH` is how many
/// are tried.
#[test]
fn the_worst_loads_found_are_within_the_bound() {
    let tries = std::env::var("LIMITER_CLUSTER_SEARCH").ok().and_then(|text| text.parse().ok());
    let tries: u32 = tries.unwrap_or(30);
    for nodes in [3u64, 8] {
        for sync in [50_000, 200_000, SECOND] {
            let settings = Settings { sync, burst: 1000.max(2 * sync / 1000), ..settings(nodes) };
            let mut rng = Rng::with_seed(sync + nodes);
            let count = usize::try_from(nodes).expect("fits");
            let mut best: Option<(i64, Pattern)> = None;
            for number in 0..tries {
                let pattern = match &best {
                    Some((_, best)) if number > tries / 3 => best.changed(&mut rng, sync, 1000.0),
                    _ => Pattern::random(&mut rng, count, sync, 1000.0),
                };
                let copied = pattern.clone();
                let load = move |node: usize, now: u64| copied.at(node, now);
                let mut scene = scene(settings, &load, 6 + 20 * sync / SECOND);
                scene.seed = u64::from(number);
                let outcome = run(&scene);
                held(&scene, &outcome);
                if best.as_ref().is_none_or(|(over, _)| outcome.over > *over) {
                    best = Some((outcome.over, pattern));
                }
            }
            let (over, pattern) = best.expect("one at least");
            let bound = SharedLimit::new(settings).expect("good").excess(TRIP);
            println!("N {nodes} T {sync} us: {over} over of {bound}: {pattern:?}");
        }
    }
}
