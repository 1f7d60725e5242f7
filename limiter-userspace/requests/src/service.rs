//! What all threads share: the limiter, the rule files, and counters of the server.

use std::io::{Read, Seek};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use limiter_cluster::keeping::Kept;
use limiter_cluster::queue::QueueAnswer;
use limiter_rules::RuleFileError;
use limiter_rules::file::Problem;
use limiter_rules::file::requests::RequestFile;
use rustix::io::Errno;
use tokio::time::{Instant, timeout_at};

use crate::buckets::snapshot::{Loaded, Snapshot};
use crate::buckets::state::StateDirectory;
use crate::clock::{self, Moment};
use crate::decide::question::{Answer, Asked, Detail, Refused};
use crate::decide::request::{Attempt, Request};
use crate::doors::lateness::Lateness;
use crate::doors::under_way::{MEMORY, Memory};
use crate::limiter::Limiter;
use crate::queue::decide::QueueCall;
use crate::queue::rule::{NotQueued, PayloadIn};
use crate::queue::thread::Queues;
use crate::quota::Quotas;
use crate::reports::counters::Unanswered;
use crate::reports::unmet::Tally;
use crate::rules::Rules;
use crate::rules::files::{self, OnDisk};
use crate::shared::node::Node;
use crate::shared::rule::Patience;

/// Why a request was refused undecided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    Request,
    Path,
    Method,
    TooLong,
    TooSlow,
}

const WHYS: [(Why, &str); 5] = [
    (Why::Request, "request"),
    (Why::Path, "path"),
    (Why::Method, "method"),
    (Why::TooLong, "too_long"),
    (Why::TooSlow, "too_slow"),
];

#[derive(Debug, Default)]
pub(crate) struct Stats {
    refused: [AtomicU64; WHYS.len()],
    /// Checks, and those that were refused undecided.
    pub(crate) checks: Tally,
    /// Checks, and those of which no descriptor could be made.
    pub(crate) empty_checks: Tally,
    /// Checks that were to wait, and cannot.
    pub(crate) no_waits: Tally,
    pub(crate) connections: AtomicUsize,
    pub(crate) evicted: AtomicU64,
    /// Connections that were ended because requests held too much memory.
    pub(crate) crowded: AtomicU64,
    reloads: [AtomicU64; 2],
    saves: [AtomicU64; 2],
}

impl Stats {
    pub(crate) fn refuse(&self, why: Why) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |why: Why| self.refused[why as usize].load(Ordering::Relaxed);
        WHYS.into_iter().map(move |(why, name)| (name, count(why)))
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that were ended for newer ones, and for the memory of their requests.
    pub(crate) fn evicted(&self) -> [u64; 2] {
        [&self.evicted, &self.crowded].map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn reload(&self, good: bool) {
        self.reloads[usize::from(!good)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn saves(&self) -> [u64; 2] {
        std::array::from_fn(|index| self.saves[index].load(Ordering::Relaxed))
    }

    pub(crate) fn reloads(&self) -> [u64; 2] {
        std::array::from_fn(|index| self.reloads[index].load(Ordering::Relaxed))
    }
}

/// Requests that wait for the store: a bounded number of them, each for a bounded time.
#[derive(Debug)]
pub(crate) struct Waiting {
    deadline: Duration,
    most: usize,
    now: AtomicUsize,
}

/// A place among those that wait.
pub(crate) struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waiting {
    pub(crate) fn new(deadline: Duration, most: usize) -> Self {
        Self { deadline, most, now: AtomicUsize::new(0) }
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// Takes a place; none if all are taken.
    pub(crate) fn enter(&self) -> Option<Place<'_>> {
        let place = Place(&self.now);
        (self.now.fetch_add(1, Ordering::Relaxed) < self.most).then_some(place)
    }
}

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) limiter: Limiter,
    pub(crate) stats: Stats,
    pub(crate) patience: Waiting,
    pub(crate) node: Node,
    pub(crate) quotas: Quotas,
    /// Answers that are held back: never so many that others find no connection.
    pub(crate) held_back: Waiting,
    pub(crate) queues: Queues,
    pub(crate) lateness: Lateness,
    /// Memory of the requests under way, by thread.
    pub(crate) memory: Box<[Arc<Memory>]>,
    files: Mutex<Arc<[(String, RequestFile)]>>,
    /// What is written in them.
    written: Mutex<Vec<(String, u64)>>,
    pub(crate) on_disk: Mutex<OnDisk>,
}

impl Service {
    pub(crate) fn new(
        limiter: Limiter,
        patience: Waiting,
        held_back: Waiting,
        threads: usize,
    ) -> Self {
        Self {
            limiter,
            stats: Stats::default(),
            patience,
            node: Node::default(),
            quotas: Quotas::default(),
            held_back,
            queues: Queues::default(),
            lateness: Lateness::new(threads),
            memory: (0..threads).map(|_| Memory::new(MEMORY)).collect(),
            files: Mutex::default(),
            written: Mutex::default(),
            on_disk: Mutex::default(),
        }
    }

