//! Configuration of a node: the file of `--cluster` of `limiter run` and `limiter serve`. Reading
//! and checking it connects to nothing.

mod servers;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::Deserialize;
use serde_saphyr::{Spanned, options};

use self::servers::Redis;
use super::membership::is_node_name;
use super::redis::RedisSettings;
use super::settings::NodeSettings;
use super::sign::Keys;

/// Largest file in bytes.
const BYTES_MAX: u64 = 64 * 1024;
/// Shortest and longest timeout of a call, in milliseconds.
const TIMEOUT: std::ops::RangeInclusive<u128> = 10..=10_000;
/// Permission bits that a file with keys must not have: all for others, and writing for its group.
/// In files from systemd, the group's bits reflect an access list.
const READERS: u32 = 0o027;
const SHARDS_MAX: i64 = 1024;

/// Why a file is rejected in a build without a Redis client, and the remedy.
pub(super) const LEFT_OUT: &str =
    "this limiter was built without shared limits: build it with the feature `cluster`";

/// A checked node and store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The servers, and how they are used.
    pub redis: RedisSettings,
    /// The node.
    pub node: NodeSettings,
    /// File with the keys of the nodes.
    pub key_file: Option<PathBuf>,
}

/// Why a file is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}: name a file that limiter may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// This build has no Redis client.
    #[error("{}: {LEFT_OUT}", path.display())]
    LeftOut {
        /// The file.
        path: PathBuf,
    },
    /// The file is not valid YAML of this form.
    #[error("{}{}: {message}", path.display(), place(*line))]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Line; 0 if unknown.
        line: u64,
        /// Mistake and remedy.
        message: String,
    },
    /// The keys of the nodes cannot be used.
    #[error("{}: key_file: {problem}", path.display())]
    Key {
        /// The file with the keys.
        path: PathBuf,
        /// Mistake and remedy.
        problem: String,
    },
    /// A field is wrong.
    #[error("{}{}: {field}: {problem}", path.display(), place(*line))]
    Field {
        /// The file.
        path: PathBuf,
        /// Line; 0 if unknown.
        line: u64,
        /// The field, with the fields around it.
        field: &'static str,
        /// Mistake and remedy.
        problem: String,
    },
}

fn keys(path: &Path) -> Result<Keys, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let bad = |problem: String| ConfigError::Key { path: path.to_owned(), problem };
    let file = OpenOptions::new()
        .read(true)
        // Opening a pipe must not wait.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() {
        return Err(bad("it is no file: name one".to_owned()));
    }
    let mode = about.permissions().mode() & 0o777;
    if mode & READERS != 0 {
        return Err(bad(format!(
            "its permissions are {mode:04o}, so others may read or change it: chmod 0600"
        )));
    }
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    Keys::parse(&text).map_err(|problem| bad(problem.to_owned()))
}

fn place(line: u64) -> String {
    if line == 0 { String::new() } else { format!(":{line}") }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    redis: Redis,
    node: Option<Spanned<String>>,
    nodes: Option<Spanned<i64>>,
    shards: Option<Spanned<i64>>,
    key_file: Option<Spanned<PathBuf>>,
    timeout: Option<Spanned<String>>,
}

/// A mistake in a field, still without the file's name.
struct Wrong(u64, &'static str, String);

fn wrong<T>(value: &Spanned<T>, field: &'static str, problem: impl Into<String>) -> Wrong {
    Wrong(value.referenced.line(), field, problem.into())
}

impl Config {
    /// Reads and checks a file. Rejects settings that this build cannot carry out (no `redis`
    /// feature).
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        if !cfg!(feature = "redis") {
            return Err(ConfigError::LeftOut { path: path.to_owned() });
        }
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        let mut config = Self::parse(path, &text)?;
        config.node.keys = config.key_file.as_deref().map(keys).transpose()?;
        Ok(config)
    }

    /// Checks the text of the file at `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let yaml = |line, message| ConfigError::Yaml { path: path.to_owned(), line, message };
        if u64::try_from(text.len()).is_ok_and(|length| length > BYTES_MAX) {
            let message = "more than 64 KiB, which is no file for --cluster: name the right one";
            return Err(yaml(0, message.to_owned()));
        }
        let options = options! { strict_booleans: true, with_snippet: false };
        let fields: Fields =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| {
                let error = error.without_snippet();
                let line = error.location().map_or(0, |location| location.line());
                yaml(line, reported(error))
            })?;
        fields.check().map_err(|Wrong(line, field, problem)| ConfigError::Field {
            path: path.to_owned(),
            line,
            field,
            problem,
        })
    }
}

