//! Packets over time, in a bounded number of steps.

use serde::Serialize;

/// The most steps. When there are more, pairs are merged.
const STEPS: usize = 512;

/// The first width of a step, in nanoseconds.
const FIRST: u64 = 1_000_000;

/// Packets in each step of time.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// Time of the first packet, in nanoseconds since 1970.
    began: Option<u64>,
    /// Width of a step, in nanoseconds.
    step: u64,
    offered: Vec<u64>,
    /// Packets that passed in each step, by rule set.
    passed: Vec<Vec<u64>>,
}

impl Timeline {
    /// A timeline for so many rule sets.
    pub(super) fn new(candidates: usize) -> Self {
        let passed = vec![Vec::new(); candidates];
        Self { began: None, step: FIRST, offered: Vec::new(), passed }
    }

    /// Time of the first packet, in nanoseconds since 1970; 0 without any.
    pub fn began(&self) -> u64 {
        self.began.unwrap_or(0)
    }

    pub(super) fn offered(&mut self, nanos: u64) {
        let began = *self.began.get_or_insert(nanos);
        let mut place = self.place(nanos.saturating_sub(began));
        while place >= STEPS {
            self.step = self.step.saturating_mul(2);
            halve(&mut self.offered);
            self.passed.iter_mut().for_each(halve);
            place = self.place(nanos.saturating_sub(began));
        }
        add(&mut self.offered, place);
    }

    /// Counts an offered packet that a rule set passed.
    pub(super) fn passed(&mut self, nanos: u64, candidate: usize) {
        let place = self.place(nanos.saturating_sub(self.began()));
        if let Some(steps) = self.passed.get_mut(candidate) {
            add(steps, place);
        }
    }

    fn place(&self, since: u64) -> usize {
        usize::try_from(since / self.step).unwrap_or(usize::MAX)
    }

    /// Width of a step, in nanoseconds.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Packets offered in each step.
    pub fn all_offered(&self) -> &[u64] {
        &self.offered
    }

    /// Packets that passed in each step, by rule set. Steps after the last are missing.
    pub fn all_passed(&self) -> &[Vec<u64>] {
        &self.passed
    }
}

fn add(steps: &mut Vec<u64>, place: usize) {
    if steps.len() <= place {
        steps.resize(place + 1, 0);
    }
    if let Some(step) = steps.get_mut(place) {
        *step += 1;
    }
}

fn halve(steps: &mut Vec<u64>) {
    *steps = steps.chunks(2).map(|pair| pair.iter().sum()).collect();
}
