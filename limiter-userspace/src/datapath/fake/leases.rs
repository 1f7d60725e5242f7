//! Leases of the model, for the thread that keeps them.

use limiter_common::time::Ticks;

use super::Fake;
use crate::cluster::Leases;
use crate::cluster::key::Words;
use crate::cluster::leases::Counts;

impl Leases for Fake {
    fn now(&self) -> u64 {
        self.state().now.as_nanos() / 1_000
    }

    fn seen(&self, lease: u32) -> Counts {
        let lease = self.state().model.lease(lease).read();
        Counts { used: lease.used, denied: lease.denied }
    }

    fn write(&mut self, lease: u32, Words { granted, expires }: Words) {
        let expires = Ticks::from_nanos(expires.saturating_mul(1_000));
        self.state().model.lease(lease).grant(granted, expires);
    }
}
