//! Leases of the model, for the thread that keeps them.

use limiter_common::wire::{Ask, KeyLeases, TableKey};
use limiter_sharing::Leases;
use limiter_sharing::key::Words;
use limiter_sharing::leases::{Counts, counts, grant};

use super::Fake;

impl Leases for Fake {
    fn now(&self) -> u64 {
        self.state().now.as_nanos() / 1_000
    }

    fn seen(&self, lease: u32) -> Counts {
        counts(&self.state().model.lease(lease))
    }

    fn take_asks(&mut self) -> Vec<Ask> {
        self.state().model.take_asks()
    }

    fn set_leased(&mut self, key: &TableKey, leases: Option<KeyLeases>) {
        self.state().model.set_leased(key, leases);
    }

    fn forget_keys(&mut self) {
        self.state().model.forget_keys();
    }

    fn write(&mut self, lease: u32, words: Words) {
        grant(&self.state().model.lease(lease), words);
    }
}
