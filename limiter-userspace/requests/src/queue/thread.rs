//! Queues of rules: a thread that asks the store for requests, and lets payloads leave for the
//! workers. The script `queue.lua` of `limiter-cluster` decides; docs/queue.md says what holds.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use limiter_cluster::QueueStore;
use limiter_cluster::node::StartError;
use limiter_cluster::queue::{Payload, QueueAnswer, QueueAsk, Room, Turn, Turned};
use limiter_cluster::redis::RedisSettings;
use limiter_cluster::store::StoreError;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::buckets::key::{Secret, hex};
use crate::queue::rule::{InForce, PayloadIn, RuleQueue};
use crate::queue::watch::{Troubles, Watch};
use crate::reports::counters::Unanswered;

/// Requests on their way to the thread.
const CALLS: usize = 4096;

/// Payloads that leave in one turn of the mover.
const MOST: u32 = 200;

/// Pauses of a mover: where nothing waits, where another one is at work, where workers do not read
/// or the store does not answer, and at least and at most where something waits.
const IDLE: Duration = Duration::from_millis(50);
const STANDBY: Duration = Duration::from_millis(500);
const TROUBLE: Duration = Duration::from_millis(200);
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(10);

/// A request on its way to the store.
struct Call {
    queue: Arc<InForce>,
    rule: RuleQueue,
    bucket: String,
    hits: u64,
    /// The payload, its id, and whether that is the caller's.
    payload: Option<(String, String, bool)>,
    answer: oneshot::Sender<Result<QueueAnswer, StoreError>>,
}

/// The thread, if there is a store.
#[derive(Debug)]
struct Handle {
    calls: mpsc::Sender<Call>,
    queues: watch::Sender<Vec<Arc<InForce>>>,
    stop: Arc<Notify>,
}

#[derive(Debug, Default)]
pub(crate) struct Queues {
    handle: OnceLock<Handle>,
    /// Queues that stand still, and why.
    cut_off: Arc<Mutex<BTreeMap<Box<str>, CutOff>>>,
    /// Other problems, by queue.
    troubles: Arc<Mutex<BTreeMap<Box<str>, Troubles>>>,
}

#[derive(Debug)]
struct CutOff {
    /// True if the store was reached.
    answered: bool,
    words: String,
}

impl CutOff {
    fn of(name: &str, error: &StoreError) -> Self {
        let words = format!("the queue {name} stands still: {error}");
        Self { answered: error.is_answer(), words }
    }
}

impl Queues {
    /// Starts the thread. Nothing is connected before there is a queue.
    pub(crate) fn start(
        &self,
        settings: RedisSettings,
    ) -> Result<JoinHandle<io::Result<()>>, StartError> {
        let store = QueueStore::new(settings)?;
        let (calls, calls_in) = mpsc::channel(CALLS);
        let (queues, queues_in) = watch::channel(Vec::new());
        let stop = Arc::new(Notify::new());
        let mover = hex(&Secret::new()?.bytes());
        let (stopped, cut_off) = (Arc::clone(&stop), Arc::clone(&self.cut_off));
        let troubles = Arc::clone(&self.troubles);
        let run = move || -> io::Result<()> {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
            let queues = queues_in;
            let thread = Thread { store, mover, queues, cut_off, troubles, heard: Cell::new(0) };
            LocalSet::new().block_on(&runtime, Rc::new(thread).run(calls_in, &stopped));
            Ok(())
        };
        let thread = thread::Builder::new().name("requests-queues".to_owned()).spawn(run)?;
        // It is started once.
        let _first = self.handle.set(Handle { calls, queues, stop });
        Ok(thread)
    }

    /// Ends the thread. What waits stays in the store, and other nodes go on with it.
    pub(crate) fn stop(&self) {
        if let Some(handle) = self.handle.get() {
            handle.stop.notify_one();
        }
    }

