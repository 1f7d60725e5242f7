//! A shared limit in force on this node: its state machine, its lease in the data path, and its key
//! in the store.

use std::sync::Arc;

use limiter_sharing::account::{Answer, Central};
use limiter_sharing::cap::Cap;
use limiter_sharing::fnv::Fnv;
use limiter_sharing::key::{Key, Seen, Words};
use limiter_sharing::leases::{Counts, Granted, Leases};
use limiter_sharing::quota::Quota;
use limiter_sharing::window::WindowKind;
use limiter_sharing::{Shared, SharedId, SharedTerms};

use super::beyond::Remembered;
use crate::random;
use crate::status::LeaseStatus;
use crate::store::{Ask, NAME_MAX, WindowAsk, shard};

/// Stands for the share, which the data path does not show. Assuming that all of it is owed errs on
/// the safe side.
const SHARE: Seen = Seen { used: 0, denied: 0, shared: 0, owed: u64::MAX };

/// Time in microseconds without an answer after which a key gives up its leases.
const UNANSWERED: u64 = 10_000_000;

/// Request for one key, of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyRequest {
    Lease(Ask),
    Window(WindowAsk),
}

#[derive(Debug)]
enum Machine {
    Bucket(Key),
    Window(Quota),
}

/// A shared limit in force.
#[derive(Debug)]
pub(crate) struct LimitState {
    name: Arc<str>,
    key: Box<[u8]>,
    shard: u16,
    lease: u32,
    by_key: bool,
    /// Units that a key sent before it had a lease: half of its share, or the packet that asked.
    before: u64,
    begun: u64,
    machine: Machine,
    sync: u64,
    /// Totals of the lease when this limit took it over.
    base: Counts,
    seen: Counts,
    written: Words,
    granted: u64,
    next_tick: u64,
    /// Number of the current call, and when it is given up.
    call: Option<(u64, u64)>,
    /// Units that the latest call requested.
    wanted: u64,
}

impl LimitState {
    /// Begins a limit. Its lease decides from now on, and passes nothing before the first answer.
    /// `remembered` has the units that it owes from earlier.
    pub(crate) fn new(
        shared: &Shared,
        shards: u16,
        remembered: &mut Remembered,
        leases: &mut impl Leases,
    ) -> Self {
        let now = leases.now();
        let base = leases.seen(shared.lease);
        let mut machine = match shared.terms {
            SharedTerms::Bucket(limit) => {
                let mut key = Key::new(limit, now, random::number());
                key.not_hot(&SHARE);
                Machine::Bucket(key)
            }
            SharedTerms::Window { window, sync } => {
                Machine::Window(Quota::new(window, sync, now, random::number()))
            }
        };
        let key = store_key(shared);
        if let Some(before) = remembered.take(&key) {
            match &mut machine {
                Machine::Bucket(key) => key.resume(now, before),
                Machine::Window(quota) => quota.resume(now, before),
            }
        }
        let mut held = Self {
            name: Arc::clone(&shared.name),
            shard: shard(0, &key, shards),
            key,
            lease: shared.lease,
            by_key: matches!(shared.id, SharedId::Key { .. }),
            before: before(shared),
            begun: now,
            machine,
            sync: shared.terms.sync(),
            base,
            seen: Counts::default(),
            written: Words::default(),
            granted: 0,
            next_tick: now,
            call: None,
            wanted: 0,
        };
        held.write(leases);
        held
    }

    /// True if a limit of a new rule set is this one, perhaps with other numbers.
    pub(crate) fn is(&self, shared: &Shared) -> bool {
        self.lease == shared.lease && self.key == store_key(shared)
    }

    /// Changes the numbers of the same limit.
    pub(crate) fn set_terms(&mut self, now: u64, terms: &SharedTerms) {
        self.sync = terms.sync();
        match (&mut self.machine, *terms) {
            (Machine::Bucket(key), SharedTerms::Bucket(limit)) => key.set_limit(now, limit),
            (Machine::Window(quota), SharedTerms::Window { window, sync }) => {
                quota.set_window(now, window, sync);
            }
            // Limits of another kind have another key.
            _ => {}
        }
    }

    pub(crate) fn lease(&self) -> u32 {
        self.lease
    }

    pub(crate) fn is_by_key(&self) -> bool {
        self.by_key
    }

    /// Sync period in microseconds.
    pub(crate) fn sync(&self) -> u64 {
        self.sync
    }

