//! The decision about a request: all of its descriptors together.

use std::io::{self, Read, Seek, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use limiter_common::wire::Full as OnFull;
use limiter_rules::RuleFileError;
use limiter_rules::file::requests::{RequestFile, RequestLimit};

use crate::buckets::arithmetic::{Charges, Limits, Over, take_back};
use crate::buckets::key::{Key, Secret};
use crate::buckets::snapshot::{self, Loaded, Snapshot, Unusable};
use crate::buckets::store::{Full, KeyLimits, MOST_BROUGHT, Store};
use crate::clock::Moment;
use crate::daemon::bans::RequestBans;
use crate::decide::question::{
    Answer, Asked, Descriptor, Detail, MAX_DESCRIPTORS, Refused, Status,
};
use crate::decide::reservations::Reservations;
use crate::decide::target::{Settled, SharedCharge, State, Target, is_over, replace};
use crate::doors::envoy::{self, Unit};
use crate::reports::counters::Unanswered;
use crate::reports::odd::{Odd, OddParts};
use crate::reports::unmet::{self, Tally};
use crate::reports::unsaid::{Unsaid, quoted};
use crate::rules::{Domain, EntryOf, Rule, Rules, Terms};
use crate::shared::leases::LeaseTable;
use crate::shared::rule::Patience;

/// The limiter: rules in force, and buckets.
pub struct Limiter {
    rules: RwLock<Arc<Rules>>,
    pub(crate) store: Store,
    pub(crate) secret: Secret,
    /// What other nodes share with this one.
    pub(crate) cluster: Option<Shares>,
    /// Requests that named a domain without rules.
    pub(crate) unknown: Tally,
    /// Requests by their answer: within, over.
    pub(crate) answers: [AtomicU64; 2],
    pub(crate) reservations: Reservations,
    pub(crate) bans: Arc<RequestBans>,
    /// Values of `remote_address` that are no address, and are not in the log yet.
    no_address: Mutex<Unsaid>,
    /// What was not taken as it was asked.
    pub(crate) odd: OddParts,
    /// True once the log has that requests bring nearly too many limits.
    has_said_many: AtomicBool,
}

/// What other nodes share with this one.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) leases: Arc<LeaseTable>,
    /// Number of nodes.
    pub(crate) nodes: AtomicU64,
}

/// A request waits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits;

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter").field("keys", &self.keys()).finish_non_exhaustive()
    }
}

