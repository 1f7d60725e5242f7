//! The limiter: rules in force, and the buckets of their keys.

use std::io::{self, Read, Seek, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use limiter_rules::RuleFileError;
use limiter_rules::file::requests::RequestFile;

use crate::buckets::key::Secret;
use crate::buckets::snapshot::{self, Loaded, Snapshot, Unusable};
use crate::buckets::store::{MOST_BROUGHT, Store};
use crate::clock::Moment;
use crate::daemon::bans::RequestBans;
use crate::decide::reservations::Reservations;
use crate::reports::odd::OddParts;
use crate::reports::refused::RefusedKeys;
use crate::reports::unmet::Tally;
use crate::reports::unsaid::{Unsaid, quoted};
use crate::rules::{Rule, Rules};
use crate::shared::leases::LeaseTable;
use crate::throttle::Throttles;

/// The limiter: rules in force, and buckets.
pub struct Limiter {
    rules: RwLock<Arc<Rules>>,
    pub(crate) store: Store,
    pub(crate) secret: Secret,
    /// Limits that commands bring.
    pub(crate) throttles: Throttles,
    /// What other nodes share with this one.
    pub(crate) cluster: Option<Shares>,
    /// Requests that named a domain without rules.
    pub(crate) unknown: Tally,
    /// Requests by their answer: within, over.
    pub(crate) answers: [AtomicU64; 2],
    pub(crate) reservations: Reservations,
    pub(crate) bans: Arc<RequestBans>,
    pub(crate) refused: RefusedKeys,
    /// Values of `remote_address` that are no address, and are not in the log yet.
    no_address: Mutex<Unsaid>,
    /// Parts of requests that could not be taken as asked.
    pub(crate) odd: OddParts,
    /// True once the log has that requests bring nearly too many limits.
    has_said_many: AtomicBool,
}

/// What other nodes share with this one.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) leases: Arc<LeaseTable>,
    pub(crate) nodes: AtomicU64,
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter").field("keys", &self.keys()).finish_non_exhaustive()
    }
}

impl Limiter {
    /// A limiter without rules, and with room for `most` keys.
    ///
    /// # Errors
    ///
    /// The system has no randomness.
    pub fn new(most: usize) -> io::Result<Self> {
        Ok(Self::with(most, Secret::new()?))
    }

    /// A limiter that goes on with a snapshot, once its rules are in force and
    /// [`Limiter::load`] is called.
    pub fn of<R: Read + Seek>(most: usize, snapshot: &Snapshot<R>) -> Self {
        Self::with(most, snapshot.secret())
    }

    fn with(most: usize, secret: Secret) -> Self {
        Self {
            rules: RwLock::default(),
            store: Store::new(most),
            secret,
            throttles: Throttles::new(&secret),
            cluster: None,
            unknown: Tally::default(),
            answers: Default::default(),
            reservations: Reservations::default(),
            bans: Arc::default(),
            refused: RefusedKeys::default(),
            no_address: Mutex::default(),
            odd: OddParts::default(),
            has_said_many: AtomicBool::new(false),
        }
    }

    /// Shares limits with other nodes, from the next rules on; a request waits for them until the
    /// deadline. Returns the leases.
    pub(crate) fn share(&mut self, nodes: u64, deadline: Duration) -> Arc<LeaseTable> {
        let leases = Arc::new(LeaseTable::new(deadline));
        self.cluster = Some(Shares { leases: Arc::clone(&leases), nodes: AtomicU64::new(nodes) });
        leases
    }

    /// Gives keys the buckets of the snapshot that this limiter is [of](Limiter::of). `clock` names
    /// the clock of `moment`, if that is known.
    ///
    /// # Errors
    ///
    /// Why the rest of it cannot be read.
    pub fn load<R: Read + Seek>(
        &self,
        snapshot: Snapshot<R>,
        moment: &Moment,
        clock: Option<&str>,
    ) -> Result<Loaded, Unusable> {
        snapshot.load(&self.store, moment, clock)
    }

