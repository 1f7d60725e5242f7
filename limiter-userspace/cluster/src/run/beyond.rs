//! Units that the store granted beyond this node's own accounts of the limits, and accounts that
//! outlive their leases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use limiter_sharing::cap::Cap;

use crate::status::{Beyond, Notice};

/// Remembered accounts of limits without leases: as many as keys can have leases.
const KEPT: usize = 65_536;
/// Time in microseconds between two searches for accounts that no longer owe anything.
const SWEEP: u64 = 1_000_000;
/// Time in microseconds between two notices.
const NOTICES: u64 = 60_000_000;
/// A fraction of a grant (1/20) that is not reported: clocks do not run alike, and numbers are
/// rounded.
const PART: u64 = 20;

/// Units that the store granted beyond the accounts of this node.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    total: u64,
    latest: Option<Beyond>,
    /// Units for the next notice.
    unreported: u64,
    next: u64,
}

impl Watch {
    /// Notes that `refused` of `grant` units of a limit were not taken; `largest` is its largest
    /// packet. Returns a notice if one is due.
    pub(crate) fn note(
        &mut self,
        now: u64,
        limit: &Arc<str>,
        (grant, refused, largest): (u64, u64, u64),
    ) -> Option<Notice> {
        self.total = self.total.saturating_add(refused);
        if refused <= largest.saturating_add(grant / PART) {
            return None;
        }
        self.latest = Some(Beyond { limit: Arc::clone(limit), at: SystemTime::now() });
        self.unreported = self.unreported.saturating_add(refused);
        if now < self.next {
            return None;
        }
        self.next = now.saturating_add(NOTICES);
        let units = std::mem::take(&mut self.unreported);
        Some(Notice::Beyond { limit: limit.to_string(), units })
    }

    /// Units that were not taken since the node started.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// The latest case that was large enough to report.
    pub(crate) fn latest(&self) -> Option<Beyond> {
        self.latest.clone()
    }
}

/// Accounts of limits that have no leases at present: what they owe counts when they get leases
/// again. The store decides when a limit needs none, and must not exceed the limit by that.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    accounts: HashMap<Box<[u8]>, Cap>,
    swept: u64,
}

impl Remembered {
    /// Remembers the account of a limit, by its key in the store.
    pub(crate) fn keep(&mut self, now: u64, key: &[u8], account: Cap) {
        if !account.owes(now) {
            return;
        }
        if self.accounts.len() >= KEPT && now >= self.swept.saturating_add(SWEEP) {
            self.swept = now;
            self.accounts.retain(|_, account| account.owes(now));
        }
        if self.accounts.len() < KEPT {
            self.accounts.insert(key.into(), account);
        }
    }

    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Cap> {
        self.accounts.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use limiter_sharing::rate::Rate;

    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn what_is_beyond_is_counted_and_reported_at_a_bounded_rate() {
        let (mut watch, limit) = (Watch::default(), Arc::from("customer"));
        // Rounding, or a clock that is slightly fast.
        assert_eq!(watch.note(0, &limit, (100, 6, 1)), None);
        assert_eq!((watch.total(), watch.latest()), (6, None));
        let reported = |units| Some(Notice::Beyond { limit: "customer".to_owned(), units });
        assert_eq!(watch.note(SECOND, &limit, (100, 7, 1)), reported(7));
        assert_eq!(watch.note(2 * SECOND, &limit, (100, 50, 1)), None);
        assert_eq!(watch.note(61 * SECOND, &limit, (100, 100, 1)), reported(150));
        assert_eq!(watch.total(), 163);
        assert!(watch.latest().is_some_and(|latest| latest.limit == limit));
    }

    #[test]
    fn accounts_that_owe_are_remembered_and_no_more_than_there_is_room_for() {
        let rate = Rate::new(1, SECOND).expect("in range");
        let account = |owed| {
            let mut account = Cap::new(rate, 1000, 0);
            account.used(0, owed);
            account
        };
        let key = |number: usize| number.to_be_bytes();
        let mut remembered = Remembered::default();
        remembered.keep(0, &key(0), account(0));
        assert_eq!(remembered.take(&key(0)), None, "nothing is owed");
        for number in 0..=KEPT {
            remembered.keep(0, &key(number), account(if number == 7 { 1 } else { 100 }));
        }
        assert_eq!(remembered.take(&key(KEPT)), None, "there is no room");
        // One account no longer owes anything.
        remembered.keep(2 * SECOND, &key(KEPT), account(100));
        assert_eq!(remembered.take(&key(7)), None);
        assert_eq!(remembered.take(&key(KEPT)), Some(account(100)));
    }
}