    /// Takes over the queues of the rules in force.
    pub(crate) fn set(&self, queues: Vec<Arc<InForce>>) {
        let Some(handle) = self.handle.get() else { return };
        let names: HashSet<&str> = queues.iter().map(|queue| &*queue.settings.name).collect();
        for before in handle.queues.borrow().iter() {
            let name = &*before.settings.name;
            if names.contains(name) {
                continue;
            }
            lock(&self.cut_off).remove(name);
            lock(&self.troubles).remove(name);
            let Turned { waiting, ready, .. } = before.counters.turned();
            if waiting > 0 || ready > 0 {
                tracing::warn!(
                    "no rule file has the queue {name} any more: {waiting} payloads that wait in \
                     it and {ready} in the stream of its workers stay in Redis; put it back into a \
                     file to let them leave, and come back from workers that die"
                );
            }
        }
        handle.queues.send_replace(queues);
    }

    /// Why a queue stands still; none if none does.
    pub(crate) fn cut_off(&self) -> Option<String> {
        lock(&self.cut_off).values().map(|cut_off| cut_off.words.clone()).next()
    }

    pub(crate) fn troubles(&self) -> Vec<String> {
        let troubles = lock(&self.troubles);
        let all = troubles.values().flat_map(BTreeMap::values);
        all.map(|(words, _)| words.clone()).collect()
    }

    /// Asks the store for a request.
    pub(crate) async fn ask(
        &self,
        rule: &RuleQueue,
        bucket: String,
        hits: u64,
        payload: Option<(PayloadIn<'_>, &str)>,
    ) -> Result<QueueAnswer, Unanswered> {
        let Some(handle) = self.handle.get() else { return Err(Unanswered::NoContact) };
        let payload = payload.map(|(of, id)| (of.text.to_owned(), id.to_owned(), of.id.is_some()));
        let (sender, answer) = oneshot::channel();
        let queue = Arc::clone(&rule.queue);
        let call = Call { queue, rule: rule.clone(), bucket, hits, payload, answer: sender };
        handle.calls.try_send(call).map_err(|_full| Unanswered::Overload)?;
        match answer.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(StoreError::Late(_))) => Err(Unanswered::Late),
            Ok(Err(_)) | Err(_) => Err(Unanswered::NoContact),
        }
    }
}

struct Thread {
    store: QueueStore,
    mover: String,
    queues: watch::Receiver<Vec<Arc<InForce>>>,
    cut_off: Arc<Mutex<BTreeMap<Box<str>, CutOff>>>,
    troubles: Arc<Mutex<BTreeMap<Box<str>, Troubles>>>,
    /// Answers to turns so far.
    heard: Cell<u64>,
}

impl Thread {
    async fn run(self: Rc<Self>, mut calls: mpsc::Receiver<Call>, stop: &Notify) {
        let mut queues = self.queues.clone();
        let mut movers = BTreeMap::new();
        loop {
            let in_force: Vec<_> = queues.borrow_and_update().clone();
            for queue in in_force {
                let name = queue.settings.name.clone();
                movers.retain(|_, task: &mut tokio::task::JoinHandle<()>| !task.is_finished());
                movers.entry(name.clone()).or_insert_with(|| {
                    tokio::task::spawn_local(Rc::clone(&self).keep_moving(name))
                });
            }
            loop {
                tokio::select! {
                    () = stop.notified() => return,
                    changed = queues.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    call = calls.recv() => match call {
                        Some(call) => drop(tokio::task::spawn_local(Rc::clone(&self).answer(call))),
                        None => return,
                    },
                }
            }
        }
    }

    async fn answer(self: Rc<Self>, call: Call) {
        let Call { queue, rule, bucket, hits, payload, answer } = call;
        let ask = QueueAsk {
            bucket: &bucket,
            hits,
            limits: &rule.limits,
            depth: queue.settings.depth,
            age: queue.settings.age,
            payload: payload.as_ref().map(|(text, id, is_callers)| Payload {
                id,
                is_callers: *is_callers,
                text,
            }),
        };
        let answered = self.store.ask(&queue.settings.name, &ask).await;
        // Nobody hears it after the deadline.
        let _late = answer.send(answered);
    }

    /// The queue of this name, as long as it is in force.
    fn in_force(&self, name: &str) -> Option<Arc<InForce>> {
        self.queues.borrow().iter().find(|queue| &*queue.settings.name == name).cloned()
    }