    pub(crate) fn shard(&self) -> u16 {
        self.shard
    }

    /// Runs a tick if one is due. Returns the request to make, with the number of its call. A call
    /// that takes longer than `timeout` microseconds or a sync period is given up.
    pub(crate) fn tick(
        &mut self,
        now: u64,
        timeout: u64,
        leases: &mut impl Leases,
    ) -> Option<(u64, KeyRequest)> {
        if now < self.next_tick {
            return None;
        }
        self.next_tick = now + self.sync / 8;
        if let Some((sequence, end)) = self.call.filter(|(_, end)| now >= *end) {
            self.failed(now.max(end), sequence);
        }
        let seen = self.look(leases);
        let call = match &mut self.machine {
            Machine::Bucket(key) => key.tick(now, &seen).map(|call| {
                let central = Central::of(key.limit());
                let ask = Ask { name: self.key.clone(), central, demand: call.demand };
                (call.sequence, KeyRequest::Lease(ask))
            }),
            Machine::Window(quota) => quota.tick(now, &seen).map(|call| {
                let window = *quota.window();
                let ask = WindowAsk { name: self.key.clone(), window, demand: call.demand };
                (call.sequence, KeyRequest::Window(ask))
            }),
        };
        if let Some((sequence, request)) = &call {
            self.call = Some((*sequence, now + self.sync.min(timeout)));
            self.wanted = match request {
                KeyRequest::Lease(ask) => ask.demand.want,
                KeyRequest::Window(ask) => ask.demand.want,
            };
        }
        self.write(leases);
        call
    }

    fn look(&mut self, leases: &impl Leases) -> Seen {
        let counts = leases.seen(self.lease);
        self.seen = Counts {
            used: counts.used.saturating_sub(self.base.used),
            denied: counts.denied.saturating_sub(self.base.denied),
        };
        let denied = self.seen.denied.saturating_add(self.before);
        Seen { used: self.seen.used, denied, ..SHARE }
    }

    fn words(&self) -> Words {
        match &self.machine {
            Machine::Bucket(key) => key.words(),
            Machine::Window(quota) => quota.words(),
        }
    }

    /// Writes the lease if its words have changed.
    fn write(&mut self, leases: &mut impl Leases) {
        let words = self.words();
        let granted = self.base.used.saturating_add(words.granted);
        let words = Words { granted, ..words };
        if words != self.written {
            leases.write(self.lease, words);
            self.written = words;
        }
    }

