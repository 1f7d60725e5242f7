//! A node: its own thread keeps the leases of shared limits and reports to other nodes. So the
//! daemon's work, however long it takes, delays no lease.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use limiter_sharing::SharedSet;
use limiter_sharing::leases::Leases;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::LocalSet;

use super::change::Change;
use super::run::{Ends, Loop};
use super::settings::{NodeSettings, Rules};
use super::status::{Notice, Status};
use super::store::Store;

/// Most notices that wait for the daemon.
const NOTICES: usize = 1024;
/// Most changes that wait for the thread.
const CHANGES: usize = 1024;
/// Longest time for a node to shut down: returning units, and the system's delays.
const STOP: Duration = Duration::from_millis(600);

/// Receiver of the node's notices. It ends with the thread.
pub type Notices = mpsc::Receiver<Notice>;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store refuses its settings.
    #[error("the store of shared limits: {0}")]
    Store(#[from] super::store::StoreError),
    /// This build has no Redis client.
    #[cfg(not(feature = "redis"))]
    #[error("{}", super::config::LEFT_OUT)]
    LeftOut,
    /// The system cannot start a thread or a timer.
    #[error("the thread for shared limits does not start: {0}: raise the limit on threads")]
    Thread(#[from] io::Error),
}

/// Why a change was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Too many changes are waiting.
    #[error("1,024 changes wait for the other nodes already: this one is in force here alone")]
    Full,
    /// The thread has ended.
    #[error("the thread for shared limits has ended: the change is in force here alone")]
    Ended,
}

/// A running node. If this is dropped, the node ends in its own time.
pub struct Cluster {
    rules: watch::Sender<Rules>,
    changes: mpsc::Sender<Change>,
    status: Arc<Mutex<Arc<Status>>>,
    stop: oneshot::Sender<()>,
    ended: std_mpsc::Receiver<()>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts a node over Redis. Does not connect yet.
    #[cfg(feature = "redis")]
    pub fn start<L: Leases>(
        config: super::config::Config,
        leases: L,
    ) -> Result<(Self, Notices), StartError> {
        let store = super::redis::RedisStore::new(config.redis)?;
        Self::start_with(config.node, Arc::new(store), leases)
    }

    /// Always fails, like [`Config::load`](super::config::Config::load).
    #[cfg(not(feature = "redis"))]
    pub fn start<L: Leases>(
        _config: super::config::Config,
        _leases: L,
    ) -> Result<(Self, Notices), StartError> {
        Err(StartError::LeftOut)
    }

    /// Starts a node over any store, whose calls should end within [`NodeSettings::timeout`].
    pub fn start_with<S, L>(
        settings: NodeSettings,
        store: Arc<S>,
        leases: L,
    ) -> Result<(Self, Notices), StartError>
    where
        S: Store + Send + Sync + 'static,
        L: Leases,
    {
        let (rules, rules_in) = watch::channel(Rules::default());
        let (changes, changes_in) = mpsc::channel(CHANGES);
        let (notices_out, notices) = mpsc::channel(NOTICES);
        let (stop, stop_in) = oneshot::channel();
        let (end, ended) = std_mpsc::channel();
        let status = Arc::new(Mutex::new(Arc::new(Status::new(&settings))));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let ends = Ends {
            rules: rules_in,
            changes: changes_in,
            notices: notices_out,
            status: Arc::clone(&status),
            stop: stop_in,
        };
        let thread = Builder::new().name("cluster".to_owned()).spawn(move || {
            let node = Loop::new(settings, store, leases, ends);
            LocalSet::new().block_on(&runtime, node.run());
            // If this fails, nobody waits any more.
            let _gone = end.send(());
        })?;
        Ok((Self { rules, changes, status, stop, ended, thread }, notices))
    }

    /// Sets the rules in force: remaining limits keep their units, others return them. `digest`
    /// identifies the rule set, to find nodes with another one. Never waits; the latest call
    /// counts.
    pub fn set_rules(&self, shared: SharedSet, digest: u64) {
        self.rules.send_replace(Rules { shared, digest });
    }

    /// Publishes a change of this node to all nodes. Never waits. Without contact to the store, the
    /// change is reported later, if it has not ended by then.
    pub fn publish(&self, change: Change) -> Result<(), PublishError> {
        self.changes.try_send(change).map_err(|error| match error {
            TrySendError::Full(_) => PublishError::Full,
            TrySendError::Closed(_) => PublishError::Ended,
        })
    }

    /// State of the node, at most a second old.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shuts down the node: leases end, and held units are returned if the store answers in time.
    /// Takes at most 0.6 s.
    pub fn stop(self) {
        // A thread that has already ended does not receive this.
        let _heard = self.stop.send(());
        if self.ended.recv_timeout(STOP) != Err(std_mpsc::RecvTimeoutError::Timeout) {
            // An error means that the thread panicked, which was already reported.
            let _joined = self.thread.join();
        }
    }
}
