//! The state machine of a window on several nodes, and the store's model between them, in virtual
//! time: no window passes more than its algorithm lets, whatever becomes of calls, and a quota is
//! used up where there is demand for it.

use fastrand::Rng;
use limiter_sharing::account::Answer;
use limiter_sharing::key::{Seen, Words};
use limiter_sharing::quota::{Quota, WindowCall};
use limiter_sharing::window::{Back, Window, WindowKind, WindowState};
use proptest::prelude::*;

const SYNC: u64 = 200_000;
const SECOND: u64 = 1_000_000;
const TRIP: u64 = 4_000;
/// Begin of the store's clock, which is a multiple of no window.
const EPOCH: u64 = 1_795_000_012_345_678;

/// A node: its machine, and the lease that packets are judged by.
struct Node {
    quota: Quota,
    words: Words,
    seen: Seen,
    next_tick: u64,
}

impl Node {
    fn packet(&mut self, now: u64, units: u64) -> bool {
        let passes = now < self.words.expires && self.seen.used + units <= self.words.granted;
        if passes {
            self.seen.used += units;
        } else {
            self.seen.denied += units;
        }
        passes
    }
}

enum Event {
    ToStore { at: u64, node: usize, call: WindowCall },
    ToNode { at: u64, node: usize, sequence: u64, answer: Answer },
    GiveUp { at: u64, node: usize, sequence: u64 },
}

impl Event {
    fn at(&self) -> u64 {
        match self {
            Self::ToStore { at, .. } | Self::ToNode { at, .. } | Self::GiveUp { at, .. } => *at,
        }
    }
}

struct Scene<'a> {
    window: Window,
    nodes: usize,
    micros: u64,
    /// Thousandths of calls, and of answers, that do not arrive.
    lost: u32,
    /// Thousandths of ticks at which a packet passes by the words that the line had before.
    late: u32,
    packet: u64,
    /// Packets a second that arrive at a node.
    load: &'a dyn Fn(usize, u64) -> f64,
    seed: u64,
}

/// Outcome: when units passed, and how many calls were made.
struct Outcome {
    passed: Vec<(u64, u64)>,
    calls: u64,
}

impl Outcome {
    fn sum(&self) -> u64 {
        self.passed.iter().map(|(_, units)| units).sum()
    }
}

fn run(scene: &Scene<'_>) -> Outcome {
    let mut rng = Rng::with_seed(scene.seed);
    let mut state = WindowState::new(&scene.window, EPOCH);
    let nodes = (0..scene.nodes).map(|_| {
        let quota = Quota::new(scene.window, SYNC, 0, rng.u64(..));
        let words = quota.words();
        Node { quota, words, seen: Seen::default(), next_tick: rng.u64(..SYNC / 8) }
    });
    let mut nodes: Vec<Node> = nodes.collect();
    let mut events: Vec<Event> = Vec::new();
    let mut outcome = Outcome { passed: Vec::new(), calls: 0 };
    let mut arrears: Vec<f64> = (0..scene.nodes).map(|_| rng.f64()).collect();
    let step = 2_000;
    let mut now = 0;
    while now < scene.micros {
        events.sort_by_key(|event| std::cmp::Reverse(event.at()));
        while let Some(event) = events.pop_if(|event| event.at() <= now) {
            match event {
                Event::ToStore { node, call, .. } => {
                    let answer = state.exchange(&scene.window, EPOCH + now, &call.demand);
                    assert!(answer.grant <= call.demand.want);
                    if rng.u32(..1000) >= scene.lost {
                        let at = now + rng.u64(TRIP / 4..=TRIP / 2);
                        events.push(Event::ToNode { at, node, sequence: call.sequence, answer });
                        events.sort_by_key(|event| std::cmp::Reverse(event.at()));
                    }
                }
                Event::ToNode { node, sequence, answer, .. } => {
                    let node = &mut nodes[node];
                    node.quota.answered(now, sequence, &answer);
                    node.words = node.quota.words();
                }
                Event::GiveUp { node, sequence, .. } => nodes[node].quota.failed(now, sequence),
            }
        }
        for (index, node) in nodes.iter_mut().enumerate() {
            arrears[index] += (scene.load)(index, now) * step as f64 / 1e6 * (0.5 + rng.f64());
            while arrears[index] >= 1.0 {
                arrears[index] -= 1.0;
                if node.packet(now, scene.packet) {
                    outcome.passed.push((EPOCH + now, scene.packet));
                }
            }
            if now < node.next_tick {
                continue;
            }
            node.next_tick = now + SYNC / 8;
            let call = node.quota.tick(now, &node.seen);
            // A packet that has read the line passes by the words before.
            let late = rng.u32(..1000) < scene.late && node.packet(now, scene.packet);
            if late {
                outcome.passed.push((EPOCH + now, scene.packet));
            }
            node.words = node.quota.words();
            let Some(call) = call else { continue };
            outcome.calls += 1;
            let at = now + SYNC;
            events.push(Event::GiveUp { at, node: index, sequence: call.sequence });
            if rng.u32(..1000) >= scene.lost {
                let at = now + rng.u64(TRIP / 4..=TRIP / 2);
                events.push(Event::ToStore { at, node: index, call });
            }
        }
        now += step;
    }
    outcome
}

