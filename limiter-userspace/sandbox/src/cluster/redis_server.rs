//! A real redis-server of its own for a run: a unix socket in a directory and no port. It starts in
//! one of the run's namespaces, because the processes of those end with the run.

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::command;
use crate::netns::Netns;

/// Time within which the server listens, also on a busy machine.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);

/// A server, ended on drop.
#[derive(Debug)]
pub struct RedisServer {
    netns: Arc<Netns>,
    directory: PathBuf,
    options: Vec<String>,
    child: Child,
}

impl RedisServer {
    /// Fails if redis-server is not installed, and names the package.
    ///
    /// # Errors
    ///
    /// When there is no redis-server.
    pub fn check() -> Result<()> {
        command::run("redis-server", ["--version"]).map(drop).context(
            "there is no redis-server: install the package redis-server, as `cargo xtask setup` \
             does",
        )
    }

    /// Starts a server and waits until it listens.
    ///
    /// # Errors
    ///
    /// When there is no redis-server, or it does not listen within half a minute.
    pub fn start(netns: &Arc<Netns>, directory: &Path) -> Result<Self> {
        Self::start_with(netns, directory, &[])
    }

    /// Starts a server with further options on its command line.
    ///
    /// # Errors
    ///
    /// As [`RedisServer::start`].
    pub fn start_with(netns: &Arc<Netns>, directory: &Path, options: &[&str]) -> Result<Self> {
        Self::check()?;
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let child = spawn(netns, directory, &options)?;
        let (netns, directory) = (Arc::clone(netns), directory.to_owned());
        let server = Self { netns, directory, options, child };
        server.wait()?;
        Ok(server)
    }

    /// Sends the server a command through `redis-cli` and returns its answer.
    ///
    /// # Errors
    ///
    /// When the server refuses the command, or there is no `redis-cli`.
    pub fn ask<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Result<String> {
        let mut command = Command::new("redis-cli");
        command.args(["-e", "-s"]).arg(self.socket()).args(words);
        Ok(command::checked(&mut command)?.trim().to_owned())
    }

    /// Path of the unix socket that the server listens on.
    pub fn socket(&self) -> PathBuf {
        socket(&self.directory)
    }

    fn wait(&self) -> Result<()> {
        let deadline = Instant::now() + LISTENS_WITHIN;
        while UnixStream::connect(self.socket()).is_err() {
            ensure!(
                Instant::now() < deadline,
                "redis-server does not listen after {LISTENS_WITHIN:?}"
            );
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("cannot send {signal:?} to redis-server"))
    }

    /// Stops the server with SIGSTOP: connections stay open, and no request is answered.
    ///
    /// # Errors
    ///
    /// When the server has ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets the server continue.
    ///
    /// # Errors
    ///
    /// When the server has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Ends the server with SIGKILL: all its data is lost.
    ///
    /// # Errors
    ///
    /// When the system does not report its end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts an empty server in place of an ended one.
    ///
    /// # Errors
    ///
    /// As [`RedisServer::start`].
    pub fn restart(&mut self) -> Result<()> {
        std::fs::remove_file(self.socket()).context("the socket of the server before")?;
        self.child = spawn(&self.netns, &self.directory, &self.options)?;
        self.wait()
    }

    /// Deletes all data of the server (`FLUSHALL`).
    ///
    /// # Errors
    ///
    /// When the server does not do it.
    pub fn flush(&self) -> Result<()> {
        self.ask(["FLUSHALL"]).map(drop)
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("redis.sock")
}

fn spawn(netns: &Netns, directory: &Path, options: &[String]) -> Result<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--unixsocket"]).arg(socket(directory));
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(directory);
    command.args(options);
    // Ctrl-C at the terminal must reach this process only.
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    netns.spawn(&mut command)
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
