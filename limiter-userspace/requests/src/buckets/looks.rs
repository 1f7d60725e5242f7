//! Looks: checks of a key that passed, and whose work was not reported yet.

use std::sync::atomic::{AtomicU32, Ordering};

/// Minutes for which a look counts.
const MINUTES: u32 = 10;

/// Bits of the number of looks; above them is the minute of the latest one.
const BITS: u32 = 8;

/// The number of recent looks of a key that passed, and the minute of the latest one.
#[derive(Debug, Default)]
pub(crate) struct Looks(AtomicU32);

impl Looks {
    /// Restores looks from their stored form.
    pub(crate) const fn from_raw(raw: u32) -> Self {
        Self(AtomicU32::new(raw))
    }

    /// The stored form of the looks.
    pub(crate) fn raw(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Looks of which the latest was at `now`, in nanoseconds.
    #[must_use]
    pub(crate) fn at(&self, now: u64) -> Self {
        match self.raw() & COUNT {
            0 => Self::default(),
            count => Self::from_raw(minute(now) << BITS | count),
        }
    }

    fn count(raw: u32, now: u64) -> u32 {
        let age = minute(now).wrapping_sub(raw >> BITS) & (u32::MAX >> BITS);
        if age <= MINUTES { raw & COUNT } else { 0 }
    }

    /// True if a look still counts at `now`.
    pub(crate) fn are_there(&self, now: u64) -> bool {
        Self::count(self.raw(), now) > 0
    }

    pub(crate) fn add(&self, now: u64) {
        let more = |raw| {
            let count = (Self::count(raw, now) + 1).min(COUNT);
            Some(minute(now) << BITS | count)
        };
        // The closure always returns a value.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    pub(crate) fn take(&self, now: u64) -> bool {
        let less = |raw| (Self::count(raw, now) > 0).then(|| raw - 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// All bits of the number of looks.
const COUNT: u32 = (1 << BITS) - 1;

/// The minute of a moment in nanoseconds.
fn minute(now: u64) -> u32 {
    u32::try_from((now / 60_000_000_000) & u64::from(u32::MAX >> BITS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    #[test]
    fn each_look_counts_once_and_for_ten_minutes() {
        let looks = Looks::default();
        assert!(!looks.take(0));
        for _ in 0..1000 {
            looks.add(MINUTE);
        }
        let taken = (0..1000).filter(|_| looks.take(11 * MINUTE)).count();
        assert_eq!(taken, 255);
        looks.add(MINUTE);
        assert!(looks.are_there(11 * MINUTE) && !looks.are_there(12 * MINUTE));
        assert!(!looks.take(12 * MINUTE) && looks.at(20 * MINUTE).take(30 * MINUTE));
    }
}
