//! What became of requests, by rule.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What became of a descriptor at its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Became {
    /// Within the limits, and charged.
    Within,
    /// Over a soft limit, and within its ceiling.
    OverSoft,
    /// Over a limit.
    Over,
    /// Over a limit, in shadow mode.
    Shadow,
    /// Nothing limits it.
    Unlimited,
    /// Within the limits, but refused for another descriptor: not charged.
    NotCharged,
    /// Without a bucket, and passed.
    FullPassed,
    /// Without a bucket, and refused.
    FullRefused,
    /// Without a bucket, charged to the shared one: counted besides.
    FullShared,
    /// Over a limit, and its payload waits in a queue.
    Queued,
}

impl Became {
    /// All, with their names in metrics.
    pub(crate) const ALL: [(Self, &str); 10] = [
        (Self::Within, "within"),
        (Self::OverSoft, "over_soft"),
        (Self::Over, "over"),
        (Self::Shadow, "shadow"),
        (Self::Unlimited, "unlimited"),
        (Self::NotCharged, "not_charged"),
        (Self::FullPassed, "full_passed"),
        (Self::FullRefused, "full_refused"),
        (Self::FullShared, "full_shared"),
        (Self::Queued, "queued"),
    ];

    /// Rank of an outcome: of several limits of a descriptor, the highest counts.
    pub(crate) const fn severity(self) -> u8 {
        match self {
            Self::Over | Self::Queued | Self::FullRefused | Self::Shadow => 2,
            Self::OverSoft => 1,
            _ => 0,
        }
    }
}

/// Why `on_partition` of a rule decided about a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// There is no contact to the store.
    NoContact,
    /// The store did not answer before the deadline.
    Late,
    /// Too many requests waited for the store.
    Overload,
}

impl Unanswered {
    /// All, with their names in metrics.
    pub(crate) const ALL: [(Self, &str); 3] =
        [(Self::NoContact, "no_contact"), (Self::Late, "late"), (Self::Overload, "overload")];
}

/// What became of a source that was to be banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BanBecame {
    Made,
    InForce,
    OverBudget,
    Refused,
    /// The daemon does not answer.
    NoDaemon,
    /// Too many waited for the daemon.
    QueueFull,
    NoAddress,
    /// No room for the strikes of another source.
    NoRoom,
}

impl BanBecame {
    /// All, with their names in metrics.
    pub(crate) const ALL: [(Self, &str); 8] = [
        (Self::Made, "made"),
        (Self::InForce, "in_force"),
        (Self::OverBudget, "over_budget"),
        (Self::Refused, "refused"),
        (Self::NoDaemon, "no_daemon"),
        (Self::QueueFull, "queue_full"),
        (Self::NoAddress, "no_address"),
        (Self::NoRoom, "no_room"),
    ];
}

#[derive(Debug, Default)]
pub(crate) struct BanCounters([AtomicU64; BanBecame::ALL.len()]);

impl BanCounters {
    pub(crate) fn all(&self) -> [u64; BanBecame::ALL.len()] {
        std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed))
    }

    pub(crate) fn count(&self, became: BanBecame) {
        self.0[became as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Values of one rule that have metrics of their own.
const MOST_VALUES: usize = 1000;

/// The name of all others.
pub(crate) const OTHERS: &str = "(others)";

pub(crate) type Counts = [u64; Became::ALL.len()];

#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Requests for its domain before the rule came into force.
    pub(crate) asked_before: u64,
    all: [AtomicU64; Became::ALL.len()],
    /// By the values of requests, where the rule says so.
    by_value: Mutex<BTreeMap<String, Counts>>,
    pub(crate) bans: BanCounters,
    unanswered: [AtomicU64; Unanswered::ALL.len()],
    no_address: AtomicU64,
}

impl Counters {
    /// Counters of a new rule, after so many requests for its domain.
    pub(crate) fn after(asked_before: u64) -> Self {
        Self { asked_before, ..Self::default() }
    }

    pub(crate) fn count(&self, became: Became, value: Option<String>) {
        self.all[became as usize].fetch_add(1, Ordering::Relaxed);
        let Some(value) = value else {
            return;
        };
        let mut values = self.by_value.lock().unwrap_or_else(PoisonError::into_inner);
        let room = values.len() < MOST_VALUES;
        let counts = match values.get_mut(&value) {
            Some(counts) => counts,
            None if room => values.entry(value).or_default(),
            None => values.entry(OTHERS.to_owned()).or_default(),
        };
        counts[became as usize] += 1;
    }

    /// Counts descriptors that a client decided by itself.
    pub(crate) fn count_many(&self, became: Became, count: u64) {
        self.all[became as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a descriptor about which `on_partition` decided.
    pub(crate) fn count_unanswered(&self, why: Unanswered) {
        self.unanswered[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_no_address(&self) {
        self.no_address.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn no_address(&self) -> u64 {
        self.no_address.load(Ordering::Relaxed)
    }

    pub(crate) fn unanswered(&self) -> [u64; Unanswered::ALL.len()] {
        std::array::from_fn(|index| self.unanswered[index].load(Ordering::Relaxed))
    }

    pub(crate) fn all(&self) -> Counts {
        std::array::from_fn(|index| self.all[index].load(Ordering::Relaxed))
    }

    /// True if it counted anything.
    pub(crate) fn any(&self) -> bool {
        self.all().iter().any(|count| *count > 0)
    }

    pub(crate) fn by_value(&self) -> BTreeMap<String, Counts> {
        self.by_value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
