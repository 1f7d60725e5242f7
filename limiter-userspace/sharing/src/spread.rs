//! Calls of keys that began, or failed, together: put apart over the sync period, once.

/// Place of a key's calls in the sync period.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    jitter: u64,
    /// True if others may call at the same time.
    is_bunched: bool,
}

impl Spread {
    /// Spread of a node with this jitter.
    pub fn new(jitter: u64) -> Self {
        Self { jitter, is_bunched: true }
    }

    /// Keys failed together.
    pub fn bunch(&mut self) {
        self.is_bunched = true;
    }

    /// Time until the next call, where `planned` is at least a sync period: a part of it, once.
    pub fn apart(&mut self, planned: u64, sync: u64) -> u64 {
        if std::mem::take(&mut self.is_bunched) {
            sync / 4 + self.jitter % (sync - sync / 4)
        } else {
            planned
        }
    }

    /// Delay of a key that waits for the same time as others do: up to a tick.
    pub fn delay(&self, sync: u64) -> u64 {
        self.jitter % (sync / 8)
    }
}
