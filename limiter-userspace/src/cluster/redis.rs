//! Store in Redis 7.0 or newer, or Valkey: the scripts `lease.lua` and `window.lua` over one
//! connection, which is made anew when it breaks.
//!
//! A call is made once, whatever happens: only an answer `NOSCRIPT` says that nothing was done, and
//! is followed by loading the script and calling again.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError, TlsCertificates, Value,
};

use super::rate::EXACT;
use super::store::{Answers, Ask, Batch, HotKey, Store, StoreError, WindowAsk, WindowBatch, read};
use super::window::WindowKind;

/// The script for leases, as it is sent to the server.
pub const LEASE: &str = include_str!("lease.lua");
/// The script for windows, as it is sent to the server.
pub const WINDOW: &str = include_str!("window.lua");

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
    /// The scripts: [`LEASE`] and [`WINDOW`], but for tests with a clock of their own.
    pub scripts: Scripts,
}

/// Text of the scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scripts {
    /// For leases.
    pub lease: String,
    /// For windows.
    pub window: String,
}

impl Default for Scripts {
    fn default() -> Self {
        Self { lease: LEASE.to_owned(), window: WINDOW.to_owned() }
    }
}

struct Connection {
    link: MultiplexedConnection,
    lease: String,
    window: String,
}

/// Store in a server of Redis or Valkey.
pub struct RedisStore {
    settings: RedisSettings,
    connection: Option<Connection>,
    pause: Duration,
    not_before: Option<Instant>,
    calls: u64,
}

impl RedisStore {
    /// A store that is not connected yet: its first call connects.
    pub fn new(settings: RedisSettings) -> Result<Self, StoreError> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !(1..=32).contains(&settings.prefix.len()) || !settings.prefix.chars().all(good) {
            return Err(StoreError::Batch("a prefix is 1 to 32 letters, digits, - and _"));
        }
        Ok(Self { settings, connection: None, pause: PAUSE_FIRST, not_before: None, calls: 0 })
    }

    /// Calls of scripts so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// True if there is a connection, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    async fn call(&mut self, lease: bool, request: &Request) -> Result<Reply, StoreError> {
        if let Some(time) = self.not_before.filter(|_| self.connection.is_none()) {
            let left = time.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Err(StoreError::Lost(format!("next attempt in {} ms", left.as_millis())));
            }
        }
        self.calls += 1;
        let timeout = self.settings.timeout;
        let outcome = match tokio::time::timeout(timeout, self.attempt(lease, request)).await {
            Ok(Ok(value)) => reply(value),
            Ok(Err(error)) => Err(told(&error)),
            Err(_) => Err(StoreError::Late(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))),
        };
        match &outcome {
            Ok(_) => self.pause = PAUSE_FIRST,
            // An answer that comes late must not be taken for that of the next call.
            Err(_) => self.disconnect(),
        }
        outcome
    }

    /// Ends the connection. The next one is made after a pause, longer each time, between half and
    /// all of it: nodes that lost a server together do not come back together.
    fn disconnect(&mut self) {
        self.connection = None;
        let part = RandomState::new().build_hasher().finish() % 512;
        let factor = u32::try_from(512 + part).unwrap_or(1024);
        self.not_before = Some(Instant::now() + self.pause * factor / 1024);
        self.pause = (self.pause * 2).min(PAUSE_LONGEST);
    }

    /// Ends the connection to a server that answers what no script of ours does.
    fn believe(&mut self, answers: Result<Answers, StoreError>) -> Result<Answers, StoreError> {
        if answers.is_err() {
            self.disconnect();
        }
        answers
    }

    async fn attempt(&mut self, lease: bool, request: &Request) -> Result<Value, RedisError> {
        if self.connection.is_none() {
            self.connection = Some(self.connect().await?);
        }
        let Some(connection) = &mut self.connection else {
            return Err((ErrorKind::Io, "no connection").into());
        };
        let digest = if lease { &connection.lease } else { &connection.window };
        let outcome = connection.link.send_packed_command(&request.command(digest)).await;
        match outcome.and_then(Value::extract_error) {
            Err(error) if error.code() == Some("NOSCRIPT") => {}
            outcome => return outcome,
        }
        let scripts = &self.settings.scripts;
        let text = if lease { &scripts.lease } else { &scripts.window };
        let digest = load(&mut connection.link, text).await?;
        let value = connection.link.send_packed_command(&request.command(&digest)).await?;
        value.extract_error()
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        let client = self.client()?;
        // There is one limit on time, around all of it.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut link = client.get_multiplexed_async_connection_with_config(&config).await?;
        let lease = load(&mut link, &self.settings.scripts.lease).await?;
        let window = load(&mut link, &self.settings.scripts.window).await?;
        Ok(Connection { link, lease, window })
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
    keys: Vec<Vec<u8>>,
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

    /// Prefix of the keys of a shard. The part in braces is what a cluster places keys by.
    fn shard(prefix: &str, shard: u16) -> String {
        format!("{prefix}:{{{shard:04}}}:")
    }

    fn add(&mut self, prefix: &str, name: &[u8], numbers: &[u64]) {
        self.keys.push([prefix.as_bytes(), name].concat());
        self.arguments.extend(numbers.iter().map(|number| number.min(&(EXACT - 1)).to_string()));
    }

    fn lease(prefix: &str, batch: &Batch) -> Self {
        let prefix = Self::shard(prefix, batch.shard);
        let since = batch
            .hot_since
            .map_or_else(|| "-1".to_owned(), |since| since.min(EXACT - 1).to_string());
        let mut request = Self {
            keys: vec![format!("{prefix}!hot").into(), format!("{prefix}!boot").into()],
            arguments: vec![since, prefix.len().to_string()],
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
        let mut request =
            Self { keys: vec![format!("{prefix}!serial").into()], arguments: Vec::new() };
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
                    demand.epoch,
                    demand.back,
                    demand.want,
                ],
            );
        }
        request
    }
}