/// What a limit that a request brings makes of a descriptor: its rule, its limits and their key,
/// and its state.
type Brought = (Arc<Rule>, Option<(KeyLimits, Key)>, State);

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
            cluster: None,
            unknown: Tally::default(),
            answers: Default::default(),
            reservations: Reservations::default(),
            bans: Arc::default(),
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
        Ok(rules)
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keys that have a bucket.
    pub fn keys(&self) -> usize {
        self.store.keys()
    }

    /// Keys that there is room for.
    pub const fn most_keys(&self) -> usize {
        self.store.most()
    }

    /// The bans that its rules ask for.
    pub(crate) const fn bans(&self) -> &Arc<RequestBans> {
        &self.bans
    }

    /// Puts into the log what its author is to mend, at once and then from time to time.
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

    /// Counts a value of `remote_address` that is no address.
    fn count_no_address(&self, rule: &Rule, value: &str) {
        rule.counters.count_no_address();
        let latest = format!("{}, by {}: {}", quoted(value), rule.domain, rule.path);
        self.no_address.lock().unwrap_or_else(PoisonError::into_inner).note(latest);
    }

    /// Counts somebody who names a domain, if it has no rules.
    pub(crate) fn count_if_unknown(&self, domain: &str) {
        if self.rules().domain(domain).is_none() {
            self.unknown.count(1, 1, || quoted(domain));
        }
    }

    /// Counts a request that was decided, and its descriptors that no rule is for.
    pub(crate) fn count_met(rules: &Rules, asked: &Asked<'_>, answer: &Answer) {
        let Some(domain) = rules.domain(asked.domain) else { return };
        let pairs = asked.descriptors.iter().zip(&answer.statuses);
        // One that another replaces has no rule in the answer, either.
        let is_unmet = |descriptor: &Descriptor<'_>, status: &Status| {
            status.rule.is_none()
                && descriptor.limit.is_none()
                && !descriptor.entries.is_empty()
                && !domain.meets(&descriptor.entries)
        };
        let mut unmet = pairs.filter(|(descriptor, status)| is_unmet(descriptor, status));
        let first = unmet.next().map(|(descriptor, _)| descriptor);
        let count = usize::from(first.is_some()) + unmet.count();
        domain.met.count(asked.descriptors.len(), count, || {
            let entries = first.map_or(&[][..], |descriptor| &descriptor.entries);
            format!("{} ({})", unmet::keys(entries), domain.why_unmet(entries))
        });
    }

    pub(crate) fn answers(&self) -> [u64; 2] {
        std::array::from_fn(|index| self.answers[index].load(Ordering::Relaxed))
    }

    /// Forgets keys of which nothing is used, in one part of `of`; `round` says which.
    pub fn sweep(&self, round: usize, of: usize, moment: &Moment) {
        self.store.sweep(round, of, &moment.with_wall());
    }

    /// Decides a request. One that is over a limit is charged to none. It does not wait: where a
    /// limit that nodes share has no lease, it does what `on_partition` says.
    ///
    /// # Errors
    ///
    /// Why it cannot be decided.
    pub fn decide(
        &self,
        rules: &Rules,
        asked: &Asked<'_>,
        moment: &Moment,
        detail: Detail,
    ) -> Result<Answer, Refused> {
        let patience = Patience::None(Unanswered::Late);
        // With no patience nobody waits.
        let answer = self.attempt(rules, asked, moment, detail, patience)?.unwrap_or_default();
        Self::count_met(rules, asked, &answer);
        Ok(answer)
    }

    /// Decides a request, or says that it waits for the store; then nothing is charged.
    ///
    /// # Errors
    ///
    /// Why it cannot be decided.
    pub(crate) fn attempt(
        &self,
        rules: &Rules,
        asked: &Asked<'_>,
        moment: &Moment,
        detail: Detail,
        patience: Patience,
    ) -> Result<Result<Answer, Waits>, Refused> {
        Ok(self
            .attempt_all_but_queue(rules, asked, moment, patience)?
            .map(|Settled { targets, over, moment }| self.answer(targets, over, &moment, detail)))
    }

    /// Looks at all limits, and charges them if the request is within.
    pub(crate) fn settle(
        &self,
        targets: &mut [Option<Target<'_>>],
        moment: &Moment,
        patience: Patience,
    ) -> Result<bool, Waits> {
        // What stands alone is looked at by its charge.
        if targets.len() > 1 && self.look(targets, moment, patience)? {
            return Ok(true);
        }
        for index in 0..targets.len() {
            let Some(target) = targets.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            if target.state != State::Within || target.queue.is_some() {
                continue;
            }
            let waits = if target.shared.is_some() {
                self.charge_shared(target, moment, patience).is_err()
            } else {
                target.state = self.charge(target, moment);
                false
            };
            let failed = target.is_over();
            if waits {
                self.take_back(targets);
                return Err(Waits);
            }
            if failed && is_over(targets) {
                // Somebody was faster since the look.
                self.take_back(targets);
                return Ok(true);
            }
        }
        Ok(is_over(targets))
    }

    /// Looks at all limits, and notes which the request is over; true if it is to be refused.
    pub(crate) fn look(
        &self,
        targets: &mut [Option<Target<'_>>],
        moment: &Moment,
        patience: Patience,
    ) -> Result<bool, Waits> {
        for index in 0..targets.len() {
            let (before, rest) = targets.split_at_mut(index);
            let Some(target) = rest.first_mut().and_then(Option::as_mut) else { continue };
            if target.state != State::Within || target.queue.is_some() {
                continue;
            }
            target.meet(before);
            if target.shared.is_some() {
                self.look_at_shared(target, moment, patience)?;
            } else if let Some((limits, key)) = &target.limits {
                let peek = |words: &[_], moment: &Moment| {
                    limits.limits.peek(words, &moment.plus(target.ahead), target.together())
                };
                if self.store.look(*key, limits, moment, peek).is_err() {
                    target.state = State::Over;
                }
            }
        }
        Ok(is_over(targets))
    }

    fn charge(&self, target: &Target<'_>, moment: &Moment) -> State {
        let (Some((limits, key)), hits) = (&target.limits, target.hits) else {
            return target.state.clone();
        };
        if hits == 0 {
            // A look: it passes if anything is left.
            let peek = |words: &[_], moment: &Moment| {
                limits.limits.peek(words, &moment.plus(target.ahead), target.together())
            };
            return match self.store.look(*key, limits, moment, peek) {
                Ok(()) => State::Charged(*key, Charges::default(), false),
                Err(Over(_)) => State::Over,
            };
        }
        let charge = |key: Key, always: bool| {
            self.store.charge(key, limits, moment, always, |words, moment| {
                limits.limits.charge(words, moment, hits, target.ahead)
            })
        };
        match charge(*key, false) {
            Ok(Ok(charges)) => State::Charged(*key, charges, false),
            Ok(Err(Over(_))) => State::Over,
            Err(Full) => match target.rule.full {
                OnFull::Pass => State::FullPassed,
                OnFull::Drop => State::FullRefused,
                OnFull::Share => {
                    let key = target.rule.shared_key(&self.secret, target.aggregate);
                    match charge(key, true) {
                        Ok(Ok(charges)) => State::Charged(key, charges, true),
                        Ok(Err(_)) | Err(Full) => State::OverShared,
                    }
                }
            },
        }
    }

    pub(crate) const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The key of the bucket of a descriptor.
    pub(crate) fn key_of(&self, rule: &Rule, entries: &[EntryOf<'_>]) -> Key {
        rule.key(&self.secret, entries)
    }

    /// The key of the bucket that keys without one share.
    pub(crate) fn shared_key(&self, rule: &Rule) -> Key {
        rule.shared_key(&self.secret, 0)
    }

    pub(crate) fn take_back(&self, targets: &mut [Option<Target<'_>>]) {
        for target in targets.iter_mut().rev().flatten() {
            self.take_back_shared(target);
            if let (Some((key, charges)), Some((limits, _))) = (target.charges(), &target.limits) {
                self.store.take_back(key, limits.id, |words| take_back(words, charges));
                target.state = State::Within;
            }
        }
    }

    /// The descriptors with their rules and keys.
    pub(crate) fn targets<'a>(
        &self,
        rules: &Rules,
        asked: &'a Asked<'a>,
    ) -> Result<Vec<Option<Target<'a>>>, Refused> {
        if asked.domain.is_empty() {
            return Err(Refused::NoDomain);
        }
        match asked.descriptors.len() {
            0 => return Err(Refused::NoDescriptors),
            many if many > MAX_DESCRIPTORS => return Err(Refused::TooMany(many)),
            _ => {}
        }
        let Some(domain) = rules.domain(asked.domain) else {
            self.unknown.count(1, 1, || quoted(asked.domain));
            return Ok(asked.descriptors.iter().map(|_| None).collect());
        };
        let mut targets = Vec::with_capacity(asked.descriptors.len());
        let (mut replaces, mut wider) = (false, false);
        for (number, descriptor) in asked.descriptors.iter().enumerate() {
            let entries = &descriptor.entries;
            let found = domain.find(entries);
            if let Some(rule) = found
                && let Some(value) = rule.no_address(entries)
            {
                self.count_no_address(rule, value);
            }
            let brought = descriptor.limit;
            let brought = brought.and_then(|limit| self.brought(domain, (found, entries), limit));
            let is_brought = brought.is_some();
            let (mut shared, mut queue) = (None, None);
            let (rule, limits, state) = match (brought, found) {
                (Some(brought), _) => brought,
                (None, None) => {
                    targets.push(None);
                    continue;
                }
                (None, Some(rule)) => {
                    let key = || rule.key(&self.secret, entries);
                    let (limits, state) = match &rule.terms {
                        Terms::Limits(limits) => {
                            let whole = || (limits.0.clone(), self.secret.other(key()));
                            shared = rule.shared_with(entries).map(|shared| (shared, key()));
                            queue = rule.bucket(entries).map(|bucket| (bucket, None));
                            let own = || (limits.0.clone(), key());
                            let limits = if shared.is_some() { whole() } else { own() };
                            (Some(limits), State::Within)
                        }
                        Terms::Block(_) => (None, State::Over),
                        Terms::Unlimited => (None, State::Unlimited),
                    };
                    (Arc::clone(rule), limits, state)
                }
            };
            replaces |= !rule.replaces.is_empty();
            wider |= !rule.aggregates.is_empty();
            targets.push(Some(Target {
                rule,
                of: number,
                aggregate: 0,
                limits,
                shared,
                hits: descriptor.hits.unwrap_or(asked.hits.max(1)),
                counted: descriptor.hits.is_some() || asked.hits > 0,
                together: Vec::new(),
                ahead: 0,
                entries,
                brought: is_brought,
                state,
                charged: SharedCharge::default(),
                unanswered: None,
                queue,
            }));
        }
        if replaces {
            replace(&mut targets);
        }
        if wider {
            self.add_aggregates(&mut targets);
        }
        // A payload waits in one.
        for other in targets.iter_mut().flatten().filter(|of| of.queue.is_some()).skip(1) {
            let Rule { domain, path, .. } = &*other.rule;
            self.odd.count(Odd::TwoQueues, format!("{domain}: {path}"));
            (other.queue, other.limits, other.state) = (None, None, State::Over);
        }
        Ok(targets)
    }

    /// Adds the aggregates of descriptors behind them. A limit that a request brings takes the
    /// place of those, too.
    fn add_aggregates(&self, targets: &mut Vec<Option<Target<'_>>>) {
        let mut added = Vec::new();
        for target in targets.iter().flatten().filter(|target| !target.brought) {
            for (aggregate, limits, key) in target.rule.wider(&self.secret, target.entries) {
                added.push(Some(Target {
                    rule: Arc::clone(&target.rule),
                    of: target.of,
                    aggregate,
                    limits: Some((limits, key)),
                    shared: None,
                    queue: None,
                    hits: target.hits,
                    counted: target.counted,
                    together: Vec::new(),
                    ahead: 0,
                    entries: target.entries,
                    brought: false,
                    state: State::Within,
                    charged: SharedCharge::default(),
                    unanswered: None,
                }));
            }
        }
        targets.append(&mut added);
    }

    /// What a limit that a request brings makes of a descriptor. None where the limits of its rule
    /// hold for want of room.
    fn brought(
        &self,
        domain: &Domain,
        (found, entries): (Option<&Arc<Rule>>, &[EntryOf<'_>]),
        limit: RequestLimit,
    ) -> Option<Brought> {
        let (rule, key) = domain.brought(&self.secret, found, entries);
        let requests = limit.meter.quota().requests_per_unit;
        if requests == 0 {
            return Some((rule, None, State::Over));
        }
        let count = |odd| {
            let unit = Unit::of(&limit).map_or("", Unit::name);
            self.odd.count(odd, format!("{requests} a {unit}, by {}: {}", rule.domain, rule.path));
        };
        let (mut taken, mut known) = (limit, self.store.known_brought(limit));
        if known.is_none() {
            let Ok(limits) = Limits::compile(&[limit]) else {
                count(Odd::TooFast);
                return Some((rule, None, State::Unlimited));
            };
            known = self.store.brought(limits, false);
        }
        if known.is_none() {
            count(Odd::NoRoom);
            if found.is_some_and(|rule| matches!(rule.terms, Terms::Limits(_))) {
                return None;
            }
            let rounded = 1 << requests.ilog2();
            taken = Unit::of(&limit).map_or(limit, |unit| envoy::limit(rounded, unit));
            let limits = Limits::compile(&[taken]).ok();
            known = limits.and_then(|limits| self.store.brought(limits, true));
        }
        let mut key_of_limit = self.secret.begin();
        key_of_limit.key(key);
        for part in snapshot::parts(&taken) {
            key_of_limit.number(part);
        }
        let limits = known.map(|known| (known, key_of_limit.end()));
        Some((rule, limits, State::Within))
    }
}
