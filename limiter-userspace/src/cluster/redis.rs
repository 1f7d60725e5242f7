//! Store in Redis 7.0 or newer, or Valkey: scripts (`lease.lua`, `window.lua`, `node.lua`) over
//! one connection, which is made anew when it breaks. Calls go out without waiting for each other.
//!
//! A call is made once, whatever happens: only an answer `NOSCRIPT` says that nothing was done, and
//! is followed by loading the script and calling again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError, TlsCertificates, Value,
};

use super::meeting::{self, Meeting, Met, Presence, RawChange, RawNode};
use super::random;
use super::rate::EXACT;
use super::store::{
    Answers, Ask, Batch, Foreign, HotKey, Store, StoreError, WindowAsk, WindowBatch, read,
};
use super::window::WindowKind;

/// The script for leases, as it is sent to the server.
pub const LEASE: &str = include_str!("lease.lua");
/// The script for windows, as it is sent to the server.
pub const WINDOW: &str = include_str!("window.lua");
/// The script for what nodes tell each other, as it is sent to the server.
pub const NODE: &str = include_str!("node.lua");

/// First and longest pause before another attempt to connect.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(5);

/// Address of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// TCP in clear: for a network that nobody else is in.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// TCP with TLS; the server's name is checked.
    Tls {
        /// Name that the certificate must have.
        host: String,
        /// Port.
        port: u16,
        /// File with the certificates to trust, PEM; `None`: those of the system.
        authority: Option<PathBuf>,
    },
}

/// How a server is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// Address of the server.
    pub address: Address,
    /// User of the server's access list; `None`: its default user.
    pub user: Option<String>,
    /// File with the password, read at each connection; an end of line is not part of it.
    pub password: Option<PathBuf>,
    /// First part of all keys: 1 to 32 letters, digits, `-` and `_`.
    pub prefix: String,
    /// Longest time for a call, connecting included.
    pub timeout: Duration,
    /// The scripts: [`LEASE`], [`WINDOW`] and [`NODE`], but for tests with a clock of their own.
    pub scripts: Scripts,
}

/// Text of the scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scripts {
    /// For leases.
    pub lease: String,
    /// For windows.
    pub window: String,
    /// For nodes.
    pub node: String,
}

impl Default for Scripts {
    fn default() -> Self {
        Self { lease: LEASE.to_owned(), window: WINDOW.to_owned(), node: NODE.to_owned() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    Lease,
    Window,
    Node,
}

/// A connection, and the digests of the scripts that its server was given.
#[derive(Clone)]
struct Connection {
    link: MultiplexedConnection,
    lease: Arc<str>,
    window: Arc<str>,
    node: Arc<str>,
}

impl Connection {
    fn digest(&self, script: Script) -> &str {
        match script {
            Script::Lease => &self.lease,
            Script::Window => &self.window,
            Script::Node => &self.node,
        }
    }
}

struct State {
    connection: Option<Connection>,
    /// Number of the connection, or of the next one.
    number: u64,
    pause: Duration,
    not_before: Option<Instant>,
}

/// Store in a server of Redis or Valkey.
pub struct RedisStore {
    settings: RedisSettings,
    state: Mutex<State>,
    /// Held while a connection is made: one is enough for all calls.
    connecting: tokio::sync::Mutex<()>,
    calls: AtomicU64,
}

impl RedisStore {
    /// A store that is not connected yet: its first call connects.
    pub fn new(settings: RedisSettings) -> Result<Self, StoreError> {
        if !is_prefix(&settings.prefix) {
            return Err(StoreError::Batch("a prefix is 1 to 32 letters, digits, - and _"));
        }
        let state = State { connection: None, number: 0, pause: PAUSE_FIRST, not_before: None };
        Ok(Self {
            settings,
            state: Mutex::new(state),
            connecting: tokio::sync::Mutex::new(()),
            calls: AtomicU64::new(0),
        })
    }

    /// Calls of scripts so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// True if there is a connection, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.state().connection.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call and reads its answer. Whatever fails ends the connection: an answer that comes
    /// late must not be taken for that of the next call, and a server that answers what no script
    /// of ours does is not the one that was meant. A key that somebody else made does not: that is
    /// an answer, and other calls need none of that key.
    async fn call<T>(
        &self,
        script: Script,
        request: &Request,
        read: impl FnOnce(Value) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let number = {
            let state = self.state();
            state.waits()?;
            state.number
        };
        self.calls.fetch_add(1, Ordering::Relaxed);
        let timeout = self.settings.timeout;
        let outcome = match tokio::time::timeout(timeout, self.attempt(script, request)).await {
            Ok(Ok(value)) => read(value),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Late(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))),
        };
        match &outcome {
            Ok(_) | Err(StoreError::Foreign(_)) => self.state().pause = PAUSE_FIRST,
            Err(_) => self.state().disconnect(number),
        }
        outcome
    }