/// Most units that passed in any window that the algorithm promises, exactly.
fn most(window: &Window, passed: &[(u64, u64)]) -> u64 {
    match window.kind {
        WindowKind::SlidingLog => {
            let (mut sum, mut most, mut first) = (0, 0, 0);
            for (at, units) in passed {
                sum += units;
                while passed[first].0 + window.length <= *at {
                    sum -= passed[first].1;
                    first += 1;
                }
                most = most.max(sum);
            }
            most
        }
        WindowKind::Fixed | WindowKind::SlidingCounter => {
            let mut sums = std::collections::HashMap::<u64, u64>::new();
            for (at, units) in passed {
                *sums.entry(at / window.length).or_default() += units;
            }
            sums.values().copied().max().unwrap_or(0)
        }
    }
}

fn window(kind: WindowKind, length: u64, quota: u64, largest: u64) -> Window {
    Window { kind, length, quota, largest, life: 4 * SYNC, lease_cap: 250 }
}

const KINDS: [WindowKind; 3] =
    [WindowKind::Fixed, WindowKind::SlidingCounter, WindowKind::SlidingLog];

#[test]
fn five_a_day_among_eight_nodes_are_five() {
    for kind in KINDS {
        // A sender that tries again each second, each time at another node or at the same one.
        for at_once in [1, 2, 5, 8] {
            let load = move |node: usize, now: u64| {
                let of = (now / SECOND) as usize % at_once == node % at_once;
                if of { 1.0 } else { 0.0 }
            };
            let window = window(kind, 86_400 * SECOND, 5, 1);
            let micros = 600 * SECOND;
            let scene = Scene {
                window,
                nodes: 8,
                micros,
                lost: 0,
                late: 0,
                packet: 1,
                load: &load,
                seed: 1,
            };
            let outcome = run(&scene);
            let (sum, calls) = (outcome.sum(), outcome.calls);
            println!("{kind:?}, {at_once} apart: {sum} of 5 in 600 s, {calls} calls");
            assert_eq!(most(&window, &outcome.passed), sum);
            assert_eq!(sum, 5, "{kind:?}, {at_once}");
            // Nodes that wait ask more and more rarely.
            assert!(calls < 8 * 600 / 2, "{calls} calls");
        }
    }
}

#[test]
fn a_small_quota_of_nodes_that_a_sender_comes_to_in_turn_is_used() {
    let load = |node: usize, now: u64| {
        if (now / SECOND) as usize % 8 == node { 1.0 } else { 0.0 }
    };
    // A sliding counter has less for those who come early, by its own way to count.
    for (kind, part) in KINDS.into_iter().zip([100, 78, 90]) {
        let window = window(kind, 60 * SECOND, 5, 1);
        let micros = 600 * SECOND;
        let scene =
            Scene { window, nodes: 8, micros, lost: 0, late: 0, packet: 1, load: &load, seed: 2 };
        let outcome = run(&scene);
        let (sum, peak) = (outcome.sum(), most(&window, &outcome.passed));
        println!("{kind:?}, 8 nodes in turn: {sum} of 50 in 10 min, peak {peak}");
        assert!(peak <= 5, "{kind:?}: {peak}");
        assert!(sum >= 50 * part / 100, "{kind:?}: {sum}");
    }
}

