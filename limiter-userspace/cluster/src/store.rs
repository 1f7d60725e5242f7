//! The store of shared limits as the nodes see it. One call takes a node's reports and requests for
//! keys of one shard, and returns the answers.

use std::future::Future;

use limiter_sharing::account::{Answer, Central, Demand};
use limiter_sharing::rate::EXACT;
use limiter_sharing::window::{Window, WindowDemand};

use super::membership::{Membership, Met};
use super::status::ServerStatus;

pub use super::store_error::{Foreign, StoreError};

/// Most keys in one call: more keys save nothing per key, and make others wait for the store.
pub const KEYS_MAX: usize = 100;
/// Most hot keys in one answer.
pub const HOT_MAX: usize = 1000;
/// Longest name of a key, in bytes.
pub const NAME_MAX: usize = 64;

/// Request for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Name of the key: rule and source, 1 to [`NAME_MAX`] bytes. It does not begin with `!`, which
    /// is reserved for the store's own keys.
    pub name: Box<[u8]>,
    /// Numbers of its limit.
    pub central: Central,
    /// Report and request of the node.
    pub demand: Demand,
}

/// Request for one key of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowAsk {
    /// Name of the key; see [`Ask::name`].
    pub name: Box<[u8]>,
    /// Numbers of its limit.
    pub window: Window,
    /// Units that the node returns and wants.
    pub demand: WindowDemand,
}

/// One call: keys of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Number of the shard. All keys with the same number are in one place of a store cluster.
    pub shard: u16,
    /// Report the keys that were promoted at this time of the store's clock or later; `None` to
    /// report none.
    pub hot_since: Option<u64>,
    /// Time of the store's clock after which the node no longer waits: then its reports are booked,
    /// but nothing is granted. `None` if unknown.
    pub deadline: Option<u64>,
    /// At most [`KEYS_MAX`] keys.
    pub asks: Vec<Ask>,
}

/// One call for windows: keys of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowBatch {
    /// See [`Batch::shard`].
    pub shard: u16,
    /// See [`Batch::deadline`].
    pub deadline: Option<u64>,
    /// At most [`KEYS_MAX`] keys.
    pub asks: Vec<WindowAsk>,
}

/// An existing key, as the hot list reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// Name of the key.
    pub name: Box<[u8]>,
    /// When it was promoted or last seen in use, by the store's clock.
    pub at: u64,
}

/// Answers of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Time of the store's clock, in microseconds since 1970.
    pub now: u64,
    /// Hot keys, oldest first. If there are [`HOT_MAX`], more may exist from the last one's time
    /// on.
    pub hot: Vec<HotKey>,
    /// One answer for each requested key, in that order; an error if something else made the key.
    pub answers: Vec<Result<Answer, Foreign>>,
}

/// A store that shares limits among nodes. No packet waits for it. Calls may be made before earlier
/// ones are answered.
pub trait Store {
    /// Makes one call. It must not be repeated after an error, because the store's state may have
    /// changed.
    fn exchange(&self, batch: &Batch) -> impl Future<Output = Result<Answers, StoreError>>;

    /// Makes one call for windows; see [`Store::exchange`].
    fn windows(&self, batch: &WindowBatch) -> impl Future<Output = Result<Answers, StoreError>>;

    /// Makes one call for the reports of nodes. It may be repeated.
    fn meet(&self, membership: &Membership) -> impl Future<Output = Result<Met, StoreError>>;

    /// False if a call would fail at once, because the store waits before it reconnects.
    fn is_ready(&self) -> bool;

    /// Reads how its servers keep keys. Returns true if all of them answered.
    fn look(&self) -> impl Future<Output = bool> {
        std::future::ready(true)
    }

    /// State of its servers, ordered by address; empty if it has none.
    fn servers(&self) -> Vec<ServerStatus> {
        Vec::new()
    }
}

