//! One server and its connection, which all calls share. A broken connection is remade after a
//! pause.

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
    /// An error: it is unknown what the server did.
    Store(StoreError),
    /// Nothing was done: the keys are on another server. `asking` means for this call only, which
    /// must be sent with `ASKING`.
    Elsewhere { server: Address, asking: bool, reported: String },
    /// Nothing was done: the keys are migrating, or a master is missing.
    Unsettled { reported: String },
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) struct Server {
    settings: Arc<RedisSettings>,
    address: Address,
    in_cluster: bool,
    state: Mutex<ConnectionState>,
    /// Held while a connection is made, because one is enough for all calls.
    connecting: tokio::sync::Mutex<()>,
}

struct ConnectionState {
    connection: Option<Connection>,
    /// Number of the connection, or of the next one.
    number: u64,
    pause: Duration,
    not_before: Option<Instant>,
    /// The error that ended the previous connection; `None` once a call was answered.
    error: Option<String>,
    keeping: Option<Keeping>,
}

impl Server {
    /// A server that connects at its first call.
    pub(super) fn new(settings: Arc<RedisSettings>, address: Address, in_cluster: bool) -> Self {
        let state = ConnectionState {
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

    /// An error if a call would fail at once.
    pub(super) fn ready(&self) -> Result<(), StoreError> {
        self.state().waits()
    }

    /// State for users; in a cluster, with the number of its slots.
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

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

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

    /// Reads how the server keeps keys. Returns false if that is unknown now. Errors do not affect
    /// other calls.
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

    /// Waits for an answer until `deadline` and reads it. A failure ends the connection: a late
    /// answer must not be taken for that of the next call; a server whose answer no script of ours
    /// gives is not the intended one; and a server that became a replica must be looked up again by
    /// its name. A foreign key does not end it: that is an answer, and other calls do not need the
    /// key. A call for another server does not end it either.
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

    /// The connection. Makes it if there is none.
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

    fn failure(&self, request: &Request, error: &RedisError) -> Failure {
        let words = || words(error);
        match error.kind() {
            // The script itself reports foreign keys other than the store's own.
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

impl ConnectionState {
    /// An error if it is too early to reconnect.
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

    /// Ends connection `number`, unless another call already has. The next one is made after a
    /// growing pause, of which between half and all is used, so that nodes that lost a server
    /// together do not return together.
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

/// The text of a server's error, with its code.
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