    async fn attempt(&self, script: Script, request: &Request) -> Result<Value, StoreError> {
        let mut connection = self.connection().await?;
        let command = request.command(connection.digest(script));
        let outcome = connection.link.send_packed_command(&command).await;
        match outcome.and_then(Value::extract_error) {
            Err(error) if error.code() == Some("NOSCRIPT") => {}
            outcome => return outcome.map_err(|error| request.told(&error)),
        }
        let scripts = &self.settings.scripts;
        let text = match script {
            Script::Lease => &scripts.lease,
            Script::Window => &scripts.window,
            Script::Node => &scripts.node,
        };
        let again = async {
            let digest = load(&mut connection.link, text).await?;
            let value = connection.link.send_packed_command(&request.command(&digest)).await?;
            value.extract_error()
        };
        again.await.map_err(|error| request.told(&error))
    }

    /// The connection, made if there is none.
    async fn connection(&self) -> Result<Connection, StoreError> {
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
        let connection = self.connect().await.map_err(|error| told(&error))?;
        self.state().connection = Some(connection.clone());
        Ok(connection)
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        let client = self.client()?;
        // There is one limit on time, around all of it.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut link = client.get_multiplexed_async_connection_with_config(&config).await?;
        let lease = load(&mut link, &self.settings.scripts.lease).await?;
        let window = load(&mut link, &self.settings.scripts.window).await?;
        let node = load(&mut link, &self.settings.scripts.node).await?;
        Ok(Connection { link, lease: lease.into(), window: window.into(), node: node.into() })
    }

    fn client(&self) -> Result<Client, RedisError> {
        let mut user = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(name) = &self.settings.user {
            user = user.set_username(name);
        }
        if let Some(path) = &self.settings.password {
            let text = std::fs::read_to_string(path)
                .map_err(|error| refused("the password's file", path, &error))?;
            user = user.set_password(text.trim_end_matches(['\r', '\n']));
        }
        let address = match self.settings.address.clone() {
            Address::Unix(path) => ConnectionAddr::Unix(path),
            Address::Tcp { host, port } => ConnectionAddr::Tcp(host, port),
            Address::Tls { host, port, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            }
        };
        let info = address.into_connection_info()?.set_redis_settings(user);
        let Address::Tls { authority, .. } = &self.settings.address else {
            return Client::open(info);
        };
        // Another one in this process is as good.
        let _same = rustls::crypto::ring::default_provider().install_default();
        let root_cert = match authority {
            Some(path) => Some(
                std::fs::read(path)
                    .map_err(|error| refused("the authority's file", path, &error))?,
            ),
            None => None,
        };
        Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
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
        if left.is_zero() {
            return Ok(());
        }
        Err(StoreError::Waits(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Ends connection `number`, if it was not ended for another call. The next one is made after a
    /// pause, longer each time, between half and all of it: nodes that lost a server together do
    /// not come back together.
    fn disconnect(&mut self, number: u64) {
        if self.number != number {
            return;
        }
        self.number += 1;
        self.connection = None;
        let factor = u32::try_from(512 + random::number() % 512).unwrap_or(1024);
        self.not_before = Some(Instant::now() + self.pause * factor / 1024);
        self.pause = (self.pause * 2).min(PAUSE_LONGEST);
    }
}

/// True if keys may begin with this.
pub(super) fn is_prefix(prefix: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=32).contains(&prefix.len()) && prefix.chars().all(good)
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn refused(what: &str, path: &std::path::Path, error: &std::io::Error) -> RedisError {
    let detail = format!("{what} {}: {error}", path.display());
    (ErrorKind::InvalidClientConfig, "not readable", detail).into()
}

async fn load(link: &mut MultiplexedConnection, text: &str) -> Result<String, RedisError> {
    redis::cmd("SCRIPT").arg("LOAD").arg(text).query_async(link).await
}

fn told(error: &RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Io => StoreError::Lost(error.to_string()),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreError::Wrong("its form"),
        _ => StoreError::Refused(match error.code() {
            Some(code) => format!("{code}: {error}"),
            None => error.to_string(),
        }),
    }
}

/// Keys and arguments of one call.
struct Request {
    /// The store's own first, which the whole call needs.
    keys: Vec<Vec<u8>>,
    own: usize,
    arguments: Vec<String>,
}

impl Request {
    fn command(&self, digest: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(digest).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key.as_slice());
        }
        for argument in &self.arguments {
            command.arg(argument);
        }
        command
    }