/// Shard of a key among `shards`: FNV-1a with a seed that the nodes share, mixed at the end so that
/// similar names are spread over all shards.
pub fn shard(seed: u64, name: &[u8], shards: u16) -> u16 {
    let begin = 0xcbf2_9ce4_8422_2325 ^ seed;
    let hash = name
        .iter()
        .fold(begin, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // FNV-1a alone lets the last bytes of a name affect only the lowest and the highest bits.
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    u16::try_from((hash >> 32) % u64::from(shards.max(1))).unwrap_or(0)
}

impl Batch {
    /// Checks names and sizes before sending.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        check_count(self.asks.len())?;
        self.asks.iter().try_for_each(|ask| check_name(&ask.name))
    }
}

impl WindowBatch {
    /// Checks names and sizes before sending.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        check_count(self.asks.len())?;
        self.asks.iter().try_for_each(|ask| check_name(&ask.name))
    }
}

fn check_count(keys: usize) -> Result<(), StoreError> {
    if keys > KEYS_MAX { Err(StoreError::Batch("more than 100 keys")) } else { Ok(()) }
}

fn check_name(name: &[u8]) -> Result<(), StoreError> {
    if name.is_empty() || name.len() > NAME_MAX || name[0] == b'!' {
        return Err(StoreError::Batch("a name is not 1 to 64 bytes, or begins with !"));
    }
    Ok(())
}

/// Numbers in an answer: for the call, and for each key.
const OF_CALL: usize = 1;
const OF_KEY: usize = 5;

/// Reads the numbers that a script answered for the keys with the full `names` that wanted `wants`:
/// time of the store, then for each key grant (-1 if something else made the key), wait, epoch,
/// rest and until (-1 for no end).
///
/// Takes no more than was wanted. The store's time and epochs may be anything in range: nodes
/// calculate with their own clocks, and only return the store's numbers to it.
pub fn read(
    numbers: &[i64],
    hot: Vec<HotKey>,
    names: &[Vec<u8>],
    wants: impl ExactSizeIterator<Item = u64>,
) -> Result<Answers, StoreError> {
    if numbers.len() != OF_CALL + OF_KEY * wants.len() || names.len() != wants.len() {
        return Err(StoreError::Wrong("its length"));
    }
    let exact = |number: i64, what| {
        u64::try_from(number).ok().filter(|number| *number < EXACT).ok_or(StoreError::Wrong(what))
    };
    let (call, keys) = numbers.split_at(OF_CALL);
    let now = exact(call[0], "its time")?;
    if hot.len() > HOT_MAX {
        return Err(StoreError::Wrong("its list of hot keys"));
    }
    for key in &hot {
        if key.name.is_empty() || key.name.len() > NAME_MAX || key.at >= EXACT {
            return Err(StoreError::Wrong("a hot key"));
        }
    }
    let asked = names.iter().zip(wants);
    let answers = keys.chunks_exact(OF_KEY).zip(asked).map(|(of_key, (name, want))| {
        if of_key[0] == -1 {
            return Ok(Err(Foreign { key: name.escape_ascii().to_string() }));
        }
        let grant = exact(of_key[0], "a grant")?;
        if grant > want {
            return Err(StoreError::Wrong("a grant above what was wanted"));
        }
        let until = if of_key[4] == -1 { u64::MAX } else { exact(of_key[4], "an end")? };
        Ok(Ok(Answer {
            grant,
            wait: exact(of_key[1], "a wait")?,
            epoch: exact(of_key[2], "an epoch")?,
            rest: exact(of_key[3], "a rest")?,
            until,
        }))
    });
    Ok(Answers { now, hot, answers: answers.collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_spread_over_all_shards() {
        for shards in [3, 4, 16, 64] {
            let mut counts = vec![0u32; shards.into()];
            for number in 0..16_384u32 {
                let [.., a, b] = number.to_be_bytes();
                counts[usize::from(shard(0, &[b's', 192, 0, a, b], shards))] += 1;
            }
            let fair = 16_384 / u32::from(shards);
            let near = counts.iter().all(|count| count.abs_diff(fair) < fair / 4);
            assert!(near, "{shards}: {counts:?}");
        }
    }
}
