//! A real redis-server of a test's own: a unix socket in a temporary directory and no port, ended
//! by its process.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use limiter_cluster::redis::{Address, RedisSettings, RedisStore, Scripts, Servers};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(crate) struct Server {
    directory: TempDir,
    child: Child,
    options: Vec<String>,
}

impl Server {
    /// `None`, and a line that says so, where there is no redis-server; in CI there must be one.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        let found = Command::new("redis-server").arg("--version").output();
        if found.is_err() {
            let missing = "redis-server is not installed: `cargo xtask setup` does that";
            let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
            assert!(!in_ci, "{missing}");
            eprintln!("NOT RUN: {missing}");
            return None;
        }
        let directory = TempDir::new().expect("a temporary directory");
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let child = spawn(&directory, &options);
        let server = Self { directory, child, options };
        server.wait();
        Some(server)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < end, "redis-server does not listen after 20 s");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("it has ended");
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &process]).status();
        assert!(status.expect("kill runs").success());
    }

    pub(crate) fn restart(&mut self) {
        let _missing = std::fs::remove_file(self.socket());
        self.child = spawn(&self.directory, &self.options);
        self.wait();
    }

    pub(crate) fn settings(&self) -> RedisSettings {
        RedisSettings {
            servers: Servers::One(Address::Unix(self.socket())),
            user: None,
            password: None,
            prefix: "rl".to_owned(),
            timeout: Duration::from_millis(350),
            scripts: Scripts::default(),
        }
    }

    pub(crate) fn store(&self) -> RedisStore {
        RedisStore::new(self.settings()).expect("a good prefix")
    }

    /// A connection for what is no limiter's business.
    pub(crate) fn admin(&self, runtime: &Runtime) -> Admin {
        self.try_admin(runtime).expect("it listens")
    }

    /// The same of a server that may have ended since: it makes its socket before it finds that a
    /// port is in use.
    pub(crate) fn try_admin(&self, runtime: &Runtime) -> redis::RedisResult<Admin> {
        let client = redis::Client::open(format!("unix://{}", self.socket().display()))?;
        let link = runtime.block_on(client.get_multiplexed_async_connection())?;
        Ok(Admin { link })
    }
}

fn spawn(directory: &TempDir, options: &[String]) -> Child {
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--unixsocket"]).arg(directory.path().join("socket"));
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(directory.path());
    command.args(options).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("redis-server starts")
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

pub(crate) struct Admin {
    link: redis::aio::MultiplexedConnection,
}

impl Admin {
    pub(crate) async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        command.query_async(&mut self.link).await.expect("the server does it")
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