/// Message of the YAML reader, in one line and without the position.
fn reported(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::{MessageFormatter as _, UserMessageFormatter};

    let message = UserMessageFormatter.format_message(error);
    let words: Vec<&str> = message.split_whitespace().collect();
    format!("{}: docs/cluster-setup.md has the fields", words.join(" "))
}

impl Fields {
    fn check(self) -> Result<Config, Wrong> {
        let timeout = match &self.timeout {
            None => Duration::from_millis(350),
            Some(text) => humantime::parse_duration(&text.value)
                .ok()
                .filter(|time| TIMEOUT.contains(&time.as_millis()))
                .ok_or_else(|| wrong(text, "timeout", "write 10ms to 10s, as 350ms"))?,
        };
        let number = |value: &Option<Spanned<i64>>, field, most: i64, default: Option<u16>| {
            let range = format!("write 1 to {most}");
            let Some(value) = value else {
                return default.ok_or_else(|| {
                    Wrong(0, field, format!("missing: {range}, the nodes that there are at least"))
                });
            };
            let good = u16::try_from(value.value).ok().filter(|number| *number > 0);
            good.filter(|number| i64::from(*number) <= most).ok_or_else(|| {
                wrong(value, field, format!("{} is out of range: {range}", value.value))
            })
        };
        let nodes = number(&self.nodes, "nodes", 65_535, None)?;
        let shards = number(&self.shards, "shards", SHARDS_MAX, Some(16))?;
        let name_rule = "write 1 to 64 letters, digits, -, _ and .";
        let name = match &self.node {
            Some(name) if is_node_name(&name.value) => name.value.clone(),
            Some(name) => return Err(wrong(name, "node", name_rule)),
            None => {
                let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
                if !is_node_name(&name) {
                    let problem = format!("the host's name {name:?} does not do: {name_rule}");
                    return Err(Wrong(0, "node", problem));
                }
                name
            }
        };
        let key_file = match self.key_file {
            Some(file) if file.value.is_absolute() => Some(file.value),
            Some(file) => {
                return Err(wrong(&file, "key_file", "write the path from the root"));
            }
            None => None,
        };
        let redis = self.redis.check(timeout)?;
        let node = NodeSettings { name, nodes, shards, timeout, keys: None, newest: 0 };
        Ok(Config { redis, node, key_file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::{Address, Servers};

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("c.yaml"), text).map_err(|error| error.to_string())
    }

    const LEAST: &str = "redis: {address: /run/redis.sock}\nnodes: 3\n";

    #[test]
    fn the_least_file_has_the_defaults() {
        let config = parse(&format!("{LEAST}node: a\n")).expect("good");
        let node = NodeSettings {
            name: "a".to_owned(),
            nodes: 3,
            shards: 16,
            timeout: Duration::from_millis(350),
            keys: None,
            newest: 0,
        };
        assert_eq!((config.node, config.key_file), (node, None));
        assert_eq!(config.redis.servers, Servers::One(Address::Unix("/run/redis.sock".into())));
        assert_eq!((config.redis.prefix.as_str(), config.redis.user), ("rl", None));
        assert_eq!(config.redis.timeout, Duration::from_millis(350));
        // The default is the host's name, if that is valid.
        if let Ok(config) = parse(LEAST) {
            assert!(!config.node.name.is_empty());
        }
    }

    #[test]
    fn the_file_of_the_page_is_good() {
        let page = include_str!("../../../docs/cluster-setup.md");
        let (_, rest) = page.split_once("```yaml\n").expect("there is one");
        let (text, _) = rest.split_once("```").expect("it ends");
        assert_eq!(parse(text).expect("good").node.name, "fra-1");
    }

    #[test]
    fn each_field_is_taken() {
        let text = "
redis:
  address: '[2001:db8::1]:6380'
  tls: {ca_file: /etc/limiter/ca.pem}
  user: limiter
  password_file: /etc/limiter/password
  prefix: edge
node: fra-1
nodes: 65535
shards: 64
key_file: /etc/limiter/cluster-key
timeout: 1s
";
        let config = parse(text).expect("good");
        let host = "2001:db8::1".to_owned();
        let authority = Some("/etc/limiter/ca.pem".into());
        let tls = Address::Tls { host, port: 6380, authority };
        assert_eq!(config.redis.servers, Servers::One(tls));
        assert_eq!(config.redis.user.as_deref(), Some("limiter"));
        assert_eq!(config.redis.password, Some("/etc/limiter/password".into()));
        assert_eq!((config.redis.prefix.as_str(), config.node.name.as_str()), ("edge", "fra-1"));
        assert_eq!((config.node.nodes, config.node.shards), (65_535, 64));
        assert_eq!(config.key_file, Some("/etc/limiter/cluster-key".into()));
        assert_eq!(config.redis.timeout, Duration::from_secs(1));
        let text = "redis: {address: 'redis.example.org:6379', tls: {}}\nnodes: 2\nnode: b\n";
        let host = "redis.example.org".to_owned();
        let tls = Address::Tls { host, port: 6379, authority: None };
        assert_eq!(parse(text).expect("good").redis.servers, Servers::One(tls));
    }

    #[test]
    fn the_servers_of_a_cluster_are_taken() {
        let text = "
redis:
  cluster: ['192.0.2.1:6379', '[2001:db8::2]:6380', redis-3.example.org:6379]
  tls: {ca_file: /etc/limiter/ca.pem}
nodes: 2
node: a
";
        let of = |host: &str, port| Address::Tls {
            host: host.to_owned(),
            port,
            authority: Some("/etc/limiter/ca.pem".into()),
        };
        let servers =
            [of("192.0.2.1", 6379), of("2001:db8::2", 6380), of("redis-3.example.org", 6379)];
        assert_eq!(parse(text).expect("good").redis.servers, Servers::Cluster(servers.into()));
        let plain = parse("redis: {cluster: ['a:1']}\nnodes: 2\nnode: a\n").expect("good");
        let tcp = Address::Tcp { host: "a".to_owned(), port: 1 };
        assert_eq!(plain.redis.servers, Servers::Cluster(vec![tcp]));
    }

    #[test]
    fn a_mistake_is_reported_with_file_line_field_and_remedy() {
        for (text, reported) in [
            ("redis: {address: /s}\n", "c.yaml: nodes: missing: write 1 to 65535"),
            ("redis: {address: /s}\nnodes: 0\n", "c.yaml:2: nodes: 0 is out of range: write 1"),
            ("redis: {address: /s}\nnodes: 65536\n", "nodes: 65536 is out of range"),
            ("redis: {}\nnodes: 2\nnode: a\n", "redis.address: missing: write HOST:PORT"),
            ("redis: {address: x}\nnodes: 2\nnode: a\n", "c.yaml:1: redis.address: write HOST"),
            ("redis: {address: 'x:0'}\nnodes: 2\nnode: a\n", "redis.address: write HOST"),
            ("redis: {address: '::1:5'}\nnodes: 2\nnode: a\n", "redis.address: write HOST"),
            ("redis: {address: /s, tls: {}}\nnodes: 2\nnode: a\n", "a unix socket has no TLS"),
            ("redis: {cluster: []}\nnodes: 2\nnode: a\n", "redis.cluster: write 1 to 100 servers"),
            ("redis:\n  cluster: [a:1, b]\nnodes: 2\n", "c.yaml:2: redis.cluster: write HOST"),
            ("redis: {cluster: [/s]}\nnodes: 2\nnode: a\n", "redis.cluster: servers of a cluster"),
            (
                "redis: {address: /s, cluster: ['a:1']}\nnodes: 2\nnode: a\n",
                "redis.cluster: not beside `address`",
            ),
            ("redis: {address: /s, user: u}\nnodes: 2\nnode: a\n", "redis.password_file: missing"),
            (
                "redis: {address: /s, password_file: p}\nnodes: 2\nnode: a\n",
                "redis.password_file: write the path from the root",
            ),
            ("redis: {address: /s, prefix: 'a b'}\nnodes: 2\nnode: a\n", "redis.prefix: write 1"),
            ("redis: {address: /s}\nnodes: 2\nnode: 'a b'\n", "c.yaml:3: node: write 1 to 64"),
            ("redis: {address: /s}\nnodes: 2\nshards: 1025\n", "c.yaml:3: shards: 1025 is out"),
            ("redis: {address: /s}\nnodes: 2\ntimeout: 350\n", "c.yaml:3: timeout: write 10ms"),
            ("redis: {address: /s}\nnodes: 2\ntimeout: 11s\n", "c.yaml:3: timeout: write 10ms"),
            (
                "redis: {address: /s}\nnodes: 2\nkey_file: k\n",
                "c.yaml:3: key_file: write the path from the root",
            ),
            ("redis: {address: /s}\nnodes: 2\nname: a\n", "c.yaml:3: "),
            ("redis: {adress: /s}\nnodes: 2\n", "c.yaml:1: "),
            ("nodes: 2\n", "redis"),
            ("", "c.yaml"),
            ("nodes: [", "c.yaml"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(reported), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let long = format!("# {}\n{LEAST}", "x".repeat(70_000));
        assert!(parse(&long).expect_err("too long").contains("64 KiB"));
        let missing = Config::load(Path::new("/nonexistent/c.yaml")).expect_err("no file");
        assert!(missing.to_string().starts_with("/nonexistent/c.yaml: "), "{missing}");
    }

    #[cfg(feature = "redis")]
    #[test]
    fn keys_are_read_from_a_file_that_nobody_else_reads() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, key) = (directory.path().join("c.yaml"), directory.path().join("key"));
        let text = format!("{LEAST}node: a\nkey_file: {}\n", key.display());
        std::fs::write(&file, text).expect("written");
        let load = || Config::load(&file).map_err(|error| error.to_string());
        let missing = load().expect_err("no key");
        assert!(missing.contains("key: ") && missing.contains("name a file"), "{missing}");
        std::fs::write(&key, "0123456789abcdef0123456789abcdef\n").expect("written");
        let set = |mode| {
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("set");
        };
        for mode in [0o644, 0o604, 0o602, 0o620] {
            set(mode);
            let open = load().expect_err("others may read or change it");
            assert!(open.contains(&format!("{mode:04o}")) && open.contains("0600"), "{open}");
        }
        // Modes of files from systemd.
        for mode in [0o600, 0o400, 0o440] {
            set(mode);
            assert!(load().expect("good").node.keys.is_some(), "{mode:o}");
        }
        std::fs::write(&key, "short\n").expect("written");
        set(0o600);
        assert!(load().expect_err("short").contains("openssl rand -hex 32"));
        std::fs::remove_file(&key).expect("removed");
        std::fs::create_dir(&key).expect("made");
        assert!(load().expect_err("a directory").contains("no file"));
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn a_file_that_nobody_would_follow_is_refused() {
        let refused = Config::load(Path::new("/etc/limiter/c.yaml")).expect_err("no client");
        assert_eq!(
            refused.to_string(),
            "/etc/limiter/c.yaml: this limiter was built without shared limits: build it with the \
             feature `cluster`"
        );
    }
}