#[test]
fn a_window_that_is_asked_for_more_is_used_up() {
    for kind in KINDS {
        for (nodes, rate) in [(1, 100.0), (3, 30.0), (8, 20.0)] {
            let load = move |_: usize, _: u64| rate;
            let (length, quota) = (60 * SECOND, 600);
            let window = window(kind, length, quota, 1);
            let micros = 6 * length;
            let scene =
                Scene { window, nodes, micros, lost: 0, late: 0, packet: 1, load: &load, seed: 3 };
            let outcome = run(&scene);
            let peak = most(&window, &outcome.passed);
            let (sum, calls) = (outcome.sum(), outcome.calls / 360);
            println!("{kind:?}, {nodes} nodes: {sum} in 6 min of {quota}, peak {peak}, {calls}/s");
            assert!(peak <= quota, "{kind:?}: {peak}");
            // A log counts a unit for its life longer; what is granted and not used is lost.
            assert!(sum >= 6 * quota * 95 / 100, "{kind:?}: {sum}");
            assert!(outcome.calls <= nodes as u64 * 360 * 10, "{} calls", outcome.calls);
        }
    }
}

#[test]
fn what_is_below_the_quota_passes() {
    for kind in KINDS {
        let load = |node: usize, _: u64| [4.0, 2.0, 1.0][node];
        let window = window(kind, 60 * SECOND, 600, 1);
        let micros = 240 * SECOND;
        let scene =
            Scene { window, nodes: 3, micros, lost: 0, late: 0, packet: 1, load: &load, seed: 4 };
        let outcome = run(&scene);
        let sum = outcome.sum();
        println!("{kind:?}: {sum} of {} passed", 7 * 240);
        assert!(sum >= 7 * 240 * 99 / 100, "{kind:?}: {sum}");
    }
}

#[test]
fn a_line_ends_when_nobody_answers() {
    let mut quota = Quota::new(window(WindowKind::Fixed, 60 * SECOND, 100, 1), SYNC, 0, 0);
    let seen = |used| Seen { used, denied: 3, ..Seen::default() };
    let call = quota.tick(1_000, &seen(0)).expect("something came");
    let answer = Answer { grant: call.demand.want, wait: 0, epoch: 5, rest: 1, until: 30 * SECOND };
    quota.answered(2_000, call.sequence, &answer);
    let held = quota.words();
    assert_eq!((held.granted, held.expires), (call.demand.want, 1_000 + 4 * SYNC));
    // Used up, and no answer any more.
    let mut now = 2_000;
    while now < 4 * SYNC {
        now += SYNC / 8;
        if let Some(call) = quota.tick(now, &seen(held.granted)) {
            quota.failed(now, call.sequence);
        }
    }
    assert!(quota.words().expires <= 4 * SYNC);
    // Given up: nothing passes, and what was not used goes back once.
    let mut quota = Quota::new(window(WindowKind::Fixed, 60 * SECOND, 100, 1), SYNC, 0, 0);
    let call = quota.tick(1_000, &seen(0)).expect("something came");
    quota.answered(2_000, call.sequence, &Answer { grant: call.demand.want, ..answer });
    quota.end(3_000, &seen(0));
    assert_eq!(quota.words().expires, 0);
    let last = quota.farewell(9_000, &seen(1)).expect("something is left");
    let back = Back { epoch: 5, units: call.demand.want - 1 };
    assert_eq!((last.backs, last.want), (vec![back], 0));
    assert_eq!(quota.farewell(19_000, &seen(1)), None);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn no_window_of_nodes_passes_more_than_its_quota(
        kind in prop::sample::select(KINDS.to_vec()), lives in 2u64..40, quota in 1u64..400,
        largest in 1u64..8, nodes in 1usize..9, lost in 0u32..300, rate in 0.1f64..200.0, seed: u64,
    ) {
        let length = lives * 4 * SYNC + seed % SYNC;
        let quota = quota.max(largest);
        let window = window(kind, length, quota, largest);
        let phase = |node: usize| seed.rotate_left(node as u32) % length;
        let phases: Vec<u64> = (0..nodes).map(phase).collect();
        let load = move |node: usize, now: u64| {
            if (now + phases[node]) % length < length / 3 { rate } else { rate / 50.0 }
        };
        let scene = Scene {
            window, nodes, micros: (4 * length).min(60 * SECOND), lost, late: 250, packet: largest,
            load: &load, seed,
        };
        let outcome = run(&scene);
        let peak = most(&window, &outcome.passed);
        prop_assert!(peak <= quota, "{kind:?}: {peak} of {quota}");
        let most_calls = nodes as u64 * (scene.micros / (SYNC / 8) + 1);
        prop_assert!(outcome.calls <= most_calls);
    }
}
