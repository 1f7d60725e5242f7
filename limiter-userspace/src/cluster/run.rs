//! The loop of a node: ticks that look at each lease and write it, calls to the store that ticks do
//! not wait for, and what nodes tell each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant as TokioInstant, sleep, sleep_until, timeout};

use super::account::Answer;
use super::change::Change;
use super::contact::{Calls, Kind};
use super::feed::Feed;
use super::held::{Held, Request};
use super::hot::{Ended, Hot};
use super::key::GRACE;
use super::leases::Leases;
use super::limit::SYNC_MIN;
use super::meeting::{Meeting, Met, Presence};
use super::node::{NodeSettings, Rules};
use super::random;
use super::roster::{BEAT, Roster};
use super::servers::Servers;
use super::shared::Shared;
use super::status::{Contact, Notice, ServerStatus, Status};
use super::store::{Answers, Batch, Foreign, HotKey, KEYS_MAX, Store, StoreError, WindowBatch};

/// Longest time in microseconds between two ticks, where no limit needs them more often.
const TICK_MOST: u64 = 100_000;
/// Shortest and longest time in microseconds between two questions for changes.
const ASK_LEAST: u64 = 200_000;
const ASK_MOST: u64 = BEAT;
/// Time between two statuses, in microseconds.
const STATUS: u64 = 1_000_000;
/// Longest time at the end for answers under way, and for what is given back.
const ANSWERS: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_millis(200);

/// Ends of the channels to the daemon.
pub(super) struct Ends {
    pub(super) rules: watch::Receiver<Rules>,
    pub(super) changes: mpsc::Receiver<Change>,
    pub(super) notices: mpsc::Sender<Notice>,
    pub(super) status: Arc<Mutex<Arc<Status>>>,
    pub(super) stop: oneshot::Receiver<()>,
}

/// Keys of a call: number of the limit, and of its call.
type Asked = Vec<(u64, u64)>;

/// End of a call.
enum Outcome {
    Leases { shard: u16, asked: Asked, result: Result<Answers, StoreError>, took: Duration },
    Met { kind: Kind, result: Result<Met, StoreError>, took: Duration },
}

/// Requests that go to the store together, of one shard.
#[derive(Default)]
struct Batches {
    /// Limits of budgets.
    leases: BTreeMap<u16, (Asked, Vec<super::store::Ask>)>,
    /// Limits of keys, which the store lists.
    keys: BTreeMap<u16, (Asked, Vec<super::store::Ask>)>,
    /// Shards whose list is asked for, and from which time on.
    lists: BTreeMap<u16, u64>,
    windows: BTreeMap<u16, (Asked, Vec<super::store::WindowAsk>)>,
}

/// A node.
pub(super) struct Loop<S, L> {
    settings: NodeSettings,
    store: Arc<S>,
    leases: L,
    ends: Ends,
    /// Limits in force, by numbers that are never used again.
    held: BTreeMap<u64, Held>,
    next: u64,
    /// Limits that were given up, until their last report, and when that is due.
    leaving: Vec<(u64, Held)>,
    /// Limits that begin when their leases are free.
    waiting: Vec<Shared>,
    /// Keys of rules.
    hot: Hot,
    /// Time of the store's clock from which on hot keys are asked for, by shard; and when to ask.
    cursors: Vec<u64>,
    next_list: u64,
    calls: JoinSet<Outcome>,
    contact: Calls,
    roster: Roster,
    feed: Feed,
    is_meeting: bool,
    next_ask: u64,
    next_beat: u64,
    next_status: u64,
    dropped: u64,
    /// Microseconds by which the store's clock is ahead of that of the leases, when a call for the
    /// shard was answered last: each server has its own.
    store_ahead: BTreeMap<u16, i64>,
    servers: Servers,
}