    /// Lets payloads leave a queue, as long as it is in force.
    async fn keep_moving(self: Rc<Self>, name: Box<str>) {
        let mut unread = false;
        let mut watch = Watch::new(&name);
        let mut heard = self.number();
        while let Some(queue) = self.in_force(&name) {
            let settings = &queue.settings;
            let turn = Turn {
                mover: &self.mover,
                most: MOST,
                age: settings.age,
                visibility: settings.visibility,
                attempts: settings.attempts,
                dead: settings.depth,
                heard,
                refused: watch.refused(),
                rules: &queue.rules,
            };
            let pause = match self.store.turn(&name, &turn).await {
                Ok(mut turned) => {
                    heard = self.number();
                    {
                        let mut all = lock(&self.troubles);
                        let troubles = all.entry(name.clone()).or_default();
                        watch.look(&mut turned, settings.visibility, troubles);
                    }
                    queue.counters.turn(&turned);
                    self.in_contact(&name, None);
                    if turned.is_mover && turned.unread != unread {
                        unread = turned.unread;
                        log_unread(&name, unread);
                    }
                    pause(&queue, &turned)
                }
                Err(error) => {
                    // The error of another call is why.
                    if !matches!(error, StoreError::Waits(_)) {
                        self.in_contact(&name, Some(&error));
                    }
                    TROUBLE
                }
            };
            sleep(pause).await;
        }
    }

    /// A number that no turn of this process had before.
    fn number(&self) -> u64 {
        self.heard.update(|number| number + 1);
        self.heard.get()
    }

    /// Notes whether a queue stands still, for an error of the store.
    fn in_contact(&self, name: &str, error: Option<&StoreError>) {
        let mut cut_off = lock(&self.cut_off);
        let Some(error) = error else {
            if cut_off.remove(name).is_some() {
                tracing::info!("the queue {name} goes on");
            }
            return;
        };
        let now = CutOff::of(name, error);
        if cut_off.get(name).is_none_or(|before| before.answered != now.answered) {
            tracing::warn!(
                "{}; nothing leaves it, and what would have to wait is refused",
                now.words
            );
        }
        cut_off.insert(name.into(), now);
    }
}

fn log_unread(name: &str, unread: bool) {
    if unread {
        tracing::warn!(
            "the workers of the queue {name} read nothing: nothing more leaves it until they do"
        );
    } else {
        tracing::info!("the workers of the queue {name} read again");
    }
}

/// The pause before the next turn.
fn pause(queue: &InForce, turned: &Turned) -> Duration {
    if !turned.is_mover {
        return STANDBY;
    }
    if turned.unread {
        return TROUBLE;
    }
    if turned.moved.left >= u64::from(MOST) {
        return Duration::ZERO;
    }
    let Some(next) = turned.next else { return IDLE };
    // So short that no bucket runs full meanwhile, and no shorter.
    let limits = queue.rules.iter().flat_map(|(_, limits)| limits);
    let rooms = limits.map(|limit| match limit.room {
        Room::Burst(burst) => limit.rate.micros_of(burst) / 4,
        Room::Backlog(backlog) => backlog / 4,
    });
    let room = rooms.min().map_or(LONGEST, Duration::from_micros).clamp(SHORTEST, LONGEST);
    Duration::from_micros(next.saturating_sub(turned.now)).clamp(room, IDLE)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that refuses is not said to be out of reach, and one without memory gets the remedy.
    #[test]
    fn a_queue_whose_store_refuses_is_not_said_to_have_no_contact() {
        let words = |error| CutOff::of("emails", &error).words;
        let oom = "OOM command not allowed when used memory > 'maxmemory'.";
        let refused = words(StoreError::Refused(oom.to_owned()));
        let wanted = format!(
            "the queue emails stands still: the store refuses: {oom}: raise its maxmemory, or \
             remove something else from it"
        );
        assert_eq!(refused, wanted);
        let lost = words(StoreError::Lost("Connection refused".to_owned()));
        let wanted = "the queue emails stands still: no contact to the store: Connection refused";
        assert_eq!(lost, wanted);
    }
}
