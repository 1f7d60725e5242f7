//! The loop of a node: ticks that read and write each lease, calls to the store for which ticks do
//! not wait, and the reports of nodes.

use std::collections::{BTreeMap, HashSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use limiter_sharing::Shared;
use limiter_sharing::key::GRACE;
use limiter_sharing::leases::Leases;
use limiter_sharing::limit::SYNC_MIN;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant as TokioInstant, sleep, sleep_until, timeout};

use super::change::Change;
use super::membership::{Membership, Met, Presence};
use super::memory;
use super::random;
use super::settings::{NodeSettings, Rules};
use super::sign::Trust;
use super::status::{Notice, RefusedChange, ServerStatus, Status};
use super::store::Store;
use beyond::{Remembered, Watch};
use calls::{Batches, Outcome};
use change_log::ChangeLog;
use contact::{Calls, Kind};
use hot::Hot;
use limit_state::LimitState;
use peers::{HEARTBEAT, Peers};
use servers::ServerWatch;

pub(crate) mod beyond;
mod calls;
pub(crate) mod change_log;
pub(crate) mod contact;
pub(crate) mod hot;
mod keys;
pub(crate) mod limit_state;
pub(crate) mod peers;
pub(crate) mod servers;

/// Longest time in microseconds between two ticks, if no limit needs them more often.
const TICK_MOST: u64 = 100_000;
/// Shortest and longest time in microseconds between two questions for changes.
const ASK_LEAST: u64 = 200_000;
const ASK_MOST: u64 = HEARTBEAT;
/// Time in microseconds between two checks of how the store keeps keys, and the shorter time after
/// a failed one.
const LOOK: u64 = 60_000_000;
const LOOK_AGAIN: u64 = 1_000_000;
/// Time between two statuses, in microseconds.
const STATUS: u64 = 1_000_000;
/// Most rejected changes of one answer that are reported to the daemon individually.
const REFUSED_REPORTED: usize = 10;
/// Longest time at shutdown to wait for pending answers, and for returning units.
const ANSWERS: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_millis(200);

/// The node's ends of the channels to the daemon.
pub(super) struct Ends {
    pub(super) rules: watch::Receiver<Rules>,
    pub(super) changes: mpsc::Receiver<Change>,
    pub(super) notices: mpsc::Sender<Notice>,
    pub(super) status: Arc<Mutex<Arc<Status>>>,
    pub(super) stop: oneshot::Receiver<()>,
}

/// Limits that were given up together: all of a key, or one of a budget.
struct Leaving {
    /// Time after which no packet in progress can charge their leases.
    due: u64,
    limits: Vec<LimitState>,
    /// The first lease of a key.
    first: Option<u32>,
}

pub(super) struct Loop<S, L> {
    settings: NodeSettings,
    store: Arc<S>,
    leases: L,
    ends: Ends,
    /// Limits in force, by numbers that are never reused.
    held: BTreeMap<u64, LimitState>,
    next: u64,
    /// Limits that were given up, until their last report.
    leaving: Vec<Leaving>,
    /// Limits that begin when their leases are free.
    waiting: Vec<Shared>,
    hot: Hot,
    /// Accounts of limits without leases, and what the store granted beyond all accounts.
    remembered: Remembered,
    beyond: Watch,
    /// By shard, the store's time from which hot keys are requested; and when to request them.
    cursors: Vec<u64>,
    next_list: u64,
    calls: JoinSet<Outcome>,
    contact: Calls,
    peers: Peers,
    change_log: ChangeLog,
    is_in_membership_call: bool,
    next_ask: u64,
    next_heartbeat: u64,
    next_status: u64,
    next_look: u64,
    dropped: u64,
    /// By shard, the microseconds by which the store's clock was ahead of that of the leases at the
    /// last answer, because each server has its own clock.
    store_ahead: BTreeMap<u16, i64>,
    servers: ServerWatch,
}