impl<S: Store + 'static, L: Leases> Loop<S, L> {
    pub(super) fn new(settings: NodeSettings, store: Arc<S>, leases: L, ends: Ends) -> Self {
        let instance = random::number();
        let roster = Roster::new(settings.name.clone(), instance, settings.nodes.into());
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
            cursors: Vec::new(),
            next_list: 0,
            calls: JoinSet::new(),
            contact: Calls::new(),
            roster,
            feed: Feed::new(instance),
            is_meeting: false,
            next_ask: 0,
            next_beat: 0,
            next_status: 0,
            store_ahead: BTreeMap::new(),
            servers: Servers::default(),
            dropped: 0,
        }
    }

    /// Runs until it is stopped.
    pub(super) async fn run(mut self) {
        self.leases.forget_keys();
        let mut next = TokioInstant::now();
        loop {
            let takes = self.feed.has_room();
            tokio::select! {
                biased;
                _ = &mut self.ends.stop => break,
                () = sleep_until(next) => {
                    self.tick();
                    // Ticks that were missed are not made up for.
                    next = (next + self.period()).max(TokioInstant::now());
                }
                Some(outcome) = self.calls.join_next() => self.ended(outcome),
                Ok(()) = self.ends.rules.changed() => self.set_rules(),
                Some(change) = self.ends.changes.recv(), if takes => {
                    self.feed.publish(self.leases.now(), change);
                    self.meet();
                }
            }
        }
        self.leave().await;
    }

    /// Shortest sync period of the limits in force, in microseconds.
    fn sync(&self) -> Option<u64> {
        self.held.values().map(Held::sync).chain(self.hot.sync()).min()
    }

    /// Time between two ticks, a little uneven: nodes that began together do not stay together.
    fn period(&self) -> Duration {
        let longest = self.sync().map_or(TICK_MOST, |sync| sync / 8);
        let period = longest.clamp(SYNC_MIN / 8, TICK_MOST);
        Duration::from_micros(period - random::number() % (period / 16).max(1))
    }

    fn tick(&mut self) {
        let now = self.leases.now();
        self.finish(now);
        let limit = u64::try_from(self.settings.timeout.as_micros()).unwrap_or(u64::MAX);
        self.keys(now);
        let mut batches = Batches::default();
        for (number, held) in &mut self.held {
            if let Some((sequence, request)) = held.tick(now, limit, &mut self.leases) {
                batches.add(held, Some((*number, sequence)), request);
            }
        }
        self.list(now, &mut batches);
        self.call(batches);
        self.meet();
        if let Some(notice) = self.contact.tick() {
            self.tell(notice);
            self.next_status = now;
        }
        if now >= self.next_status {
            self.next_status = now + STATUS;
            let servers = self.store.servers();
            for notice in self.servers.look(&servers) {
                self.tell(notice);
            }
            self.show(now, servers);
        }
    }

    /// Gives leases to keys that ask, and takes those of keys away that need none.
    fn keys(&mut self, now: u64) {
        if !self.hot.has_rules() {
            return;
        }
        for ask in self.leases.take_asks() {
            let Some(promoted) = self.hot.ask(&ask, now, &mut self.leases) else {
                continue;
            };
            let mut numbers = Vec::with_capacity(promoted.limits.len());
            for shared in &promoted.limits {
                let held = Held::new(shared, self.settings.shards, &mut self.leases);
                self.held.insert(self.next, held);
                numbers.push(self.next);
                self.next += 1;
            }
            self.hot.begun(&promoted.key, numbers, &mut self.leases);
        }
        let held = &self.held;
        let is_idle = |number| held.get(&number).is_none_or(|held| held.is_idle(now));
        let ended = self.hot.end_idle(is_idle, &mut self.leases);
        self.end(&ended);
    }

    /// Ends limits of keys.
    fn end(&mut self, ended: &Ended) {
        let due = self.leases.now() + GRACE;
        for number in ended {
            if let Some(mut held) = self.held.remove(number) {
                held.end(&mut self.leases);
                self.leaving.push((due, held));
            }
        }
    }

    /// Asks for the keys that other nodes have leases of, once in a sync period.
    fn list(&mut self, now: u64, batches: &mut Batches) {
        let Some(sync) = self.hot.sync() else { return };
        if now < self.next_list {
            return;
        }
        self.next_list = now + sync;
        self.hot.forget(now, &mut self.leases);
        self.cursors.resize(usize::from(self.settings.shards), 0);
        for (shard, cursor) in (0..).zip(&self.cursors) {
            batches.keys.entry(shard).or_default();
            batches.lists.insert(shard, *cursor);
        }
    }

    /// Takes over the hot keys of a shard, which the store told at `at` of its clock.
    fn listed(&mut self, shard: u16, at: u64, hot: &[HotKey]) {
        let now = self.leases.now();
        for key in hot {
            self.hot.heard(key, now, &mut self.leases);
        }
        let Some(cursor) = self.cursors.get_mut(usize::from(shard)) else { return };
        if at < *cursor {
            // The clock was set back, or the shard is on another server: the list is read anew.
            *cursor = 0;
        } else if let Some(last) = hot.last() {
            // Those of the last one's time are told again: there may be more.
            *cursor = last.at.min(at);
        }
    }

    /// Makes the calls of a tick.
    fn call(&mut self, batches: Batches) {
        let is_ready = self.store.is_ready();
        let Batches { leases, keys, mut lists, windows } = batches;
        let kinds = leases.into_iter().map(|batch| (false, batch));
        for (by_key, (shard, (asked, asks))) in
            kinds.chain(keys.into_iter().map(|batch| (true, batch)))
        {
            let mut asked = asked.into_iter();
            // One without keys asks for the list alone.
            let empty = asks.is_empty().then_some(&asks[..]);
            for asks in asks.chunks(KEYS_MAX).chain(empty) {
                let asked: Asked = asked.by_ref().take(asks.len()).collect();
                if !is_ready {
                    self.not_made(&asked);
                    continue;
                }
                let list = if by_key { lists.remove(&shard) } else { None };
                let hot_since = by_key.then(|| list.unwrap_or(u64::MAX));
                let deadline = self.deadline(shard);
                let batch = Batch { shard, hot_since, deadline, asks: asks.to_vec() };
                let store = Arc::clone(&self.store);
                self.calls.spawn_local(async move {
                    let begin = Instant::now();
                    let result = store.exchange(&batch).await;
                    Outcome::Leases { shard, asked, result, took: begin.elapsed() }
                });
            }
        }
        for (shard, (asked, asks)) in windows {
            let mut asked = asked.into_iter();
            for asks in asks.chunks(KEYS_MAX) {
                let asked: Asked = asked.by_ref().take(asks.len()).collect();
                if !is_ready {
                    self.not_made(&asked);
                    continue;
                }
                let deadline = self.deadline(shard);
                let batch = WindowBatch { shard, deadline, asks: asks.to_vec() };
                let store = Arc::clone(&self.store);
                self.calls.spawn_local(async move {
                    let begin = Instant::now();
                    let result = store.windows(&batch).await;
                    Outcome::Leases { shard, asked, result, took: begin.elapsed() }
                });
            }
        }
    }

    /// Time of the store's clock until which a call for a shard that is made now is waited for.
    fn deadline(&self, shard: u16) -> Option<u64> {
        let ahead = *self.store_ahead.get(&shard)?;
        let now = i64::try_from(self.leases.now()).ok()?.checked_add(ahead)?;
        let wait = u64::try_from(self.settings.timeout.as_micros()).ok()?;
        u64::try_from(now).ok()?.checked_add(wait)
    }

    fn not_made(&mut self, asked: &Asked) {
        let now = self.leases.now();
        for (number, sequence) in asked {
            if let Some(held) = self.held.get_mut(number) {
                held.failed(now, *sequence);
            }
        }
    }

    /// Microseconds by which the store's clock, which read `clock` a moment ago, is ahead of that of
    /// the leases; a little less, by the way of the answer.
    fn ahead(&self, clock: u64) -> Option<i64> {
        let here = i64::try_from(self.leases.now()).ok()?;
        i64::try_from(clock).ok()?.checked_sub(here)
    }

    /// A call came to its end.
    fn ended(&mut self, outcome: Result<Outcome, JoinError>) {
        match outcome {
            Ok(Outcome::Leases { shard, asked, result: Ok(answers), took }) => {
                if let Some(ahead) = self.ahead(answers.now) {
                    self.store_ahead.insert(shard, ahead);
                }
                self.listed(shard, answers.now, &answers.hot);
                self.answered(&asked, &answers.answers, took);
            }
            Ok(Outcome::Leases { asked, result: Err(error), .. }) => {
                self.failed(Kind::Limits, &error);
                self.not_made(&asked);
            }
            Ok(Outcome::Met { kind, result: Ok(met), took }) => self.met(kind, &met, took),
            Ok(Outcome::Met { kind, result: Err(error), .. }) => {
                self.is_meeting = false;
                self.feed.failed();
                self.failed(kind, &error);
                if kind == Kind::Beat {
                    self.next_beat = 0;
                }
            }
            // No call is cancelled, so it was a panic: nothing is known of it.
            Err(error) => {
                self.is_meeting = false;
                self.feed.failed();
                self.contact.failed(Kind::Beat, error.to_string());
            }
        }
    }

    fn failed(&mut self, kind: Kind, error: &StoreError) {
        // The error of another call is why.
        if !matches!(error, StoreError::Waits(_)) {
            self.contact.failed(kind, error.to_string());
        }
    }

    fn answered(&mut self, asked: &Asked, answers: &[Result<Answer, Foreign>], took: Duration) {
        self.in_contact(Kind::Limits, took);
        for ((number, sequence), answer) in asked.iter().zip(answers) {
            let Some(held) = self.held.get_mut(number) else { continue };
            match answer {
                Ok(answer) => held.answered(*sequence, answer, &mut self.leases),
                Err(_) => held.failed(self.leases.now(), *sequence),
            }
            if let Some(notice) = self.contact.asked(*number, answer.as_ref().err()) {
                self.tell(notice);
            }
        }
    }

    fn in_contact(&mut self, kind: Kind, took: Duration) {
        if let Some(notice) = self.contact.answered(kind, took) {
            self.tell(notice);
            self.next_status = 0;
        }
    }

    /// Asks for news, and says that this node is there, if it is time for that.
    fn meet(&mut self) {
        let now = self.leases.now();
        let has_news = self.feed.waiting() > 0;
        if self.is_meeting || !(has_news || now >= self.next_ask) || !self.store.is_ready() {
            return;
        }
        let beats = now >= self.next_beat;
        if beats {
            self.next_beat = now + BEAT;
        }
        let period = self.sync().unwrap_or(ASK_MOST).clamp(ASK_LEAST, ASK_MOST);
        self.next_ask = now + period - random::number() % (period / 8);
        let (kind, presence) = if beats {
            (Kind::Beat, Presence::Beat(self.roster.beat().clone()))
        } else {
            (Kind::Question, Presence::Stay)
        };
        self.is_meeting = true;
        let meeting = Meeting {
            instance: self.roster.instance(),
            presence,
            known: self.feed.known(),
            changes: self.feed.send(now),
        };
        let store = Arc::clone(&self.store);
        self.calls.spawn_local(async move {
            let begin = Instant::now();
            let result = store.meet(&meeting).await;
            Outcome::Met { kind, result, took: begin.elapsed() }
        });
    }

    fn met(&mut self, kind: Kind, met: &Met, took: Duration) {
        self.is_meeting = false;
        self.in_contact(kind, took);
        self.contact.clock(met.now, took);
        // Nobody is told but to a heartbeat: this node at least.
        if !met.nodes.is_empty() {
            for notice in self.roster.heard(met.now, &met.nodes) {
                self.tell(notice);
            }
        }
        // Changes wait in the store until there is room for all of them, and for other notices.
        let room =
            self.ends.notices.capacity().saturating_sub(self.ends.notices.max_capacity() / 4);
        let news = self.feed.met(met, room);
        if let Some(missed) = news.missed {
            self.tell(missed);
        }
        for change in news.changes {
            self.tell(Notice::Change(change));
        }
        if news.more {
            self.next_ask = 0;
        }
    }

    /// Tells the daemon, if it listens.
    fn tell(&mut self, notice: Notice) {
        if self.ends.notices.try_send(notice).is_err() {
            self.dropped += 1;
        }
    }

    /// Takes over new rules.
    fn set_rules(&mut self) {
        let rules = self.ends.rules.borrow_and_update().clone();
        self.roster.set_digest(rules.digest);
        self.next_beat = 0;
        let ended = self.hot.set_rules(rules.shared.rules, &mut self.leases);
        // Keys of other nodes are marked anew.
        self.cursors.clear();
        self.end(&ended);
        let by_key = self.held.extract_if(.., |_, held| held.is_by_key()).collect::<Vec<_>>();
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
                    held.set_terms(&shared.terms);
                    self.held.insert(number, held);
                }
                None => self.waiting.push(shared),
            }
        }
        let due = self.leases.now() + GRACE;
        for (_, mut held) in old {
            held.end(&mut self.leases);
            self.leaving.push((due, held));
        }
        self.begin();
        let is_empty = self.held.is_empty() && self.waiting.is_empty() && !self.hot.has_rules();
        if let Some(notice) = is_empty.then(|| self.contact.no_limits()).flatten() {
            self.tell(notice);
        }
        self.tick();
    }

    /// Begins limits whose leases are free.
    fn begin(&mut self) {
        for shared in std::mem::take(&mut self.waiting) {
            if self.leaving.iter().any(|(_, held)| held.lease() == shared.lease) {
                self.waiting.push(shared);
                continue;
            }
            let held = Held::new(&shared, self.settings.shards, &mut self.leases);
            self.held.insert(self.next, held);
            self.next += 1;
        }
    }

    /// Gives back what was held by limits that are no more, once.
    fn finish(&mut self, now: u64) {
        if self.leaving.iter().all(|(due, _)| now < *due) {
            return;
        }
        let mut batches = Batches::default();
        for (_, mut held) in self.leaving.extract_if(.., |(due, _)| now >= *due) {
            if let Some(request) = held.farewell(&self.leases) {
                batches.add(&held, None, request);
            }
        }
        self.call(batches);
        self.hot.free();
        self.begin();
    }

    /// Ends all leases, and gives back what was held, as far as the store answers in time.
    async fn leave(mut self) {
        let answers = async {
            while let Some(outcome) = self.calls.join_next().await {
                self.ended(outcome);
            }
        };
        let _late = timeout(ANSWERS, answers).await;
        self.hot.end(&mut self.leases);
        let due = self.leases.now();
        for (_, mut held) in std::mem::take(&mut self.held) {
            held.end(&mut self.leases);
            self.leaving.push((due, held));
        }
        sleep(Duration::from_micros(GRACE)).await;
        self.waiting.clear();
        self.finish(u64::MAX);
        let meeting = Meeting {
            instance: self.roster.instance(),
            presence: Presence::Leave,
            known: self.feed.known(),
            changes: self.feed.send(self.leases.now()),
        };
        let store = Arc::clone(&self.store);
        self.calls.spawn_local(async move {
            let begin = Instant::now();
            let result = store.meet(&meeting).await;
            Outcome::Met { kind: Kind::Question, result, took: begin.elapsed() }
        });
        let all = async { while self.calls.join_next().await.is_some() {} };
        // Units that cannot be given back end by themselves.
        let _late = timeout(LAST, all).await;
    }

    /// Shows the state of the node.
    fn show(&self, now: u64, servers: Vec<ServerStatus>) {
        let mut status = Status::new(&self.settings);
        status.servers = servers;
        self.contact.fill(&mut status);
        let budgets = self.held.values().filter(|held| !held.is_by_key());
        status.leases = budgets.map(|held| held.status(now)).collect();
        status.keys = self.hot.len();
        status.keys_refused = self.hot.refused();
        status.leases.sort_by(|a, b| (&a.name, a.lease).cmp(&(&b.name, b.lease)));
        status.without_contact = status.leases.iter().filter(|lease| !lease.in_contact).count();
        status.nodes = self.roster.nodes().to_vec();
        status.count = self.roster.count();
        status.waiting_changes = self.feed.waiting();
        status.unknown_changes = self.feed.unknown();
        status.dropped_notices = self.dropped;
        *self.ends.status.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(status);
    }
}

