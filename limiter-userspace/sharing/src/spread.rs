//! Calls of keys that began or failed together: spreads them once over the sync period.

/// Position of a key's calls in the sync period.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    jitter: u64,
    /// True if other keys may call at the same time.
    is_bunched: bool,
}

impl Spread {
    /// The spread for a node with this jitter.
    pub fn new(jitter: u64) -> Self {
        Self { jitter, is_bunched: true }
    }

    /// Records that keys failed together.
    pub fn bunch(&mut self) {
        self.is_bunched = true;
    }

    /// Time until the next call, where `planned` is at least a sync period. Once after
    /// [`Self::bunch`], it is a part of a sync period instead.
    pub fn apart(&mut self, planned: u64, sync: u64) -> u64 {
        if std::mem::take(&mut self.is_bunched) {
            sync / 4 + self.jitter % (sync - sync / 4)
        } else {
            planned
        }
    }

    /// Delay for keys that wait for the same time: up to a tick.
    pub fn delay(&self, sync: u64) -> u64 {
        self.jitter % (sync / 8)
    }
}
