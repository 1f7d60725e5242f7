//! Runs `limiter serve` and asks it over a unix socket.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::cannot_start;
use crate::limiter::Limiter;

/// Much longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A `limiter serve` process without any capability, ended on drop.
#[derive(Debug)]
pub struct Serve {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Serve {
    /// Starts `limiter serve` with a rule file and its own files in `dir`; it asks the daemon of
    /// `limiter` for bans. Waits until it answers.
    ///
    /// # Errors
    ///
    /// When it cannot be started, ends (with its output), or does not answer within half a minute.
    pub fn start(limiter: &Limiter, dir: &Path, rules: &Path) -> Result<Self> {
        let (socket, log) = (dir.join("requests.sock"), dir.join("serve.log"));
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"])
            .arg(limiter.binary())
            .arg("--socket")
            .arg(limiter.socket())
            .args(["serve", "--rules"])
            .arg(rules)
            .arg("--listen")
            .arg(format!("unix:{}", socket.display()))
            .stdin(Stdio::null())
            .stderr(File::create(&log)?)
            // Ctrl-C at the terminal must reach this process only.
            .process_group(0);
        let child = command.spawn().map_err(|error| cannot_start(&command, &error))?;
        let mut serve = Self { child, socket, log };
        let deadline = Instant::now() + PATIENCE;
        while serve.ask("GET", "/healthcheck", "").is_err() {
            if let Some(status) = serve.child.try_wait()? {
                bail!("`limiter serve` ended ({status}): {}", serve.said()?.trim());
            }
            ensure!(Instant::now() < deadline, "`limiter serve` does not answer");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(serve)
    }

    /// Socket of the process.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a request; returns the status and body of the answer.
    ///
    /// # Errors
    ///
    /// When there is no answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: \
             {length}\r\n\r\n{body}"
        )?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        let (head, body) = said.split_once("\r\n\r\n").context("no head")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, body.to_owned()))
    }

    /// Log of the process so far.
    ///
    /// # Errors
    ///
    /// When the log cannot be read.
    pub fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// Ends the process.
    ///
    /// # Errors
    ///
    /// When its exit code is not 0, with its output.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("no process id")?;
            kill_process(pid, Signal::TERM)?;
        }
        ensure!(self.child.wait()?.success(), "{}", self.said()?);
        Ok(())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("while ending limiter serve: {error:#}");
        }
    }
}
