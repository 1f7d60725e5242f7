//! Pace of a key on one node: how many units arrive in a sync period.

use super::rate::mul_div;

/// Time in microseconds for which units for a packet are held after the last packet: a sender
/// repeats a lost one after a second or two.
pub const HOLD: u64 = 3_000_000;

/// Units that arrive, passed or not.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Units that arrived per sync period, at the last call; and units since then.
    of_call: u64,
    arrived: u64,
    /// Units and length of the latest tick.
    latest: (u64, u64),
    last_tick: u64,
    last_packet: Option<u64>,
}

impl Pace {
    /// A key for which nothing has arrived until `now`.
    pub fn new(now: u64) -> Self {
        Self { of_call: 0, arrived: 0, latest: (0, 1), last_tick: now, last_packet: None }
    }

    /// Adds what arrived since the last tick.
    pub fn observe(&mut self, now: u64, arrived: u64) {
        if arrived > 0 {
            self.last_packet = Some(now);
        }
        self.arrived = self.arrived.saturating_add(arrived);
        self.latest = (arrived, now.saturating_sub(self.last_tick));
        self.last_tick = now;
    }

    /// True if something arrived since the last call.
    pub fn has_news(&self) -> bool {
        self.arrived > 0
    }

    /// True if a packet arrived within [`HOLD`].
    pub fn is_recent(&self, now: u64) -> bool {
        self.is_within(now, HOLD)
    }

    /// True if the last packet came less than `time` microseconds ago.
    pub fn is_within(&self, now: u64, time: u64) -> bool {
        self.last_packet.is_some_and(|last| now.saturating_sub(last) < time)
    }

    /// Units that arrive per sync period: those since the last call, or if more, half of what the
    /// latest tick would amount to. Declines slowly.
    pub fn at(&self, now: u64, sync: u64, last_call: Option<u64>) -> u64 {
        let since = last_call.map_or(sync, |last| now.saturating_sub(last)).max(sync / 4);
        let begun = mul_div(self.latest.0, sync, 2 * self.latest.1.max(sync / 16));
        let instant = mul_div(self.arrived, sync, since).max(begun);
        let forgotten =
            mul_div(self.of_call.saturating_sub(instant), since.min(2 * sync), 2 * sync);
        instant.max(self.of_call - forgotten)
    }

    /// Records a call at `now`. Returns its pace, which is kept until the next call.
    pub fn call(&mut self, now: u64, sync: u64, last_call: Option<u64>) -> u64 {
        self.of_call = self.at(now, sync, last_call);
        self.arrived = 0;
        self.of_call
    }

    /// Pace at the last call.
    pub fn of_call(&self) -> u64 {
        self.of_call
    }
}