    /// This node's own account of the limit.
    pub(crate) fn account(&self) -> &Cap {
        match &self.machine {
            Machine::Bucket(key) => key.cap(),
            Machine::Window(quota) => quota.cap(),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Units of the largest packet.
    pub(crate) fn largest(&self) -> u64 {
        match &self.machine {
            Machine::Bucket(key) => key.limit().settings().largest,
            Machine::Window(quota) => quota.window().largest,
        }
    }

    /// Handles the store's answer to call `sequence`. Returns the units in it that were not taken.
    pub(crate) fn answered(
        &mut self,
        sequence: u64,
        answer: &Answer,
        leases: &mut impl Leases,
    ) -> u64 {
        if self.call.take_if(|(of, _)| *of == sequence).is_none() {
            return 0;
        }
        let before = self.account().refused();
        let now = leases.now();
        match &mut self.machine {
            Machine::Bucket(key) => key.answered(now, sequence, answer),
            Machine::Window(quota) => quota.answered(now, sequence, answer),
        }
        let refused = self.account().refused().saturating_sub(before);
        let units = answer.grant.saturating_sub(refused);
        self.granted = self.granted.saturating_add(units);
        self.write(leases);
        let patience = match &self.machine {
            Machine::Bucket(key) => key.patience(),
            Machine::Window(quota) => quota.patience(),
        };
        let again = patience.saturating_sub(now).saturating_add(self.sync / 8);
        leases.answered(self.lease, Granted { wanted: self.wanted, units, again });
        refused
    }

    /// Handles a call that failed or was not made.
    pub(crate) fn failed(&mut self, now: u64, sequence: u64) {
        self.call.take_if(|(of, _)| *of == sequence);
        match &mut self.machine {
            Machine::Bucket(key) => key.failed(now, sequence),
            Machine::Window(quota) => quota.failed(now, sequence),
        }
    }

    /// True if the limit needs no lease: nothing is owed in the store, or nothing arrived for a
    /// while and nothing is held.
    pub(crate) fn is_idle(&self, now: u64) -> bool {
        self.call.is_none()
            && match &self.machine {
                Machine::Bucket(key) => {
                    let waits = !key.was_answered() && now < self.begun.saturating_add(UNANSWERED);
                    !key.is_hot() && !waits
                }
                Machine::Window(quota) => quota.is_idle(now),
            }
    }

    /// Ends the lease. Call [`LimitState::farewell`] more than [`limiter_sharing::key::GRACE`]
    /// later.
    pub(crate) fn end(&mut self, leases: &mut impl Leases) {
        let (now, seen) = (leases.now(), self.look(leases));
        self.call = None;
        match &mut self.machine {
            Machine::Bucket(key) => key.end(now, &seen),
            Machine::Window(quota) => quota.end(now, &seen),
        }
        self.write(leases);
    }

    /// Last report of an ended lease, if there is something to report.
    pub(crate) fn farewell(&mut self, leases: &impl Leases) -> Option<KeyRequest> {
        let (now, seen) = (leases.now(), self.look(leases));
        let name = self.key.clone();
        match &mut self.machine {
            Machine::Bucket(key) => key.farewell(now, &seen).map(|demand| {
                KeyRequest::Lease(Ask { name, central: Central::of(key.limit()), demand })
            }),
            Machine::Window(quota) => quota.farewell(now, &seen).map(|demand| {
                KeyRequest::Window(WindowAsk { name, window: *quota.window(), demand })
            }),
        }
    }

    pub(crate) fn status(&self, now: u64) -> LeaseStatus {
        LeaseStatus {
            name: Arc::clone(&self.name),
            lease: self.lease,
            granted: self.granted,
            beyond: self.account().refused(),
            used: self.seen.used,
            denied: self.seen.denied,
            held: self.words().granted.saturating_sub(self.seen.used),
            in_contact: now < self.written.expires,
        }
    }
}

/// Units that a key used before it had a lease, as demand for its first one.
fn before(shared: &Shared) -> u64 {
    match (shared.id, shared.terms) {
        (SharedId::Named, _) => 0,
        (_, SharedTerms::Bucket(limit)) => {
            let share = limit.cold().map_or(0, |(_, burst)| burst / 2);
            share.max(limit.settings().largest)
        }
        (_, SharedTerms::Window { window, .. }) => window.largest,
    }
}

/// Name of a limit's key in the store. It begins with the kind, because a key of one kind cannot be
/// used by another; a long name ends with its hash.
fn store_key(shared: &Shared) -> Box<[u8]> {
    let kind = match shared.terms {
        SharedTerms::Bucket(_) => "b:",
        SharedTerms::Window { window, .. } => match window.kind {
            WindowKind::Fixed => "f:",
            WindowKind::SlidingCounter => "c:",
            WindowKind::SlidingLog => "l:",
        },
    };
    let name = &shared.id.bytes(&shared.name)[..];
    if kind.len() + name.len() <= NAME_MAX {
        return [kind.as_bytes(), name].concat().into();
    }
    let hash = format!("~{:016x}", Fnv::new().with(name).finish());
    let kept = &name[..NAME_MAX - kind.len() - hash.len()];
    [kind.as_bytes(), kept, hash.as_bytes()].concat().into()
}

#[cfg(test)]
mod tests {
    use limiter_sharing::SharedId;
    use limiter_sharing::window::Window;

    use super::*;

    fn window(name: &str, kind: WindowKind) -> Shared {
        let window = Window {
            kind,
            length: 60_000_000,
            quota: 9,
            largest: 1,
            life: 800_000,
            lease_cap: 250,
        };
        let terms = SharedTerms::Window { window, sync: 200_000 };
        Shared { name: name.into(), id: SharedId::Named, lease: 0, terms }
    }

    #[test]
    fn keys_of_long_names_and_of_other_kinds_differ() {
        let short = store_key(&window("customer", WindowKind::Fixed));
        assert_eq!(&*short, b"f:customer");
        assert_ne!(short, store_key(&window("customer", WindowKind::SlidingLog)));
        let long =
            |end: &str| store_key(&window(&format!("{}{end}", "x".repeat(200)), WindowKind::Fixed));
        assert_eq!((long("a").len(), long("b").len()), (NAME_MAX, NAME_MAX));
        assert_ne!(long("a"), long("b"));
    }
}
