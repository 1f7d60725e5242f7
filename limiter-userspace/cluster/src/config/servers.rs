//! Servers of the store: the part `redis` of a node's file.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{Wrong, wrong};
use crate::redis::{Address, RedisSettings, Scripts, Servers, is_prefix};

/// The field of the servers of a cluster.
const CLUSTER: &str = "redis.cluster";
/// Most servers of a cluster in the file: one that answers names all others.
const SEEDS_MAX: usize = 100;

/// The servers, and how they are used.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Redis {
    address: Option<Spanned<String>>,
    cluster: Option<Spanned<Vec<Spanned<String>>>>,
    tls: Option<Tls>,
    user: Option<Spanned<String>>,
    password_file: Option<Spanned<PathBuf>>,
    prefix: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    ca_file: Option<Spanned<PathBuf>>,
}

impl Redis {
    /// Checks all fields. `timeout` is the longest time of a call.
    pub(super) fn check(self, timeout: Duration) -> Result<RedisSettings, Wrong> {
        let prefix = match self.prefix {
            None => "rl".to_owned(),
            Some(prefix) if is_prefix(&prefix.value) => prefix.value,
            Some(prefix) => {
                let rule = "write 1 to 32 letters, digits, - and _";
                return Err(wrong(&prefix, "redis.prefix", rule));
            }
        };
        let user = match self.user {
            Some(user) if user.value.is_empty() || user.value.contains(char::is_whitespace) => {
                return Err(wrong(&user, "redis.user", "write a name without spaces, or no field"));
            }
            user => user.map(|user| user.value),
        };
        if let (Some(user), None) = (&user, &self.password_file) {
            let problem = format!("missing beside `user: {user}`: name the file of its password");
            return Err(Wrong(0, "redis.password_file", problem));
        }
        let password = match self.password_file {
            Some(file) => Some(absolute(file, "redis.password_file")?),
            None => None,
        };
        let tls = match self.tls {
            Some(Tls { ca_file: Some(file) }) => {
                Some(Authority::File(absolute(file, "redis.tls.ca_file")?))
            }
            Some(Tls { ca_file: None }) => Some(Authority::System),
            None => None,
        };
        let servers = match (self.address, self.cluster) {
            (Some(address), None) => {
                Servers::One(of_text(&address, "redis.address", tls.as_ref())?)
            }
            (None, Some(cluster)) => Servers::Cluster(seeds(&cluster, tls.as_ref())?),
            (None, None) => {
                let problem = "missing: write HOST:PORT, or the path of a unix socket; or the \
                               servers of a Redis Cluster under `cluster`";
                return Err(Wrong(0, "redis.address", problem.to_owned()));
            }
            (Some(_), Some(cluster)) => {
                let problem = "not beside `address`: name one server there, or those of a Redis \
                               Cluster here";
                return Err(wrong(&cluster, CLUSTER, problem));
            }
        };
        let scripts = Scripts::default();
        Ok(RedisSettings { servers, user, password, prefix, timeout, scripts })
    }
}

fn absolute(file: Spanned<PathBuf>, field: &'static str) -> Result<PathBuf, Wrong> {
    if file.value.is_absolute() {
        Ok(file.value)
    } else {
        Err(wrong(&file, field, "write the path from the root on, as /etc/limiter/FILE"))
    }
}

enum Authority {
    File(PathBuf),
    System,
}

fn seeds(
    list: &Spanned<Vec<Spanned<String>>>,
    tls: Option<&Authority>,
) -> Result<Vec<Address>, Wrong> {
    if list.value.is_empty() || list.value.len() > SEEDS_MAX {
        let problem = format!("write 1 to {SEEDS_MAX} servers, as [HOST:PORT, HOST:PORT]");
        return Err(wrong(list, CLUSTER, problem));
    }
    let seed = |text: &Spanned<String>| match of_text(text, CLUSTER, tls)? {
        Address::Unix(_) => {
            let problem = "servers of a cluster have no unix sockets for it: write HOST:PORT, or \
                           [IPV6]:PORT";
            Err(wrong(text, CLUSTER, problem))
        }
        address => Ok(address),
    };
    list.value.iter().map(seed).collect()
}

/// Parses the address of a server. A path is a unix socket.
fn of_text(
    text: &Spanned<String>,
    field: &'static str,
    tls: Option<&Authority>,
) -> Result<Address, Wrong> {
    if text.value.starts_with('/') {
        if tls.is_some() {
            return Err(wrong(text, field, "a unix socket has no TLS: take `tls` out"));
        }
        return Ok(Address::Unix(PathBuf::from(&text.value)));
    }
    let rule = "write HOST:PORT, [IPV6]:PORT, or the path of a unix socket";
    let Some((host, port)) = text.value.rsplit_once(':') else {
        return Err(wrong(text, field, rule));
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let good = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(plain),
    };
    let port = port.parse().ok().filter(|port: &u16| good && *port > 0);
    let Some(port) = port else { return Err(wrong(text, field, rule)) };
    let host = bare.unwrap_or(host).to_owned();
    Ok(match tls {
        None => Address::Tcp { host, port },
        Some(Authority::System) => Address::Tls { host, port, authority: None },
        Some(Authority::File(file)) => Address::Tls { host, port, authority: Some(file.clone()) },
    })
}