    /// An error of the call; the script itself tells of keys that are not the store's own.
    fn told(&self, error: &RedisError) -> StoreError {
        if error.code() != Some("WRONGTYPE") {
            return told(error);
        }
        let own = self.keys.iter().take(self.own).map(|key| key.escape_ascii().to_string());
        Foreign { key: own.collect::<Vec<_>>().join(" or ") }.into()
    }

    /// Keys that are asked for.
    fn asked(&self) -> &[Vec<u8>] {
        self.keys.get(self.own..).unwrap_or_default()
    }

    /// Prefix of the keys of a shard. The part in braces is what a cluster places keys by.
    fn shard(prefix: &str, shard: u16) -> String {
        format!("{prefix}:{{{shard:04}}}:")
    }

    fn add(&mut self, prefix: &str, name: &[u8], numbers: &[u64]) {
        self.keys.push([prefix.as_bytes(), name].concat());
        self.numbers(numbers.iter().copied());
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = u64>) {
        self.arguments.extend(numbers.map(|number| number.min(EXACT - 1).to_string()));
    }

    fn lease(prefix: &str, batch: &Batch) -> Self {
        let prefix = Self::shard(prefix, batch.shard);
        let since = time_or_none(batch.hot_since);
        let mut request = Self {
            keys: vec![format!("{prefix}!hot").into(), format!("{prefix}!boot").into()],
            own: 2,
            arguments: vec![since, prefix.len().to_string(), time_or_none(batch.deadline)],
        };
        for Ask { name, central, demand } in &batch.asks {
            let (units, micros) = (central.rate.units(), central.rate.micros());
            let (latest, before) = (demand.latest, demand.before);
            request.add(
                &prefix,
                name,
                &[
                    units,
                    micros,
                    central.burst,
                    central.epoch,
                    central.largest,
                    demand.epoch,
                    latest.used,
                    latest.back,
                    before.used,
                    before.back,
                    demand.owed,
                    demand.want,
                ],
            );
        }
        request
    }

    fn window(prefix: &str, batch: &WindowBatch) -> Self {
        let prefix = Self::shard(prefix, batch.shard);
        let mut request = Self {
            keys: vec![format!("{prefix}!serial").into()],
            own: 1,
            arguments: vec![time_or_none(batch.deadline)],
        };
        for WindowAsk { name, window, demand } in &batch.asks {
            let kind = match window.kind {
                WindowKind::Fixed => "fixed",
                WindowKind::SlidingCounter => "counter",
                WindowKind::SlidingLog => "log",
            };
            request.arguments.push(kind.to_owned());
            request.add(
                &prefix,
                name,
                &[
                    window.length,
                    window.quota,
                    window.largest,
                    window.life,
                    demand.want,
                    demand.backs.len() as u64,
                ],
            );
            request.numbers(demand.backs.iter().flat_map(|back| [back.epoch, back.units]));
        }
        request
    }
}

impl Request {
    fn node(prefix: &str, meeting: &Meeting) -> Self {
        // In braces: a cluster keeps both in one place.
        let keys = ["nodes", "changes"].map(|key| format!("{prefix}:{{node}}:{key}").into());
        let (word, text) = match &meeting.presence {
            Presence::Beat(beat) => ("beat", beat.text()),
            Presence::Stay => ("stay", String::new()),
            Presence::Leave => ("leave", String::new()),
        };
        let known = meeting.known.min(EXACT - 1).to_string();
        let mut arguments =
            vec![meeting::instance_text(meeting.instance), word.to_owned(), text, known];
        for change in &meeting.changes {
            let left = change.left().map(meeting::micros);
            arguments.push(left.map_or_else(|| "-1".to_owned(), |left| left.to_string()));
            arguments.push(change.to_string());
        }
        Self { keys: keys.into(), own: 2, arguments }
    }
}

