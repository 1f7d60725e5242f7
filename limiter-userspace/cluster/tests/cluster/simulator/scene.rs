//! Scenes that tests and plots have in common, and what is looked at in their outcomes.

use limiter_sharing::rate::Rate;
use limiter_sharing::{OnPartition, Settings, SharedLimit};

use super::load;
use super::net::{Faults, Load, Outcome, PART, Scene, run};

pub(crate) const SECOND: u64 = 1_000_000;
/// Longest way there and back.
pub(crate) const TRIP: u64 = 5_000;

pub(crate) fn settings(nodes: u64) -> Settings {
    Settings {
        rate: Rate::new(1000, SECOND).expect("in range"),
        burst: 1000,
        largest: 1,
        sync: 200_000,
        nodes,
        share_of_rate: 250,
        share_of_burst: 100,
        lease_cap: 250,
        on_partition: OnPartition::Share,
        strict: false,
        always: false,
    }
}

pub(crate) fn scene(settings: Settings, load: &Load, seconds: u64) -> Scene<'_> {
    Scene {
        limit: SharedLimit::new(settings).expect("settings are good"),
        load,
        packet: 1,
        trip: (TRIP / 5, TRIP / 2),
        faults: Faults::default(),
        micros: seconds * SECOND,
        seed: 1,
    }
}

/// Units offered and passed after the first seconds.
pub(crate) fn after(outcome: &Outcome, seconds: u64) -> (u64, u64) {
    let from = usize::try_from(seconds * SECOND / PART).expect("fits");
    outcome.parts[from..].iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

/// Units that the share of one node passes within `micros`.
pub(crate) fn share(limit: &SharedLimit, micros: u64) -> u64 {
    limit.cold().map_or(0, |(rate, burst)| burst + rate.units_in(micros))
}

/// Four of eight nodes are cut off for ten seconds.
pub(crate) fn cut(settings: Settings, count: usize) -> (u64, Outcome) {
    let load = load::even(8, 3000.0);
    let mut scene = scene(settings, &*load, 24);
    scene.faults.cuts = (0..count).map(|node| (node, 5 * SECOND, 15 * SECOND)).collect();
    (scene.limit.excess(TRIP), run(&scene))
}
