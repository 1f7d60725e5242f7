//! What all threads share: the limiter, the rule files, and counters of the server.

use std::io::{Read, Seek};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
use crate::reports::stats::Stats;
use crate::rules::Rules;
use crate::rules::files::{self, RuleFiles};
use crate::shared::node::Node;
use crate::shared::rule::Patience;

/// Requests that wait for the store: a bounded number of them, each for a bounded time.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
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

impl WaitingRoom {
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
    pub(crate) patience: WaitingRoom,
    pub(crate) node: Node,
    pub(crate) quotas: Quotas,
    /// Answers that are held back: bounded, so that others still find a connection.
    pub(crate) held_back: WaitingRoom,
    pub(crate) queues: Queues,
    pub(crate) lateness: Lateness,
    /// Memory of the requests under way, by thread.
    pub(crate) memory: Box<[Arc<Memory>]>,
    pub(crate) files: RuleFiles,
}

impl Service {
    pub(crate) fn new(
        limiter: Limiter,
        patience: WaitingRoom,
        held_back: WaitingRoom,
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
            files: RuleFiles::default(),
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
        Ok(Answer { kept, ..request.answer(asked, Detail::Left) })
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
        rules: &'a Rules,
        asked: &'a Asked<'_>,
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
        match self.limiter.apply(&self.files.in_force(), &Moment::now()) {
            Ok(rules) => self.take_over(&rules),
            // No error depends on the number of nodes.
            Err(error) => tracing::error!("the shares of {nodes} nodes are not in force: {error}"),
        }
    }

    /// Restores the buckets of a snapshot.
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

    /// Saves the buckets; true on success.
    pub(crate) fn save(&self, state: &StateDirectory) -> bool {
        let saved = state.save(&self.limiter);
        self.stats.save(saved.is_ok());
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

    /// Reads the rule files, and puts them in force if they have no mistake.
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
        let mut in_force = self.files.in_force();
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
        self.files.set_written(&files);
        *in_force = files;
        drop(in_force);
        if let Some(line) = self.checked_by_custom() {
            tracing::warn!("{line}");
        }
        Ok(())
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
