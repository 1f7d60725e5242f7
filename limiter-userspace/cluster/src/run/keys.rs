//! Keys of rules in the loop: leases for keys that ask, and the list of keys with leases on other
//! nodes.

use limiter_sharing::SharedRule;
use limiter_sharing::leases::Leases;

use super::super::store::{HotKey, Store};
use super::Loop;
use super::calls::Batches;
use super::hot::Ended;
use super::limit_state::LimitState;

impl<S: Store + 'static, L: Leases> Loop<S, L> {
    /// Gives leases to keys that ask. Returns the numbers of the limits that begin.
    pub(super) fn promote(&mut self, now: u64) -> Vec<u64> {
        let mut begun = Vec::new();
        for ask in self.leases.take_asks() {
            let Some(promoted) = self.hot.ask(&ask, now, &mut self.leases) else {
                continue;
            };
            let mut numbers = Vec::with_capacity(promoted.limits.len());
            for shared in &promoted.limits {
                let held = LimitState::new(
                    shared,
                    self.settings.shards,
                    &mut self.remembered,
                    &mut self.leases,
                );
                self.held.insert(self.next, held);
                numbers.push(self.next);
                self.next += 1;
            }
            begun.extend_from_slice(&numbers);
            self.hot.begun(&promoted.key, numbers, &mut self.leases);
        }
        begun
    }

    /// Makes the first calls for keys that ask without waiting for a tick, because somebody waits
    /// for the answers.
    pub(super) fn begin_asked(&mut self) {
        let now = self.leases.now();
        let limit = self.longest_call();
        let mut batches = Batches::default();
        for number in self.promote(now) {
            let Some(held) = self.held.get_mut(&number) else { continue };
            if let Some((sequence, request)) = held.tick(now, limit, &mut self.leases) {
                batches.add(held, Some((number, sequence)), request);
            }
        }
        self.call(batches);
    }

    /// Takes leases from keys that need none.
    pub(super) fn end_idle(&mut self, now: u64) {
        if !self.hot.has_rules() {
            return;
        }
        let held = &self.held;
        let is_idle = |number| held.get(&number).is_none_or(|held| held.is_idle(now));
        // Most of the time no key is idle.
        if held.values().any(|held| held.is_by_key() && held.is_idle(now)) {
            let ended = self.hot.end_idle(is_idle, &mut self.leases);
            self.end(ended);
        }
    }

    pub(super) fn set_key_rules(&mut self, rules: Vec<SharedRule>) {
        let (ended, changed) = self.hot.set_rules(rules, &mut self.leases);
        // Mark the keys of other nodes again.
        self.cursors.clear();
        let now = self.leases.now();
        for (number, terms) in changed {
            if let Some(held) = self.held.get_mut(&number) {
                held.set_terms(now, &terms);
            }
        }
        self.end(ended);
    }

    /// Gives up the limits of keys that no longer have leases.
    fn end(&mut self, ended: Vec<Ended>) {
        for Ended { first, limits } in ended {
            let limits = limits.iter().filter_map(|number| self.held.remove(number)).collect();
            self.give_up(limits, Some(first));
        }
    }

    /// Requests the keys with leases on other nodes, once per sync period.
    pub(super) fn list(&mut self, now: u64, batches: &mut Batches) {
        let Some(sync) = self.hot.sync() else { return };
        if now < self.next_list {
            return;
        }
        self.next_list = now + sync;
        self.hot.forget(now, &mut self.leases);
        self.cursors.resize(usize::from(self.settings.shards), 0);
        for (shard, cursor) in (0..).zip(&self.cursors) {
            batches.keys.entry(shard).or_default();
            batches.lists.insert(shard, *cursor);
        }
    }

    /// Processes the hot keys of a shard, which the store reported at `at` of its clock.
    pub(super) fn listed(&mut self, shard: u16, at: u64, hot: &[HotKey]) {
        let now = self.leases.now();
        for key in hot {
            self.hot.heard(key, now, &mut self.leases);
        }
        let Some(cursor) = self.cursors.get_mut(usize::from(shard)) else { return };
        if at < *cursor {
            // The clock was set back, or the shard moved to another server: the list is read again
            // from the start.
            *cursor = 0;
        } else if let Some(last) = hot.last() {
            // Keys with the time of the last one are reported again, because there may be more.
            *cursor = last.at.min(at);
        }
    }
}
