//! The store as queues see it, with or without a client of Redis.

use super::node::StartError;
use super::queue::{QueueAnswer, QueueAsk, Turn, Turned};
use super::redis::RedisSettings;
use super::store::StoreError;

/// The store as queues see it.
#[derive(Debug)]
pub struct QueueStore(#[cfg(feature = "redis")] super::redis::RedisStore);

impl QueueStore {
    /// A store that is not connected yet: its first call connects.
    ///
    /// # Errors
    ///
    /// The settings are refused, or there is no client of Redis.
    pub fn new(settings: RedisSettings) -> Result<Self, StartError> {
        #[cfg(feature = "redis")]
        return Ok(Self(super::redis::RedisStore::new(settings)?));
        #[cfg(not(feature = "redis"))]
        {
            drop(settings);
            Err(StartError::LeftOut)
        }
    }

    /// Decides a request by a queue, and puts its payload there if it has to wait. After an error
    /// it may have done so.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn ask(&self, queue: &str, ask: &QueueAsk<'_>) -> Result<QueueAnswer, StoreError> {
        #[cfg(feature = "redis")]
        return self.0.queue_ask(queue, ask).await;
        #[cfg(not(feature = "redis"))]
        none(queue, ask).await
    }

    /// Lets leave a queue what may. It may be repeated.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn turn(&self, queue: &str, turn: &Turn<'_>) -> Result<Turned, StoreError> {
        #[cfg(feature = "redis")]
        return self.0.queue_turn(queue, turn).await;
        #[cfg(not(feature = "redis"))]
        none(queue, turn).await
    }
}

/// What there is without a client of Redis, which [`QueueStore::new`] refuses.
#[cfg(not(feature = "redis"))]
async fn none<A, T>(_queue: &str, _what: A) -> Result<T, StoreError> {
    std::future::ready(Err(StoreError::Refused(super::config::LEFT_OUT.to_owned()))).await
}