    /// Writes a snapshot of all buckets; returns how many they are. Requests may go on meanwhile:
    /// what they charge is in it or not.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn save(
        &self,
        to: &mut dyn Write,
        moment: &Moment,
        clock: Option<&str>,
    ) -> io::Result<u64> {
        snapshot::write(to, (&self.store, &self.secret), moment, clock)
    }

    /// Puts rules of files in force at a moment, each with its name. Keys of rules that did not
    /// change go on; of changed ones, what is available stays available, and the new rate counts
    /// from this moment on.
    ///
    /// # Errors
    ///
    /// Why the files do not go together. Then nothing changes.
    pub fn apply(
        &self,
        files: &[(String, RequestFile)],
        moment: &Moment,
    ) -> Result<Arc<Rules>, RuleFileError> {
        let before = self.rules();
        let nodes = self.cluster.as_ref().map(|shares| shares.nodes.load(Ordering::Relaxed));
        let now = moment.now.as_nanos();
        let rules = Rules::new(files, &before, &self.store, &self.secret, nodes, now)?;
        let rules = Arc::new(rules);
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&rules);
        // A request under way may still have those before.
        let mut in_use = rules.limits();
        in_use.extend(before.limits());
        self.store.forget_limits(&in_use);
        self.refused.reloaded(&self.counted());
        Ok(rules)
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Rules that metrics name: those in force, and that of the limits that commands bring, if one
    /// did.
    pub(crate) fn counted(&self) -> Vec<Arc<Rule>> {
        let rules = self.rules();
        let domains = rules.domains();
        let of_files = domains.iter().flat_map(|(_, domain)| domain.counted());
        of_files.chain(self.throttles.counted()).cloned().collect()
    }

    /// Keys that have a bucket.
    pub fn keys(&self) -> usize {
        self.store.keys()
    }

    /// Keys that there is room for.
    pub const fn most_keys(&self) -> usize {
        self.store.most()
    }

    /// Logs what the author of the rules should fix, at once and then from time to time.
    pub(crate) fn log(&self) {
        self.bans.log();
        self.odd.log();
        let many = self.many_brought();
        if self.has_said_many.swap(many.is_some(), Ordering::Relaxed) != many.is_some()
            && let Some(many) = many
        {
            tracing::warn!("{many}");
        }
        let due = self.no_address.lock().unwrap_or_else(PoisonError::into_inner).due();
        if let Some((count, latest)) = due {
            tracing::warn!(
                "values of remote_address that are no addresses: {count}. Each has a bucket of its \
                 own: let the proxy send the address of its client alone, and no list; the latest: \
                 {latest}"
            );
        }
    }

    /// Different limits that requests bring, and how many there is room for.
    pub(crate) fn brought_limits(&self) -> [usize; 2] {
        [self.store.count_brought(), MOST_BROUGHT]
    }

    /// What is wrong if requests bring nearly too many limits.
    pub(crate) fn many_brought(&self) -> Option<String> {
        let [count, most] = self.brought_limits();
        (count >= most / 5 * 4).then(|| {
            format!(
                "requests bring {count} different limits, and there is room for {most}: beyond \
                 that the limits of their rules hold; bring fewer different numbers"
            )
        })
    }

    pub(crate) fn count_no_address(&self, rule: &Rule, value: &str) {
        rule.counters.count_no_address();
        let latest = format!("{}, by {}: {}", quoted(value), rule.domain, rule.path);
        self.no_address.lock().unwrap_or_else(PoisonError::into_inner).note(latest);
    }

    /// Counts a request that names a domain without rules.
    pub(crate) fn count_if_unknown(&self, domain: &str) {
        if self.rules().domain(domain).is_none() {
            self.unknown.count(1, 1, || quoted(domain));
        }
    }

    pub(crate) fn answers(&self) -> [u64; 2] {
        std::array::from_fn(|index| self.answers[index].load(Ordering::Relaxed))
    }

    /// Forgets keys of which nothing is used, in one part of `of`; `round` says which.
    pub fn sweep(&self, round: usize, of: usize, moment: &Moment) {
        self.store.sweep(round, of, &moment.with_wall());
    }
}
