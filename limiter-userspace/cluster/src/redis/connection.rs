//! A connection to one server: how it is made, and which scripts its server has.

use std::io;
use std::path::Path;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError, TlsCertificates, Value,
};

use super::request::{Request, Script};
use super::settings::{Address, RedisSettings, Scripts};
use crate::keeping::Keeping;

/// A connection, and the digests of the scripts that its server has.
#[derive(Clone)]
pub(super) struct Connection {
    link: MultiplexedConnection,
    lease: Arc<str>,
    window: Arc<str>,
    node: Arc<str>,
    queue: Arc<str>,
}

impl Connection {
    /// Connects and loads the scripts. The caller limits the time.
    pub(super) async fn open(
        settings: &RedisSettings,
        address: &Address,
    ) -> Result<Self, RedisError> {
        let client = client(settings, address)?;
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut link = client.get_multiplexed_async_connection_with_config(&config).await?;
        let Scripts { lease, window, node, queue } = &settings.scripts;
        // All in one pipeline: a distant server must answer within the time of a call.
        let mut loads = redis::pipe();
        for text in [lease, window, node, queue] {
            loads.cmd("SCRIPT").arg("LOAD").arg(text);
        }
        let [lease, window, node, queue]: [String; 4] = loads.query_async(&mut link).await?;
        Ok(Self {
            link,
            lease: lease.into(),
            window: window.into(),
            node: node.into(),
            queue: queue.into(),
        })
    }

    /// Calls a script. If the server has forgotten it, nothing was done: it is loaded and called
    /// again.
    pub(super) async fn call(
        &mut self,
        scripts: &Scripts,
        request: &Request,
        asking: bool,
    ) -> Result<Value, RedisError> {
        let digest = match request.script {
            Script::Lease => &self.lease,
            Script::Window => &self.window,
            Script::Node => &self.node,
            Script::Queue => &self.queue,
        };
        let digest = Arc::clone(digest);
        match self.send(request, &digest, asking).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let digest = load(&mut self.link, scripts.text(request.script)).await?;
                self.send(request, &digest, asking).await
            }
            outcome => outcome,
        }
    }

    /// Sends a call. With `asking`, the server answers though it does not have the slot yet. Both
    /// commands go out together, so that no other call comes between them.
    async fn send(
        &mut self,
        request: &Request,
        digest: &str,
        asking: bool,
    ) -> Result<Value, RedisError> {
        let command = request.command(digest);
        if !asking {
            return self.link.send_packed_command(&command).await?.extract_error();
        }
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command);
        let answers = self.link.send_packed_commands(&both, 0, 2).await?;
        let answers = answers.into_iter().map(Value::extract_error);
        answers.collect::<Result<Vec<_>, _>>()?.pop().ok_or_else(|| {
            (ErrorKind::UnexpectedReturnType, "no answer to the call after ASKING").into()
        })
    }

    /// Asks how the server keeps keys, by whichever command its access list allows.
    pub(super) async fn keeping(&mut self) -> Result<Option<Keeping>, RedisError> {
        let info = redis::cmd("INFO").arg(&["memory", "persistence"]).to_owned();
        let refused = match info.query_async::<String>(&mut self.link).await {
            Ok(text) => return Ok(Keeping::read(text.lines().filter_map(|of| of.split_once(':')))),
            Err(error) => error,
        };
        let names = ["maxmemory-policy", "maxmemory", "appendonly"];
        let config = redis::cmd("CONFIG").arg("GET").arg(&names).to_owned();
        match config.query_async::<Vec<(String, String)>>(&mut self.link).await {
            Ok(pairs) => Ok(Keeping::read(pairs.iter().map(|(name, value)| (&**name, &**value)))),
            Err(_) => Err(refused),
        }
    }

    /// Asks which server of a cluster has which slots.
    pub(super) async fn slots(&mut self) -> Result<Value, RedisError> {
        redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut self.link).await
    }
}

async fn load(link: &mut MultiplexedConnection, text: &str) -> Result<String, RedisError> {
    redis::cmd("SCRIPT").arg("LOAD").arg(text).query_async(link).await
}

fn client(settings: &RedisSettings, address: &Address) -> Result<Client, RedisError> {
    let mut user = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(name) = &settings.user {
        user = user.set_username(name);
    }
    if let Some(path) = &settings.password {
        let text = std::fs::read_to_string(path)
            .map_err(|error| refused("the password's file", path, &error))?;
        user = user.set_password(text.trim_end_matches(['\r', '\n']));
    }
    let place = match address.clone() {
        Address::Unix(path) => ConnectionAddr::Unix(path),
        Address::Tcp { host, port } => ConnectionAddr::Tcp(host, port),
        Address::Tls { host, port, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        }
    };
    // Calls are small and must not wait for each other.
    let tcp = TcpSettings::default().set_nodelay(true);
    let info = place.into_connection_info()?.set_redis_settings(user).set_tcp_settings(tcp);
    let Address::Tls { authority, .. } = address else {
        return Client::open(info);
    };
    // If this process already has a provider, it is just as good.
    let _same = rustls::crypto::ring::default_provider().install_default();
    let root_cert = match authority {
        Some(path) => Some(
            std::fs::read(path).map_err(|error| refused("the authority's file", path, &error))?,
        ),
        None => None,
    };
    Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
}

fn refused(what: &str, path: &Path, error: &io::Error) -> RedisError {
    let detail = format!("{what} {}: {error}", path.display());
    (ErrorKind::InvalidClientConfig, "not readable", detail).into()
}
