//! Routes each call to the Redis Cluster server that has its keys. Each server has its own
//! connection, so that an unreachable one costs only the calls for its slots.
//!
//! A call is sent again only if a server reports that it did nothing: `MOVED`, `ASK`, `TRYAGAIN`,
//! `CLUSTERDOWN`. The crate's own cluster client also repeats calls after a lost connection, and
//! delays all calls while it searches for the servers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::Notify;
use tokio::time::{Instant as TokioInstant, sleep, timeout_at};

use super::request::Request;
use super::server::{Failure, Server};
use super::settings::{Address, RedisSettings};
use super::slots::SlotMap;
use crate::random;
use crate::status::ServerStatus;
use crate::store::StoreError;

/// Most times that one call is sent: an answer after more than a sync period is useless.
const SENT_MAX: u32 = 4;
/// Pause before a call that a server could not handle yet is sent again; doubles each time.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest pause, half of it random, before the slots are requested again.
const SLOTS_AGAIN: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub(super) struct Router(Arc<Inner>);

struct Inner {
    settings: Arc<RedisSettings>,
    /// Servers in the node's file.
    seeds: Vec<Address>,
    state: Mutex<Routes>,
    /// Notified when a request for the slots has ended, with any result.
    asked: Notify,
}

#[derive(Default)]
struct Routes {
    slots: SlotMap,
    /// Servers of slots that have moved since.
    moved: BTreeMap<u16, Address>,
    servers: BTreeMap<Address, Arc<Server>>,
    is_asking: bool,
    /// The slots are not requested before this time.
    not_before: Option<Instant>,
    /// Why there are no slots.
    error: Option<StoreError>,
}

impl Router {
    pub(super) fn new(settings: Arc<RedisSettings>, seeds: Vec<Address>) -> Self {
        let (state, asked) = (Mutex::default(), Notify::new());
        Self(Arc::new(Inner { settings, seeds, state, asked }))
    }

