//! The store as queues see it, with or without a client of Redis.

use super::node::StartError;
use super::queue::{QueueAnswer, QueueAsk, Turn, Turned};
use super::redis::RedisSettings;
use super::store::StoreError;

/// The store as queues see it.
#[derive(Debug)]
pub struct QueueStore(#[cfg(feature = "redis")] super::redis::RedisStore);

impl QueueStore {
    /// A store that connects at its first call.
    ///
    /// # Errors
    ///
    /// If the settings are rejected, or there is no Redis client.
    pub fn new(settings: RedisSettings) -> Result<Self, StartError> {
        #[cfg(feature = "redis")]
        return Ok(Self(super::redis::RedisStore::new(settings)?));
        #[cfg(not(feature = "redis"))]
        {
            drop(settings);
            Err(StartError::LeftOut)
        }
    }

    /// Decides a request by a queue, and stores its payload there if it must wait. After an error
    /// it may have done so.
    ///
    /// # Errors
    ///
    /// The reason why there is no answer.
    pub async fn ask(&self, queue: &str, ask: &QueueAsk<'_>) -> Result<QueueAnswer, StoreError> {
        #[cfg(feature = "redis")]
        return self.0.queue_ask(queue, ask).await;
        #[cfg(not(feature = "redis"))]
        none(queue, ask).await
    }

    /// Lets payloads leave a queue if they may. A turn may be repeated.
    ///
    /// # Errors
    ///
    /// The reason why there is no answer.
    pub async fn turn(&self, queue: &str, turn: &Turn<'_>) -> Result<Turned, StoreError> {
        #[cfg(feature = "redis")]
        return self.0.queue_turn(queue, turn).await;
        #[cfg(not(feature = "redis"))]
        none(queue, turn).await
    }
}

/// The answer without a Redis client, which cannot occur because [`QueueStore::new`] fails.
#[cfg(not(feature = "redis"))]
async fn none<A, T>(_queue: &str, _what: A) -> Result<T, StoreError> {
    std::future::ready(Err(StoreError::Refused(super::config::LEFT_OUT.to_owned()))).await
}
