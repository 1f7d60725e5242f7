//! Windows: what nodes use of what the store grants, at whatever time they use it.

use std::collections::HashMap;

use fastrand::Rng;
use limiter_sharing::window::{Back, Window, WindowDemand, WindowKind, WindowState};
use proptest::prelude::*;

/// A grant at a node: units, until when they may be used, and the epoch they are of.
struct Held {
    units: u64,
    until: u64,
    epoch: u64,
}

/// When units were used, by nodes that ask, wait, use and give back at random.
fn used(window: &Window, rng: &mut Rng) -> Vec<(u64, u64)> {
    let mut now = 1_000 * window.length + rng.u64(..window.length);
    let mut state = WindowState::new(window, now);
    let (mut held, mut used): (Vec<Held>, Vec<(u64, u64)>) = (Vec::new(), Vec::new());
    for _ in 0..400 {
        let rarely = rng.u32(..20) == 0;
        now += rng.u64(..if rarely { window.length / 5 } else { window.life / 4 });
        held.retain(|grant| now < grant.until && grant.units > 0);
        let mut demand = WindowDemand { backs: Vec::new(), want: rng.u64(..=window.quota) };
        for _ in 0..rng.usize(..3).min(held.len()) {
            let index = rng.usize(..held.len());
            let grant = &mut held[index];
            let units = rng.u64(..=grant.units);
            grant.units -= units;
            if rng.bool() {
                used.push((now, units));
            } else {
                demand.backs.push(Back { epoch: grant.epoch, units });
            }
        }
        let answer = state.exchange(window, now, &demand);
        // The node's time begins with its call, a little before the store's.
        let until = now - rng.u64(..1000).min(now) + window.life.min(answer.until);
        held.push(Held { units: answer.grant, until, epoch: answer.epoch });
    }
    used
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_window_passes_more_than_its_quota(
        lives in 2u64..200, quota in 1u64..200, life in 200_000u64..40_000_000, seed: u64,
    ) {
        let mut rng = Rng::with_seed(seed);
        let length = lives * life;
        let window = |kind| Window { kind, length, quota, largest: 1, life, lease_cap: 250 };
        for kind in [WindowKind::Fixed, WindowKind::SlidingCounter] {
            let mut sums: HashMap<u64, u64> = HashMap::new();
            for (now, units) in used(&window(kind), &mut rng) {
                *sums.entry(now / length).or_default() += units;
            }
            prop_assert!(sums.values().all(|sum| *sum <= quota), "{kind:?}: {sums:?}");
            prop_assert!(quota < 10 || sums.values().any(|sum| *sum > 0), "nothing was used");
        }
        let log = used(&window(WindowKind::SlidingLog), &mut rng);
        prop_assert!(quota < 10 || !log.is_empty());
        for (index, (begin, _)) in log.iter().enumerate() {
            let within = log[index..].iter().take_while(|(now, _)| *now < begin + length);
            let sum: u64 = within.map(|(_, units)| units).sum();
            prop_assert!(sum <= quota, "{sum} of {quota} from {begin}");
        }
    }
}

/// Units that are used as late as they may be, and others as early: in a window that begins with
/// the former, both count.
#[test]
fn a_log_counts_units_as_long_as_they_may_be_used_in_the_window() {
    let (length, life) = (60_000_000, 800_000);
    let window = Window {
        kind: WindowKind::SlidingLog,
        length,
        quota: 10,
        largest: 1,
        life,
        lease_cap: 250,
    };
    let begin = 1_795_000_000_000_000;
    let mut state = WindowState::new(&window, begin);
    let mut granted = |now| {
        let demand = WindowDemand { backs: Vec::new(), want: 10 };
        (0..20).map(|_| state.exchange(&window, now, &demand).grant).sum::<u64>()
    };
    assert_eq!(granted(begin), 10);
    // The last of them is used at begin + life, so nothing more until begin + life + length.
    assert_eq!(granted(begin + length), 0);
    assert_eq!(granted(begin + length + life - 1), 0);
    assert_eq!(granted(begin + length + life), 10);
}

/// Two grants of half the quota each, half a life apart, of which one is given back: the other
/// counts until its own time, and not a microsecond longer.
#[test]
fn a_log_counts_the_units_that_were_not_given_back() {
    let (length, life) = (60_000_000, 800_000);
    let window = Window {
        kind: WindowKind::SlidingLog,
        length,
        quota: 10,
        largest: 5,
        life,
        lease_cap: 250,
    };
    let begin = 1_795_000_000_000_000;
    let times = [begin, begin + life / 2];
    for (given_back, kept) in [(times[0], times[1]), (times[1], times[0])] {
        let mut state = WindowState::new(&window, begin);
        let mut asks = |now, want, backs: &[Back]| {
            let answer = state.exchange(&window, now, &WindowDemand { backs: backs.into(), want });
            (answer.grant, answer.epoch)
        };
        for time in times {
            assert_eq!(asks(time, 5, &[]), (5, time));
        }
        assert_eq!(asks(times[1], 5, &[]).0, 0);
        // More than were granted then, and of a time at which nothing was.
        let backs = [(given_back, 99), (begin + 1, 5)].map(|(epoch, units)| Back { epoch, units });
        assert_eq!(asks(begin + life, 5, &backs).0, 5);
        let ends = kept + length + life;
        assert_eq!(asks(ends - 1, 5, &[]).0, 0);
        assert_eq!(asks(ends, 5, &[]).0, 5);
    }
}