    /// Makes a call on the server that has its keys.
    pub(super) async fn call<T>(
        &self,
        request: &Request,
        deadline: TokioInstant,
        read: impl Fn(Value) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let slot = request.slot();
        let mut place = None;
        let mut why = String::new();
        for sent in 1..=SENT_MAX {
            let (server, asking) = match place.take() {
                Some(place) => place,
                None => (self.server_of(slot, deadline).await?, false),
            };
            match server.call(request, asking, deadline, &read).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Elsewhere { server, asking, reported }) => {
                    why = reported;
                    place = Some((self.redirected(slot, server, asking)?, asking));
                }
                Err(Failure::Unsettled { reported }) => {
                    why = reported;
                    self.ask_slots();
                    let pause = PAUSE * (1 << (sent - 1));
                    if sent == SENT_MAX || TokioInstant::now() + pause >= deadline {
                        break;
                    }
                    sleep(pause).await;
                }
                Err(Failure::Store(error)) => {
                    if !matches!(error, StoreError::Foreign(_)) {
                        // Another server may have its slots now.
                        self.ask_slots();
                    }
                    return Err(error);
                }
            }
        }
        Err(StoreError::Refused(why))
    }

    /// An error if any call would fail at once, whatever its slot.
    pub(super) fn ready(&self) -> Result<(), StoreError> {
        let state = self.0.state();
        if state.slots.is_empty() && !state.is_asking { state.waits() } else { Ok(()) }
    }

    /// Reads how the servers with slots keep keys. Returns true if all of them answered.
    pub(super) async fn look(&self) -> bool {
        let servers: Vec<_> = {
            let state = self.0.state();
            let masters = state.slots.masters().into_keys();
            masters.filter_map(|address| state.servers.get(address).cloned()).collect()
        };
        let mut all = !servers.is_empty();
        for server in servers {
            all &= server.look().await;
        }
        all
    }

    pub(super) fn status(&self) -> Vec<ServerStatus> {
        let state = self.0.state();
        let masters = state.slots.masters().into_iter();
        masters
            .filter_map(|(address, slots)| Some(state.servers.get(address)?.status(Some(slots))))
            .collect()
    }

    /// The server that is known to have a slot. The first call waits for the slots.
    async fn server_of(
        &self,
        slot: u16,
        deadline: TokioInstant,
    ) -> Result<Arc<Server>, StoreError> {
        let asked = self.0.asked.notified();
        if let Some(server) = self.0.state().server_of(slot) {
            return Ok(server);
        }
        let is_known = !self.0.state().slots.is_empty();
        self.ask_slots();
        if !is_known {
            self.0.state().waits()?;
            let _late = timeout_at(deadline, asked).await;
        }
        let state = self.0.state();
        state.server_of(slot).ok_or_else(|| {
            let nobody =
                || StoreError::Refused(format!("no server of the cluster has slot {slot}"));
            state.error.clone().unwrap_or_else(nobody)
        })
    }

    fn redirected(
        &self,
        slot: u16,
        address: Address,
        asking: bool,
    ) -> Result<Arc<Server>, StoreError> {
        let server = self.0.state().server(&self.0.settings, &address)?;
        if !asking {
            self.0.state().moved.insert(slot, address);
            self.ask_slots();
        }
        Ok(server)
    }

    /// Requests the slots in the background, unless it is too early.
    fn ask_slots(&self) {
        {
            let mut state = self.0.state();
            if state.is_asking || state.waits().is_err() {
                return;
            }
            state.is_asking = true;
        }
        let inner = Arc::clone(&self.0);
        drop(tokio::spawn(async move {
            let outcome = inner.read_slots().await;
            inner.take_over(outcome);
            inner.asked.notify_waiters();
        }));
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, Routes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks servers one after the other until one answers, beginning with connected ones.
    async fn read_slots(&self) -> Result<SlotMap, StoreError> {
        let mut error = None;
        for server in self.to_ask()? {
            match server.slots(TokioInstant::now() + self.settings.timeout).await {
                Ok(slots) if slots.is_empty() => {
                    let reported =
                        format!("{} is of a cluster in which nobody has slots", server.address());
                    error = Some(StoreError::Refused(reported));
                }
                Ok(slots) => return Ok(slots),
                // Keep an earlier error instead, because this server was not even tried.
                Err(StoreError::Waits(_)) if error.is_some() => {}
                Err(reported) => error = Some(reported),
            }
        }
        Err(error
            .unwrap_or_else(|| StoreError::Lost("no server of the cluster is known".to_owned())))
    }

    /// All known servers: connected ones first, then those in the file, then others. Their order
    /// within each group is random.
    fn to_ask(&self) -> Result<Vec<Arc<Server>>, StoreError> {
        let mut state = self.state();
        let mut connected: Vec<_> =
            state.servers.values().filter(|server| server.is_connected()).cloned().collect();
        turn(&mut connected);
        let mut others = self.seeds.clone();
        turn(&mut others);
        let known = state.slots.masters().into_keys().chain(state.slots.replicas());
        others.extend(known.cloned());
        for address in others {
            let server = state.server(&self.settings, &address)?;
            if !connected.iter().any(|other| other.address() == server.address()) {
                connected.push(server);
            }
        }
        Ok(connected)
    }

    fn take_over(&self, outcome: Result<SlotMap, StoreError>) {
        let mut state = self.state();
        state.is_asking = false;
        let half = SLOTS_AGAIN / 2;
        let factor = u32::try_from(random::number() % 1024).unwrap_or(0);
        state.not_before = Some(Instant::now() + half + half * factor / 1024);
        match outcome {
            Ok(slots) => {
                state.moved.clear();
                let masters: Vec<_> = slots.masters().into_keys().cloned().collect();
                state.servers.retain(|address, _| masters.contains(address));
                for address in masters {
                    // The number was bounded when they were read.
                    let _one_of_them = state.server(&self.settings, &address);
                }
                (state.slots, state.error) = (slots, None);
            }
            Err(error) => state.error = Some(error),
        }
    }
}

impl Routes {
    /// An error if it is too early to request the slots.
    fn waits(&self) -> Result<(), StoreError> {
        let left = self
            .not_before
            .map_or(Duration::ZERO, |time| time.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(());
        }
        Err(StoreError::Waits(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)))
    }

    fn server_of(&self, slot: u16) -> Option<Arc<Server>> {
        let address = self.moved.get(&slot).or_else(|| self.slots.server_of(slot))?;
        self.servers.get(address).cloned()
    }

    fn server(
        &mut self,
        settings: &Arc<RedisSettings>,
        address: &Address,
    ) -> Result<Arc<Server>, StoreError> {
        if let Some(server) = self.servers.get(address) {
            return Ok(Arc::clone(server));
        }
        if self.servers.len() >= 2 * super::slots::SERVERS_MAX {
            return Err(StoreError::Wrong("more servers than a cluster has"));
        }
        let server = Arc::new(Server::new(Arc::clone(settings), address.clone(), true));
        self.servers.insert(address.clone(), Arc::clone(&server));
        Ok(server)
    }
}

/// Rotates a list to a random start.
fn turn<T>(list: &mut [T]) {
    if let Ok(length @ 1..) = u64::try_from(list.len()) {
        list.rotate_left(usize::try_from(random::number() % length).unwrap_or(0));
    }
}
