//! One server: a connection that all calls share, which is made anew when it breaks, with pauses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant as TokioInstant, timeout_at};

use super::connection::Connection;
use super::request::Request;
use super::settings::{Address, RedisSettings};
use super::slots::{SlotMap, redirect};
use crate::keeping::Keeping;
use crate::random;
use crate::status::ServerStatus;
use crate::store::{Foreign, StoreError};

/// First and longest pause before another attempt to connect.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(5);

/// Why a server did not answer a call.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error: what was done is not known.
    Store(StoreError),
    /// Nothing was done: the keys are at another server. `asking`: for this call only, which is to
    /// be said there.
    Elsewhere { server: Address, asking: bool, reported: String },
    /// Nothing was done: the keys are on their way to another server, or a master is missing.
    Unsettled { reported: String },
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A server, and the connection to it if there is one.
pub(super) struct Server {
    settings: Arc<RedisSettings>,
    address: Address,
    /// True if it is one of a cluster.
    in_cluster: bool,
    state: Mutex<State>,
    /// Held while a connection is made: one is enough for all calls.
    connecting: tokio::sync::Mutex<()>,
}

struct State {
    connection: Option<Connection>,
    /// Number of the connection, or of the next one.
    number: u64,
    pause: Duration,
    not_before: Option<Instant>,
    /// The error that ended the connection before; none once a call was answered.
    error: Option<String>,
    /// How it keeps keys.
    keeping: Option<Keeping>,
}

impl Server {
    /// A server that is not connected yet: its first call connects.
    pub(super) fn new(settings: Arc<RedisSettings>, address: Address, in_cluster: bool) -> Self {
        let state = State {
            connection: None,
            number: 0,
            pause: PAUSE_FIRST,
            not_before: None,
            error: None,
            keeping: None,
        };
        let connecting = tokio::sync::Mutex::new(());
        Self { settings, address, in_cluster, state: Mutex::new(state), connecting }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state().connection.is_some()
    }

    /// An error while a call would fail at once.
    pub(super) fn ready(&self) -> Result<(), StoreError> {
        self.state().waits()
    }