/// A time of the store's clock as an argument; -1 for none.
fn time_or_none(time: Option<u64>) -> String {
    time.map_or_else(|| "-1".to_owned(), |time| time.min(EXACT - 1).to_string())
}

/// Answer of a script for limits: numbers, and hot keys.
type Reply = (Vec<i64>, Vec<HotKey>);

fn number(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        _ => Err(StoreError::Wrong("a number")),
    }
}

fn bytes(value: &Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.clone()),
        _ => Err(StoreError::Wrong("a text")),
    }
}

fn numbers(values: &[Value]) -> Result<Vec<i64>, StoreError> {
    values.iter().map(number).collect()
}

/// Takes an answer apart, of which nothing is believed.
fn reply(value: Value) -> Result<Reply, StoreError> {
    let Value::Array(parts) = value else { return Err(StoreError::Wrong("its form")) };
    let [Value::Array(head), Value::Array(hot)] = parts.as_slice() else {
        return Err(StoreError::Wrong("its parts"));
    };
    let head = numbers(head)?;
    let (pairs, []) = hot.as_chunks::<2>() else {
        return Err(StoreError::Wrong("its list of hot keys"));
    };
    let hot = pairs.iter().map(|pair| match pair {
        [Value::BulkString(name), Value::Int(at)] if *at >= 0 => {
            Ok(HotKey { name: name.as_slice().into(), at: at.unsigned_abs() })
        }
        _ => Err(StoreError::Wrong("a hot key")),
    });
    Ok((head, hot.collect::<Result<_, _>>()?))
}

/// Takes an answer of the script for nodes apart.
fn met(meeting: &Meeting, value: Value) -> Result<Met, StoreError> {
    let Value::Array(parts) = value else { return Err(StoreError::Wrong("its form")) };
    let [Value::Array(head), Value::Array(nodes), Value::Array(changes)] = parts.as_slice() else {
        return Err(StoreError::Wrong("its parts"));
    };
    let (nodes, []) = nodes.as_chunks::<3>() else {
        return Err(StoreError::Wrong("its list of nodes"));
    };
    let (changes, []) = changes.as_chunks::<4>() else {
        return Err(StoreError::Wrong("its list of changes"));
    };
    let node = |[name, at, text]: &[Value; 3]| -> Result<RawNode, StoreError> {
        Ok((bytes(name)?, number(at)?, bytes(text)?))
    };
    let change = |[at, name, end, text]: &[Value; 4]| -> Result<RawChange, StoreError> {
        Ok((number(at)?, bytes(name)?, number(end)?, bytes(text)?))
    };
    let nodes = nodes.iter().map(node).collect::<Result<_, _>>()?;
    let changes = changes.iter().map(change).collect::<Result<_, _>>()?;
    meeting::read(meeting, &numbers(head)?, nodes, changes)
}

impl Store for RedisStore {
    async fn exchange(&self, batch: &Batch) -> Result<Answers, StoreError> {
        batch.check()?;
        let request = Request::lease(&self.settings.prefix, batch);
        let wants = batch.asks.iter().map(|ask| ask.demand.want);
        let understood = |value| {
            let (numbers, hot) = reply(value)?;
            read(&numbers, hot, request.asked(), wants)
        };
        self.call(Script::Lease, &request, understood).await
    }

    async fn windows(&self, batch: &WindowBatch) -> Result<Answers, StoreError> {
        batch.check()?;
        let request = Request::window(&self.settings.prefix, batch);
        let wants = batch.asks.iter().map(|ask| ask.demand.want);
        let understood = |value| {
            let (numbers, hot) = reply(value)?;
            read(&numbers, hot, request.asked(), wants)
        };
        self.call(Script::Window, &request, understood).await
    }

    async fn meet(&self, meeting: &Meeting) -> Result<Met, StoreError> {
        meeting.check()?;
        let request = Request::node(&self.settings.prefix, meeting);
        self.call(Script::Node, &request, |value| met(meeting, value)).await
    }

    fn is_ready(&self) -> bool {
        self.state().waits().is_ok()
    }
}
