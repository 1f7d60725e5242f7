//! Loads: how many units a second arrive at which node.

use fastrand::Rng;

use super::net::Load;
use super::scene::SECOND;

/// How the load is spread over the nodes in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// All nodes at once.
    Together,
    /// Each at its own time.
    Apart,
    /// One node after the other has all of it.
    Moving,
    /// The first one first, the others late in the same period.
    FirstAndLate,
}

#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) shape: Shape,
    pub(crate) nodes: usize,
    /// Length of a period, and of the burst in it, in microseconds.
    pub(crate) period: u64,
    pub(crate) burst: u64,
    /// Units a second of all nodes together, in the burst and beside it.
    pub(crate) peak: f64,
    pub(crate) base: f64,
    /// When the others begin, of [`Shape::FirstAndLate`], in microseconds after the first.
    pub(crate) late: u64,
    pub(crate) phases: Vec<u64>,
}

impl Pattern {
    pub(crate) fn random(rng: &mut Rng, nodes: usize, sync: u64, rate: f64) -> Self {
        let shapes = [Shape::Together, Shape::Apart, Shape::Moving, Shape::FirstAndLate];
        let period = sync * rng.u64(1..60) / 2;
        Self {
            shape: shapes[rng.usize(..shapes.len())],
            nodes,
            period,
            burst: period * rng.u64(2..100) / 100,
            peak: rate * [1.5, 4.0, 12.0, 60.0][rng.usize(..4)],
            base: rate * [0.0, 0.05, 0.2, 0.9][rng.usize(..4)],
            late: sync * rng.u64(1..150) / 100,
            phases: (0..nodes).map(|_| rng.u64(..period)).collect(),
        }
    }

    pub(crate) fn changed(&self, rng: &mut Rng, sync: u64, rate: f64) -> Self {
        let other = Self::random(rng, self.nodes, sync, rate);
        let mut new = self.clone();
        let near = |rng: &mut Rng, old: u64| old * rng.u64(80..125) / 100 + 1;
        match rng.u32(..8) {
            0 => new.shape = other.shape,
            1 => new.period = near(rng, new.period),
            2 => new.burst = near(rng, new.burst),
            3 => new.peak = other.peak,
            4 => new.base = other.base,
            5 => new.late = near(rng, new.late),
            6 => new.peak *= 0.7 + rng.f64(),
            _ => new.phases = other.phases,
        }
        new
    }

    pub(crate) fn at(&self, node: usize, now: u64) -> f64 {
        let each = self.nodes as f64;
        let (share, offset) = match self.shape {
            Shape::Together => (1.0 / each, 0),
            Shape::Apart => (1.0 / each, self.phases[node % self.phases.len()]),
            Shape::Moving => {
                let has_it = (now / self.period) as usize % self.nodes == node;
                return if has_it { self.peak } else { self.base / each };
            }
            Shape::FirstAndLate if node == 0 => (1.0, 0),
            Shape::FirstAndLate => (1.0, self.period - self.late.min(self.period)),
        };
        let at = (now + offset) % self.period;
        if at < self.burst { self.peak * share } else { self.base / each }
    }
}

/// All on each node alike.
pub(crate) fn even(nodes: usize, rate: f64) -> Box<dyn Fn(usize, u64) -> f64> {
    Box::new(move |_, _| rate / nodes as f64)
}

/// All on the first node.
pub(crate) fn one(rate: f64) -> Box<dyn Fn(usize, u64) -> f64> {
    Box::new(move |node, _| if node == 0 { rate } else { 0.0 })
}

/// All on one node, on the next after `period`.
pub(crate) fn moving(nodes: usize, rate: f64, period: u64) -> Box<dyn Fn(usize, u64) -> f64> {
    Box::new(move |node, now| if (now / period) as usize % nodes == node { rate } else { 0.0 })
}

/// Bursts on all nodes at once, a twentieth of the time.
pub(crate) fn bursting(nodes: usize, rate: f64) -> Box<dyn Fn(usize, u64) -> f64> {
    let peak = rate / nodes as f64;
    Box::new(move |_, now| if now % (2 * SECOND) < SECOND / 10 { peak } else { 0.0 })
}

/// Each node has a part of what the one before has: 1, 1/2, 1/3 and so on.
pub(crate) fn skewed(nodes: usize, rate: f64) -> Box<dyn Fn(usize, u64) -> f64> {
    let sum: f64 = (1..=nodes).map(|place| 1.0 / place as f64).sum();
    Box::new(move |node, _| rate / (node as f64 + 1.0) / sum)
}

/// A load with its name, and the least part of what is offered or allowed that must pass.
pub(crate) type Named = (&'static str, Box<Load>, f64);

/// Loads that are looked at one by one.
pub(crate) fn all(nodes: usize, rate: f64) -> Vec<Named> {
    vec![
        ("even, 3 R", even(nodes, 3.0 * rate), 0.99),
        ("even, 0.9 R", even(nodes, 0.9 * rate), 1.0),
        ("one node, 3 R", one(3.0 * rate), 0.99),
        ("one node, 0.9 R", one(0.9 * rate), 1.0),
        ("moves each second, 3 R", moving(nodes, 3.0 * rate, SECOND), 0.99),
        ("moves each second, 0.9 R", moving(nodes, 0.9 * rate, SECOND), 0.95),
        ("bursts on all at once", bursting(nodes, 80.0 * rate), 0.0),
        ("skewed, 5.4 R", skewed(nodes, 5.4 * rate), 0.99),
        ("skewed, 0.9 R", skewed(nodes, 0.9 * rate), 1.0),
    ]
}