    /// State for people; of a cluster, with the number of slots that it has.
    pub(super) fn status(&self, slots: Option<u16>) -> ServerStatus {
        let state = self.state();
        ServerStatus {
            address: self.address.to_string(),
            connected: state.connection.is_some(),
            slots,
            error: state.error.clone(),
            keeping: state.keeping.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call and reads its answer.
    pub(super) async fn call<T>(
        &self,
        request: &Request,
        asking: bool,
        deadline: TokioInstant,
        read: impl FnOnce(Value) -> Result<T, StoreError>,
    ) -> Result<T, Failure> {
        let made = async {
            let mut connection = self.connection().await?;
            let outcome = connection.call(&self.settings.scripts, request, asking).await;
            outcome.map_err(|error| self.failure(request, &error))
        };
        self.limited(deadline, made, read).await
    }

    /// Asks which server of the cluster has which slots.
    pub(super) async fn slots(&self, deadline: TokioInstant) -> Result<SlotMap, StoreError> {
        let made = async {
            let mut connection = self.connection().await?;
            let slots = connection.slots().await;
            slots.map_err(|error| {
                let is_none = error.to_string().contains("cluster support disabled");
                match reported(&error) {
                    StoreError::Refused(reported) if is_none => {
                        StoreError::Refused(format!("{reported}: name it as `redis.address`"))
                            .into()
                    }
                    reported => Failure::Store(reported),
                }
            })
        };
        let outcome = self.limited(deadline, made, |value| SlotMap::read(&value, &self.address));
        outcome.await.map_err(|failure| match failure {
            Failure::Store(error) => error,
            Failure::Elsewhere { reported, .. } | Failure::Unsettled { reported } => {
                StoreError::Refused(reported)
            }
        })
    }

    /// Looks at how it keeps keys; false if that cannot be known now. Other calls hear of no error.
    pub(super) async fn look(&self) -> bool {
        let looked = async {
            let mut connection = self.connection().await.ok()?;
            match connection.keeping().await {
                Ok(keeping) => keeping,
                Err(error) => match reported(&error) {
                    StoreError::Refused(why) => Some(Keeping::Unknown(why)),
                    _ => None,
                },
            }
        };
        let looked = timeout_at(TokioInstant::now() + self.settings.timeout, looked).await;
        let keeping = looked.ok().flatten();
        let is_known = keeping.is_some();
        if is_known {
            self.state().keeping = keeping;
        }
        is_known
    }

    /// Waits for an answer until `deadline` and reads it. Whatever fails ends the connection: an
    /// answer that comes late must not be taken for that of the next call, a server that answers
    /// what no script of ours does is not the one that was meant, and one that became a replica is
    /// to be looked for anew, by its name. A key that somebody else made does not: that is an
    /// answer, and other calls need none of that key. Nor does a call for another server.
    async fn limited<T>(
        &self,
        deadline: TokioInstant,
        made: impl Future<Output = Result<Value, Failure>>,
        read: impl FnOnce(Value) -> Result<T, StoreError>,
    ) -> Result<T, Failure> {
        let number = {
            let state = self.state();
            state.waits()?;
            state.number
        };
        let outcome = match timeout_at(deadline, made).await {
            Ok(Ok(value)) => read(value).map_err(Failure::Store),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::Store(StoreError::Late(millis(self.settings.timeout)))),
        };
        match &outcome {
            Ok(_)
            | Err(
                Failure::Store(StoreError::Foreign(_))
                | Failure::Elsewhere { .. }
                | Failure::Unsettled { .. },
            ) => self.state().answered(),
            Err(Failure::Store(error)) => self.state().disconnect(number, error),
        }
        outcome
    }

    /// The connection, made if there is none.
    async fn connection(&self) -> Result<Connection, Failure> {
        if let Some(connection) = &self.state().connection {
            return Ok(connection.clone());
        }
        let _only = self.connecting.lock().await;
        {
            let state = self.state();
            if let Some(connection) = &state.connection {
                return Ok(connection.clone());
            }
            state.waits()?;
        }
        let opened = Connection::open(&self.settings, &self.address).await;
        let connection = opened.map_err(|error| reported(&error))?;
        self.state().connection = Some(connection.clone());
        Ok(connection)
    }

    /// Sense of an error that a call came to.
    fn failure(&self, request: &Request, error: &RedisError) -> Failure {
        let words = || words(error);
        match error.kind() {
            // The script itself reports keys that are not the store's own.
            _ if error.code() == Some("WRONGTYPE") => {
                StoreError::from(Foreign { key: request.own_keys() }).into()
            }
            ErrorKind::Server(kind @ (ServerErrorKind::Moved | ServerErrorKind::Ask)) => {
                if !self.in_cluster {
                    let reported = format!("{}: name it under `redis.cluster`", words());
                    return StoreError::Refused(reported).into();
                }
                let place = error.redirect_node().map(|(place, _)| place);
                match place.and_then(|place| redirect(place, &self.address)) {
                    Some(server) => {
                        let asking = kind == ServerErrorKind::Ask;
                        Failure::Elsewhere { server, asking, reported: words() }
                    }
                    None => StoreError::Wrong("the server that it names").into(),
                }
            }
            ErrorKind::Server(ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown)
                if self.in_cluster =>
            {
                Failure::Unsettled { reported: words() }
            }
            _ => reported(error).into(),
        }
    }
}

impl State {
    /// An error while it is too early for another attempt to connect.
    fn waits(&self) -> Result<(), StoreError> {
        let left = match self.not_before {
            Some(time) if self.connection.is_none() => {
                time.saturating_duration_since(Instant::now())
            }
            _ => Duration::ZERO,
        };
        if left.is_zero() { Ok(()) } else { Err(StoreError::Waits(millis(left))) }
    }

    fn answered(&mut self) {
        self.pause = PAUSE_FIRST;
        self.error = None;
    }

    /// Ends connection `number`, if it was not ended for another call. The next one is made after a
    /// pause, longer each time, between half and all of it: nodes that lost a server together do
    /// not come back together.
    fn disconnect(&mut self, number: u64, error: &StoreError) {
        if self.number != number {
            return;
        }
        self.number += 1;
        self.connection = None;
        self.error = Some(error.to_string());
        let factor = u32::try_from(512 + random::number() % 512).unwrap_or(1024);
        self.not_before = Some(Instant::now() + self.pause * factor / 1024);
        self.pause = (self.pause * 2).min(PAUSE_LONGEST);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// An error of a server, with its code.
fn words(error: &RedisError) -> String {
    match error.code() {
        Some(code) => format!("{code}: {error}"),
        None => error.to_string(),
    }
}

fn reported(error: &RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Io => StoreError::Lost(error.to_string()),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreError::Wrong("its form"),
        _ => StoreError::Refused(words(error)),
    }
}