impl<S: Store + 'static, L: Leases> Loop<S, L> {
    pub(super) fn new(settings: NodeSettings, store: Arc<S>, leases: L, ends: Ends) -> Self {
        let instance = random::number();
        let trust = Trust::new(settings.keys.clone(), settings.newest);
        let peers = Peers::new(settings.name.clone(), instance, settings.nodes.into());
        Self {
            settings,
            store,
            leases,
            ends,
            held: BTreeMap::new(),
            next: 0,
            leaving: Vec::new(),
            waiting: Vec::new(),
            hot: Hot::default(),
            remembered: Remembered::default(),
            beyond: Watch::default(),
            cursors: Vec::new(),
            next_list: 0,
            calls: JoinSet::new(),
            contact: Calls::new(),
            peers,
            change_log: ChangeLog::new(instance, trust),
            is_in_membership_call: false,
            next_ask: 0,
            next_heartbeat: 0,
            next_status: 0,
            next_look: 0,
            store_ahead: BTreeMap::new(),
            servers: ServerWatch::default(),
            dropped: 0,
        }
    }

    pub(super) async fn run(mut self) {
        self.leases.forget_keys();
        let mut next = TokioInstant::now();
        loop {
            let takes = self.change_log.has_room();
            tokio::select! {
                biased;
                _ = &mut self.ends.stop => break,
                () = sleep_until(next) => {
                    self.tick();
                    // Missed ticks are not repeated. The next sleep lasts at least a millisecond,
                    // as tokio's sleeps do, so that answers are processed.
                    next = (next + self.period()).max(TokioInstant::now());
                }
                Some(outcome) = self.calls.join_next() => self.ended(outcome),
                () = poll_fn(|context| self.leases.poll_asks(context)) => self.begin_asked(),
                Ok(()) = self.ends.rules.changed() => self.set_rules(),
                Some(change) = self.ends.changes.recv(), if takes => {
                    self.change_log.publish(self.leases.now(), change);
                    self.meet();
                }
            }
        }
        self.leave().await;
    }

    /// Shortest sync period of the limits in force, in microseconds.
    fn sync(&self) -> Option<u64> {
        self.held.values().map(LimitState::sync).chain(self.hot.sync()).min()
    }

    /// Time between two ticks, slightly random, so that nodes that started together do not stay in
    /// step.
    fn period(&self) -> Duration {
        let longest = self.sync().map_or(TICK_MOST, |sync| sync / 8);
        let period = longest.clamp(SYNC_MIN / 8, TICK_MOST);
        Duration::from_micros(period - random::number() % (period / 16).max(1))
    }

    fn tick(&mut self) {
        let now = self.leases.now();
        self.finish(now);
        self.promote(now);
        self.end_idle(now);
        let limit = self.longest_call();
        let mut batches = Batches::default();
        for (number, held) in &mut self.held {
            if let Some((sequence, request)) = held.tick(now, limit, &mut self.leases) {
                batches.add(held, Some((*number, sequence)), request);
            }
        }
        self.list(now, &mut batches);
        self.call(batches);
        self.meet();
        if now >= self.next_look {
            self.next_look = u64::MAX;
            let store = Arc::clone(&self.store);
            self.calls.spawn_local(async move { Outcome::Looked { at_all: store.look().await } });
        }
        let lost = self.contact.tick();
        if lost.is_some() || now >= self.next_status {
            self.next_status = now + STATUS;
            let servers = self.store.servers();
            let of_servers = self.servers.look(&servers);
            // Publish the status first, so that a client that sees the notice also sees a matching
            // status.
            self.show(now, servers);
            for notice in lost.into_iter().chain(of_servers) {
                self.report(notice);
            }
        }
    }

    /// Longest time for a call, in microseconds.
    pub(super) fn longest_call(&self) -> u64 {
        u64::try_from(self.settings.timeout.as_micros()).unwrap_or(u64::MAX)
    }

    fn in_contact(&mut self, kind: Kind, took: Duration) {
        if let Some(notice) = self.contact.answered(kind, took) {
            self.show(self.leases.now(), self.store.servers());
            self.report(notice);
            self.next_status = 0;
        }
    }

    /// Asks for news and reports this node's presence, if it is time.
    fn meet(&mut self) {
        let now = self.leases.now();
        let has_news = self.change_log.waiting() > 0;
        if self.is_in_membership_call
            || !(has_news || now >= self.next_ask)
            || !self.store.is_ready()
        {
            return;
        }
        let heartbeats = now >= self.next_heartbeat;
        if heartbeats {
            self.next_heartbeat = now + HEARTBEAT;
        }
        let period = self.sync().unwrap_or(ASK_MOST).clamp(ASK_LEAST, ASK_MOST);
        self.next_ask = now + period - random::number() % (period / 8);
        let (kind, presence) = if heartbeats {
            (Kind::Heartbeat, Presence::Heartbeat(self.peers.heartbeat().clone()))
        } else {
            (Kind::Question, Presence::Stay)
        };
        self.is_in_membership_call = true;
        let membership = Membership {
            instance: self.peers.instance(),
            presence,
            known: self.change_log.known(),
            changes: self.change_log.send(now, memory::clock()),
        };
        let store = Arc::clone(&self.store);
        self.calls.spawn_local(async move {
            let begin = Instant::now();
            let result = store.meet(&membership).await;
            Outcome::Met { kind, result, took: begin.elapsed() }
        });
    }

    fn met(&mut self, kind: Kind, met: &Met, took: Duration) {
        self.is_in_membership_call = false;
        self.in_contact(kind, took);
        self.contact.clock(met.now, took);
        // Only the answer to a heartbeat lists nodes, at least this one.
        if !met.nodes.is_empty() {
            for notice in self.peers.heard(met.now, &met.nodes) {
                self.report(notice);
            }
        }
        // Changes wait in the store until there is room for all of them and for other notices.
        let room =
            self.ends.notices.capacity().saturating_sub(self.ends.notices.max_capacity() / 4);
        let news = self.change_log.met(met, room, memory::clock());
        self.refused(news.refused);
        if let Some(missed) = news.missed {
            self.report(missed);
        }
        for change in news.changes {
            self.report(Notice::Change(change));
        }
        if news.more {
            self.next_ask = 0;
        }
    }

    /// Reports rejected changes: their number, and some of them.
    fn refused(&mut self, refused: Vec<(String, u64, &'static str)>) {
        if refused.is_empty() {
            return;
        }
        let count = refused.len() as u64;
        let latest = refused.into_iter().rev().take(REFUSED_REPORTED).rev();
        let latest = latest.map(|(change, instance, why)| RefusedChange {
            change,
            node: self.peers.name_of(instance),
            why: why.to_owned(),
        });
        let latest = latest.collect();
        self.report(Notice::Refused { count, latest });
    }

    /// Notifies the daemon, if it listens.
    fn report(&mut self, notice: Notice) {
        if self.ends.notices.try_send(notice).is_err() {
            self.dropped += 1;
        }
    }

    fn set_rules(&mut self) {
        let rules = self.ends.rules.borrow_and_update().clone();
        self.peers.set_digest(rules.digest);
        self.next_heartbeat = 0;
        self.set_key_rules(rules.shared.rules);
        let by_key = self.held.extract_if(.., |_, held| held.is_by_key()).collect::<Vec<_>>();
        let now = self.leases.now();
        let mut old = std::mem::take(&mut self.held);
        self.held.extend(by_key);
        let mut by_lease: BTreeMap<u32, u64> =
            old.iter().map(|(number, held)| (held.lease(), *number)).collect();
        self.waiting.clear();
        for shared in rules.shared.budgets {
            let number = by_lease.get(&shared.lease).copied();
            let same = number.filter(|number| old.get(number).is_some_and(|held| held.is(&shared)));
            match same.and_then(|number| Some((number, old.remove(&number)?))) {
                Some((number, mut held)) => {
                    by_lease.remove(&shared.lease);
                    held.set_terms(now, &shared.terms);
                    self.held.insert(number, held);
                }
                None => self.waiting.push(shared),
            }
        }
        for held in old.into_values() {
            self.give_up(vec![held], None);
        }
        self.begin();
        let is_empty = self.held.is_empty() && self.waiting.is_empty() && !self.hot.has_rules();
        if let Some(notice) = is_empty.then(|| self.contact.no_limits()).flatten() {
            self.report(notice);
        }
        self.tick();
    }

    /// Ends limits, all of a key or one of a budget. Their last report follows later.
    fn give_up(&mut self, mut limits: Vec<LimitState>, first: Option<u32>) {
        let now = self.leases.now();
        for held in &mut limits {
            held.end(&mut self.leases);
            self.remembered.keep(now, held.key(), *held.account());
        }
        self.leaving.push(Leaving { due: self.leases.now() + GRACE, limits, first });
    }

    /// Begins limits whose leases are free.
    fn begin(&mut self) {
        let leaving =
            self.leaving.iter().flat_map(|leaving| &leaving.limits).map(LimitState::lease);
        let taken: HashSet<u32> = leaving.collect();
        for shared in std::mem::take(&mut self.waiting) {
            if taken.contains(&shared.lease) {
                self.waiting.push(shared);
                continue;
            }
            let held = LimitState::new(
                &shared,
                self.settings.shards,
                &mut self.remembered,
                &mut self.leases,
            );
            self.held.insert(self.next, held);
            self.next += 1;
        }
    }

    /// Returns the units of limits that have ended, once.
    fn finish(&mut self, now: u64) {
        if self.leaving.iter().all(|leaving| now < leaving.due) {
            return;
        }
        let mut batches = Batches::default();
        for leaving in self.leaving.extract_if(.., |leaving| now >= leaving.due) {
            for mut held in leaving.limits {
                if let Some(request) = held.farewell(&self.leases) {
                    batches.add(&held, None, request);
                }
            }
            if let Some(first) = leaving.first {
                self.hot.free(first);
            }
        }
        self.call(batches);
        self.begin();
    }

    /// Ends all leases, and returns their units if the store answers in time.
    async fn leave(mut self) {
        let answers = async {
            while let Some(outcome) = self.calls.join_next().await {
                self.ended(outcome);
            }
        };
        let _late = timeout(ANSWERS, answers).await;
        self.hot.end(&mut self.leases);
        let limits = std::mem::take(&mut self.held).into_values().collect();
        self.give_up(limits, None);
        sleep(Duration::from_micros(GRACE)).await;
        self.waiting.clear();
        self.finish(u64::MAX);
        let membership = Membership {
            instance: self.peers.instance(),
            presence: Presence::Leave,
            known: self.change_log.known(),
            changes: self.change_log.send(self.leases.now(), memory::clock()),
        };
        let store = Arc::clone(&self.store);
        self.calls.spawn_local(async move {
            let begin = Instant::now();
            let result = store.meet(&membership).await;
            Outcome::Met { kind: Kind::Question, result, took: begin.elapsed() }
        });
        let all = async { while self.calls.join_next().await.is_some() {} };
        // Units that cannot be returned expire by themselves.
        let _late = timeout(LAST, all).await;
    }

    /// Publishes the state of the node.
    fn show(&self, now: u64, servers: Vec<ServerStatus>) {
        let mut status = Status::new(&self.settings);
        status.servers = servers;
        self.contact.fill(&mut status);
        let budgets = self.held.values().filter(|held| !held.is_by_key());
        status.leases = budgets.map(|held| held.status(now)).collect();
        status.keys = self.hot.len();
        status.keys_refused = self.hot.refused();
        status.beyond = self.beyond.total();
        status.latest_beyond = self.beyond.latest();
        status.leases.sort_by(|a, b| (&a.name, a.lease).cmp(&(&b.name, b.lease)));
        status.without_contact = status.leases.iter().filter(|lease| !lease.in_contact).count();
        status.nodes = self.peers.nodes().to_vec();
        status.count = self.peers.count();
        status.waiting_changes = self.change_log.waiting();
        status.newest_change = self.change_log.newest();
        status.dropped_notices = self.dropped;
        *self.ends.status.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(status);
    }
}