impl Batches {
    /// Adds a request; without numbers nobody waits for its answer.
    fn add(&mut self, held: &Held, numbers: Option<(u64, u64)>, request: Request) {
        let numbers = numbers.unwrap_or((u64::MAX, 0));
        let shard = held.shard();
        match request {
            Request::Lease(ask) => {
                let batches = if held.is_by_key() { &mut self.keys } else { &mut self.leases };
                let (asked, asks) = batches.entry(shard).or_default();
                asked.push(numbers);
                asks.push(ask);
            }
            Request::Window(ask) => {
                let (asked, asks) = self.windows.entry(shard).or_default();
                asked.push(numbers);
                asks.push(ask);
            }
        }
    }
}

impl Status {
    /// State of a node that has not begun.
    pub(super) fn new(settings: &NodeSettings) -> Self {
        Self {
            name: settings.name.clone(),
            contact: Contact::Starting,
            last_error: None,
            calls: 0,
            failed: 0,
            round_trip: None,
            worst_round_trip: None,
            clock_ahead: None,
            servers: Vec::new(),
            leases: Vec::new(),
            without_contact: 0,
            nodes: Vec::new(),
            count: settings.nodes.into(),
            waiting_changes: 0,
            unknown_changes: 0,
            dropped_notices: 0,
            keys: 0,
            keys_refused: 0,
        }
    }
}