/// Answer of a script: numbers, and hot keys.
type Reply = (Vec<i64>, Vec<HotKey>);

/// Takes an answer apart, of which nothing is believed.
fn reply(value: Value) -> Result<Reply, StoreError> {
    let Value::Array(parts) = value else { return Err(StoreError::Wrong("its form")) };
    let [Value::Array(numbers), Value::Array(hot)] = parts.as_slice() else {
        return Err(StoreError::Wrong("its parts"));
    };
    let number = |value: &Value| match value {
        Value::Int(number) => Ok(*number),
        _ => Err(StoreError::Wrong("a number")),
    };
    let numbers = numbers.iter().map(number).collect::<Result<_, _>>()?;
    let (pairs, []) = hot.as_chunks::<2>() else {
        return Err(StoreError::Wrong("its list of hot keys"));
    };
    let hot = pairs.iter().map(|pair| match pair {
        [Value::BulkString(name), Value::Int(at)] if *at >= 0 => {
            Ok(HotKey { name: name.as_slice().into(), at: at.unsigned_abs() })
        }
        _ => Err(StoreError::Wrong("a hot key")),
    });
    Ok((numbers, hot.collect::<Result<_, _>>()?))
}

impl Store for RedisStore {
    async fn exchange(&mut self, batch: &Batch) -> Result<Answers, StoreError> {
        batch.check()?;
        let request = Request::lease(&self.settings.prefix, batch);
        let (numbers, hot) = self.call(true, &request).await?;
        self.believe(read(&numbers, hot, batch.asks.iter().map(|ask| ask.demand.want)))
    }

    async fn windows(&mut self, batch: &WindowBatch) -> Result<Answers, StoreError> {
        batch.check()?;
        let request = Request::window(&self.settings.prefix, batch);
        let (numbers, hot) = self.call(false, &request).await?;
        self.believe(read(&numbers, hot, batch.asks.iter().map(|ask| ask.demand.want)))
    }
}
