//! The store: one server or a cluster, and the calls of both.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::Value;
use tokio::time::Instant;

use super::reply::{met, queue_numbers, reply};
use super::request::Request;
use super::router::Router;
use super::server::{Failure, Server};
use super::settings::{RedisSettings, Servers};
use crate::membership::{Membership, Met};
use crate::queue::{QueueAnswer, QueueAsk, Turn, Turned};
use crate::status::ServerStatus;
use crate::store::{Answers, Batch, Store, StoreError, WindowBatch, read};

/// Store in one server of Redis or Valkey, or in a cluster of them.
pub struct RedisStore {
    settings: Arc<RedisSettings>,
    backend: Backend,
    calls: AtomicU64,
}

enum Backend {
    One(Box<Server>),
    Cluster(Router),
}

impl RedisStore {
    /// A store that connects at its first call.
    pub fn new(settings: RedisSettings) -> Result<Self, StoreError> {
        if !settings.has_prefix() {
            return Err(StoreError::Batch("a prefix is 1 to 32 letters, digits, - and _"));
        }
        let settings = Arc::new(settings);
        let backend = match settings.servers.clone() {
            Servers::One(address) => {
                Backend::One(Box::new(Server::new(Arc::clone(&settings), address, false)))
            }
            Servers::Cluster(seeds) => Backend::Cluster(Router::new(Arc::clone(&settings), seeds)),
        };
        Ok(Self { settings, backend, calls: AtomicU64::new(0) })
    }

    /// Number of script calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// An error if a call would fail at once.
    fn ready(&self) -> Result<(), StoreError> {
        match &self.backend {
            Backend::One(server) => server.ready(),
            Backend::Cluster(router) => router.ready(),
        }
    }

    async fn call<T>(
        &self,
        request: &Request,
        read: impl Fn(Value) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.ready()?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + self.settings.timeout;
        match &self.backend {
            Backend::One(server) => match server.call(request, false, deadline, read).await {
                Ok(answer) => Ok(answer),
                Err(Failure::Store(error)) => Err(error),
                Err(Failure::Elsewhere { reported, .. } | Failure::Unsettled { reported }) => {
                    Err(StoreError::Refused(reported))
                }
            },
            Backend::Cluster(router) => router.call(request, deadline, read).await,
        }
    }
}

impl RedisStore {
    /// Decides a request by a queue, and stores its payload there if it must wait. After an error
    /// it may have done so.
    ///
    /// # Errors
    ///
    /// The reason why there is no answer.
    pub(crate) async fn queue_ask(
        &self,
        queue: &str,
        ask: &QueueAsk<'_>,
    ) -> Result<QueueAnswer, StoreError> {
        let request = Request::queue_ask(&self.settings.prefix, queue, ask);
        let understood = |value| QueueAnswer::read(&queue_numbers(&value)?, ask.limits);
        self.call(&request, understood).await
    }

    /// Lets payloads leave a queue if they may. A turn may be repeated.
    ///
    /// # Errors
    ///
    /// The reason why there is no answer.
    pub(crate) async fn queue_turn(
        &self,
        queue: &str,
        turn: &Turn<'_>,
    ) -> Result<Turned, StoreError> {
        let request = Request::queue_turn(&self.settings.prefix, queue, turn);
        self.call(&request, |value| Turned::read(&queue_numbers(&value)?)).await
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    async fn exchange(&self, batch: &Batch) -> Result<Answers, StoreError> {
        batch.check()?;
        let request = Request::lease(&self.settings.prefix, batch);
        let understood = |value| {
            let (numbers, hot) = reply(value)?;
            let wants = batch.asks.iter().map(|ask| ask.demand.want);
            read(&numbers, hot, request.asked(), wants)
        };
        self.call(&request, understood).await
    }

    async fn windows(&self, batch: &WindowBatch) -> Result<Answers, StoreError> {
        batch.check()?;
        let request = Request::window(&self.settings.prefix, batch);
        let understood = |value| {
            let (numbers, hot) = reply(value)?;
            let wants = batch.asks.iter().map(|ask| ask.demand.want);
            read(&numbers, hot, request.asked(), wants)
        };
        self.call(&request, understood).await
    }

    async fn meet(&self, membership: &Membership) -> Result<Met, StoreError> {
        membership.check()?;
        let request = Request::node(&self.settings.prefix, membership);
        self.call(&request, |value| met(membership, value)).await
    }

    fn is_ready(&self) -> bool {
        self.ready().is_ok()
    }

    async fn look(&self) -> bool {
        match &self.backend {
            Backend::One(server) => server.look().await,
            Backend::Cluster(router) => router.look().await,
        }
    }

    fn servers(&self) -> Vec<ServerStatus> {
        match &self.backend {
            Backend::One(server) => vec![server.status(None)],
            Backend::Cluster(router) => router.status(),
        }
    }
}