    /// Decides a request, which waits for the store if it must, and not beyond the deadline.
    pub(crate) async fn decide(
        &self,
        rules: &Rules,
        asked: &Asked<'_>,
        payload: Option<PayloadIn<'_>>,
    ) -> Result<Answer, Refused> {
        let mut request = self.settled(rules, asked).await?;
        let kept = match request.queue_call(payload)? {
            Some(call) => {
                let answered = self.ask_queue(&call, payload).await;
                request.queue_answered(call, &answered, payload.is_some())
            }
            None => None,
        };
        let answer = request.answer(Detail::Left);
        answer.count_met(rules, asked);
        Ok(Answer { kept, ..answer })
    }

    /// Asks a queue for a request, not beyond the deadline.
    async fn ask_queue(
        &self,
        call: &QueueCall,
        payload: Option<PayloadIn<'_>>,
    ) -> Result<QueueAnswer, NotQueued> {
        let QueueCall { rule, bucket, hits, id } = call;
        if *hits > rule.most_hits() {
            return Err(NotQueued::Never);
        }
        let Some(_place) = self.patience.enter() else {
            return Err(NotQueued::NoAnswer(Unanswered::Overload));
        };
        let payload = payload.map(|payload| (payload, &**id));
        let asked = self.queues.ask(rule, bucket.clone(), *hits, payload);
        match timeout_at(Instant::now() + self.patience.deadline, asked).await {
            Ok(answered) => answered.map_err(NotQueued::NoAnswer),
            Err(_) => Err(NotQueued::NoAnswer(Unanswered::Late)),
        }
    }

