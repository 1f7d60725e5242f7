//! Leases of the model, for the thread that keeps them.

use super::Fake;
use crate::cluster::Leases;
use crate::cluster::key::Words;
use crate::cluster::leases::{Counts, counts, grant};

impl Leases for Fake {
    fn now(&self) -> u64 {
        self.state().now.as_nanos() / 1_000
    }

    fn seen(&self, lease: u32) -> Counts {
        counts(&self.state().model.lease(lease))
    }

    fn write(&mut self, lease: u32, words: Words) {
        grant(&self.state().model.lease(lease), words);
    }
}
