//! Needs of one source: its largest debt at each rate, and its maxima in lengths of time.

use limiter_common::time::Ticks;

use super::rates::{RATES, Rate};

/// Lengths of time in nanoseconds: 10 ms, 1 s, 1 min, 1 h.
const LENGTHS: [u64; 4] = [10_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000];

/// Units in consecutive lengths of time.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Number of the current length.
    number: u64,
    units: u64,
    most: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Curve {
    /// Theoretical arrival times, in ticks.
    tats: [Ticks; RATES],
    /// The largest debts, in ticks.
    debts: [u64; RATES],
    slots: [Slot; LENGTHS.len()],
}

impl Default for Curve {
    fn default() -> Self {
        let (tats, debts) = ([Ticks::ZERO; RATES], [0; RATES]);
        Self { tats, debts, slots: [Slot::default(); LENGTHS.len()] }
    }
}

impl Curve {
    pub(super) fn add(&mut self, rates: &[Rate], now: Ticks, units: u64) {
        for ((tat, debt), rate) in self.tats.iter_mut().zip(&mut self.debts).zip(rates) {
            // Charged as the decision charges a packet that it passes, at its own time.
            *tat = (*tat).max(now).plus(rate.cost(units));
            *debt = (*debt).max(tat.since(now).get());
        }
        for (slot, length) in self.slots.iter_mut().zip(LENGTHS) {
            let number = now.as_nanos() / length;
            if number > slot.number {
                (slot.number, slot.units) = (number, 0);
            }
            slot.units = slot.units.saturating_add(units);
            slot.most = slot.most.max(slot.units);
        }
    }

    /// The largest debts, in ticks, by rate.
    pub(super) const fn debts(&self) -> &[u64; RATES] {
        &self.debts
    }

    /// The most units in 10 ms, 1 s, 1 min and 1 h. These begin at multiples of their length, so an
    /// interval that begins elsewhere may contain up to twice as many.
    pub(super) fn most(&self) -> [u64; LENGTHS.len()] {
        self.slots.map(|slot| slot.most)
    }
}