    /// Decides a request by all limits but that of a queue, as [`Service::decide`] does.
    async fn settled<'a>(
        &'a self,
        rules: &Rules,
        asked: &'a Asked<'a>,
    ) -> Result<Request<'a>, Refused> {
        let attempt = |patience| self.limiter.attempt(rules, asked, &Moment::now(), patience);
        let attempted = attempt(Patience::Begins);
        if !matches!(attempted, Attempt::Waits(_)) {
            return attempted.settled();
        }
        let give_up = |why| attempt(Patience::None(why)).settled();
        let (Some(shares), Some(_place)) = (&self.limiter.cluster, self.patience.enter()) else {
            return give_up(Unanswered::Overload);
        };
        let deadline = Instant::now() + self.patience.deadline;
        loop {
            let mut changed = pin!(shares.leases.changed().notified());
            // What changes from here on is not missed.
            changed.as_mut().enable();
            let attempted = attempt(Patience::Waits);
            if !matches!(attempted, Attempt::Waits(_)) {
                return attempted.settled();
            }
            if timeout_at(deadline, changed).await.is_err() {
                return give_up(Unanswered::Late);
            }
        }
    }

    /// Gives the threads that ask the store the rules in force.
    pub(crate) fn take_over(&self, rules: &Rules) {
        self.node.set_rules(rules);
        self.queues.set(rules.queues().to_vec());
    }

    /// What the store keeps for this process.
    pub(crate) fn kept(&self) -> Kept {
        let rules = self.limiter.rules();
        Kept { limits: rules.shared().next().is_some(), queues: !rules.queues().is_empty() }
    }

    /// What is wrong with how the store keeps it.
    pub(crate) fn wrongly_kept(&self) -> Vec<String> {
        let status = self.node.status();
        let servers = status.iter().flat_map(|status| &status.servers);
        servers.flat_map(|server| server.wrong(self.kept())).collect()
    }

    /// Takes over another number of nodes.
    pub(crate) fn set_nodes(&self, nodes: u64) {
        let Some(shares) = &self.limiter.cluster else { return };
        shares.nodes.store(nodes, Ordering::Relaxed);
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match self.limiter.apply(&files, &Moment::now()) {
            Ok(rules) => self.take_over(&rules),
            // No error depends on the number of nodes.
            Err(error) => tracing::error!("the shares of {nodes} nodes are not in force: {error}"),
        }
    }

    /// Goes on with the buckets of a snapshot.
    pub(crate) fn go_on<R: Read + Seek>(&self, state: &StateDirectory, snapshot: Snapshot<R>) {
        let clock = clock::boot();
        let Loaded { keys, no_room, same_clock } =
            match self.limiter.load(snapshot, &Moment::now(), clock.as_deref()) {
                Ok(loaded) => loaded,
                // It was whole a moment ago.
                Err(why) => return state.set_aside(&why, "buckets behind that begin full"),
            };
        let since = if same_clock {
            "as they were"
        } else {
            "with the time since this boot, for they are of another one"
        };
        tracing::info!("keys that go on {since}: {keys}");
        if no_room > 0 {
            tracing::warn!(
                "keys that found no room and begin full: {no_room}; give a larger --max-keys"
            );
        }
    }

    /// Keeps the buckets; true if that is done.
    pub(crate) fn save(&self, state: &StateDirectory) -> bool {
        let saved = state.save(&self.limiter);
        self.stats.saves[usize::from(saved.is_err())].fetch_add(1, Ordering::Relaxed);
        match &saved {
            Ok(keys) => tracing::debug!(keys, "buckets are kept"),
            Err(error) => {
                let remedy = match Errno::from_io_error(error) {
                    Some(Errno::MFILE | Errno::NFILE) => "raise the limit on open files",
                    Some(Errno::NOSPC | Errno::DQUOT) => "make room on the disk",
                    _ => "check the state directory",
                };
                tracing::error!(
                    "buckets cannot be kept: {error}: a restart goes on with those that were kept \
                     before; {remedy}"
                );
            }
        }
        saved.is_ok()
    }

    /// Reads the rule files, and puts them in force if all is right.
    pub(crate) fn load(&self, paths: &[PathBuf]) -> Result<(), Vec<RuleFileError>> {
        let (files, errors) = files::read(paths);
        if !errors.is_empty() {
            return Err(errors);
        }
        if self.limiter.cluster.is_none() {
            let errors: Vec<_> = files.iter().flat_map(without_store).collect();
            if !errors.is_empty() {
                return Err(errors);
            }
        }
        let mut in_force = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = self.limiter.apply(&files, &Moment::now()).map_err(|error| vec![error])?;
        self.take_over(&rules);
        let is_shared =
            |file: &RequestFile| file.rules().iter().any(|(_, rule)| rule.sharing.is_some());
        if self.limiter.cluster.is_none() && files.iter().any(|(_, file)| is_shared(file)) {
            tracing::warn!(
                "rules have scope: cluster, but no cluster is configured: this process counts for \
                 itself; give the file of the node with --cluster"
            );
        }
        for (name, file) in &files {
            for note in &file.notes {
                let at = note.place.map_or_else(String::new, |place| format!(":{place}"));
                tracing::info!("{name}{at}: {}", note.text);
            }
        }
        for (name, domain) in rules.domains() {
            let rules = domain.rules().len();
            let s = if rules == 1 { "" } else { "s" };
            tracing::info!("domain {name:?}: {rules} rule{s}");
        }
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = files::written(&files);
        *in_force = files.into();
        drop(in_force);
        if let Some(line) = self.checked_by_custom() {
            tracing::warn!("{line}");
        }
        Ok(())
    }

    /// What is written in each file in force, by its domain.
    pub(crate) fn written(&self) -> Vec<(String, u64)> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks whether the files on disk are those in force, and says it if they are not.
    pub(crate) fn look_at_files(&self, paths: &[PathBuf]) {
        let mut on_disk = self.on_disk.lock().unwrap_or_else(PoisonError::into_inner);
        if on_disk.is_new(paths) {
            let line = files::changed(paths, &self.written());
            if let Some(line) = line.as_ref().filter(|line| on_disk.changed.as_ref() != Some(line))
            {
                tracing::warn!("{line}");
            }
            on_disk.changed = line;
        }
    }

    /// Notes how a reload went.
    pub(crate) fn reloaded(&self, errors: Option<&[RuleFileError]>) {
        self.stats.reload(errors.is_none());
        let mut on_disk = self.on_disk.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = errors.and_then(|errors| errors.first()).map(|error| {
            format!("the rules from before stay in force, the latest reload failed: {error}")
        });
        *on_disk = OnDisk::after(failed);
    }

    /// Whether the latest reload took the files, and whether they are others by now.
    pub(crate) fn files_on_disk(&self) -> [bool; 2] {
        let on_disk = self.on_disk.lock().unwrap_or_else(PoisonError::into_inner);
        [on_disk.failed.is_none(), on_disk.changed.is_some()]
    }

    /// Why the files on disk are not in force; none if they are, as far as is known.
    pub(crate) fn not_in_force(&self) -> Option<String> {
        let on_disk = self.on_disk.lock().unwrap_or_else(PoisonError::into_inner);
        on_disk.failed.clone().or_else(|| on_disk.changed.clone())
    }
}

/// Rules with queues, which need a store.
fn without_store((name, file): &(String, RequestFile)) -> Vec<RuleFileError> {
    let places = file.rules().into_iter().filter_map(|(_, rule)| Some(rule.queue.as_ref()?.1));
    let error = |place| RuleFileError {
        file: name.clone(),
        place,
        problem: Problem::Without {
            field: "queue",
            needs: "a store",
            remedy: "give the file of the node with --cluster, or remove the field",
        },
    };
    places.map(error).collect()
}
