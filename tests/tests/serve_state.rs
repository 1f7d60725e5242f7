//! `limiter serve` across restarts: requests while it is replaced, and what a killed one forgets.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::limiter::binary;
use limiter_tests::work_dir::WorkDir;
use rustix::process::{Pid, Signal, kill_process};

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Requests of the limit. Nothing comes back of it while a test runs.
const LIMIT: u64 = 3000;

const CLIENTS: usize = 8;

/// A socket that outlives the processes that answer at it, as systemd keeps it.
struct Bed {
    dir: WorkDir,
    listener: TcpListener,
    started: Cell<u32>,
}

/// One process, killed on drop.
struct Serve {
    child: Child,
    log: PathBuf,
}

impl Bed {
    fn new(tag: &str, burst: u64) -> Result<Self> {
        let dir = WorkDir::create(tag)?;
        let rules = format!(
            "domain: d\ndescriptors:\n  - {{key: k, rate_limit: {{rate: 100/week, burst: \
             {burst}}}}}\n"
        );
        dir.write("r.yaml", rules)?;
        Ok(Self { dir, listener: TcpListener::bind("127.0.0.1:0")?, started: Cell::new(0) })
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn start(&self, save_every: &str) -> Result<Serve> {
        let options = ["--save-every", save_every];
        self.start_at(self.listener.try_clone()?.into(), "limiter-serve.socket", &options)
    }

    /// Passes a socket with a name.
    fn start_at(&self, socket: OwnedFd, name: &str, options: &[&str]) -> Result<Serve> {
        self.started.set(self.started.get() + 1);
        let log = self.dir.path().join(format!("log-{}", self.started.get()));
        let mut command = Command::new("sh");
        // The protocol of systemd: sockets from descriptor 3 on, for the process of this id.
        let pass = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
        command.args(["-c", pass, "sh"]).arg(binary()?);
        command.args(["serve", "--rules"]).arg(self.dir.path().join("r.yaml"));
        command.arg("--state-dir").arg(self.state()).args(options);
        command.env("LISTEN_FDNAMES", name).stdin(Stdio::from(socket)).stderr(File::create(&log)?);
        Ok(Serve { child: command.spawn()?, log })
    }

    /// The status of a request for the only key, and what is left of its limit.
    fn ask(&self) -> Result<(u16, u64)> {
        ask(self.listener.local_addr()?)
    }

    /// Waits until two more snapshots have been written, the second of which began after this.
    fn wait_until_saved(&self) -> Result<()> {
        let before = self.saves()?;
        until("two snapshots", || Ok(self.saves()? >= before + 2))
    }

    fn saves(&self) -> Result<u64> {
        let (_, page) = said(connect(self.listener.local_addr()?)?, "GET /metrics", "")?;
        let line =
            page.lines().find(|line| line.starts_with("limiter_request_saves_total{result=\"ok\""));
        Ok(line.and_then(|line| line.rsplit(' ').next()).context("no count")?.parse()?)
    }
}

impl Serve {
    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("no process id")?;
        Ok(kill_process(pid, signal)?)
    }

    fn end(mut self, signal: Signal) -> Result<ExitStatus> {
        self.signal(signal)?;
        Ok(self.child.wait()?)
    }

    fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn said(mut stream: impl Read + Write, what: &str, body: &str) -> Result<(u16, String)> {
    let length = body.len();
    write!(
        stream,
        "{what} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: \
         {length}\r\n\r\n{body}"
    )?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    let (head, body) = said.split_once("\r\n\r\n").with_context(|| format!("no head: {said:?}"))?;
    Ok((head.split(' ').nth(1).context("no status")?.parse()?, body.to_owned()))
}

fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn ask(to: SocketAddr) -> Result<(u16, u64)> {
    answer(connect(to)?)
}

/// The status of a request for the only key, and what is left of its limit.
fn answer(stream: impl Read + Write) -> Result<(u16, u64)> {
    let body =
        "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\",\"value\":\"v\"}]}]}";
    let (status, answer) = said(stream, "POST /json", body)?;
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    let left = &answer["statuses"][0]["limitRemaining"];
    // Zero is left out in JSON of protocol buffers.
    Ok((status, left.as_u64().unwrap_or(0)))
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Asks by a connection for each request until it is to stop; requests that were allowed, and
/// refused.
fn load(to: SocketAddr, stop: &AtomicBool, answered: &AtomicU64) -> Result<[u64; 2]> {
    let mut counts = [0; 2];
    while !stop.load(Ordering::Relaxed) {
        match ask(to)?.0 {
            200 => counts[0] += 1,
            429 => counts[1] += 1,
            other => bail!("status {other}"),
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(counts)
}

/// Every request is answered, and no more than the limit are allowed: each process answers what
/// came to it and leaves its buckets to the next.
#[test]
fn no_request_is_lost_while_the_process_is_replaced_under_load() -> Result<()> {
    let bed = Bed::new("serve-replaced", LIMIT)?;
    let to = bed.listener.local_addr()?;
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let counts = thread::scope(|scope| -> Result<Vec<[u64; 2]>> {
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| scope.spawn(|| load(to, &stop, &answered))).collect();
        let count = || answered.load(Ordering::Relaxed);
        let replaced = || -> Result<()> {
            for _ in 0..8 {
                let mut serve = bed.start("1h")?;
                let next = count() + LIMIT / 6;
                until("requests are answered", || {
                    let status = serve.child.try_wait()?;
                    ensure!(status.is_none(), "it ended: {}", serve.said()?);
                    Ok(count() >= next || clients.iter().any(thread::ScopedJoinHandle::is_finished))
                })?;
                let log = serve.log.clone();
                ensure!(serve.end(Signal::TERM)?.success(), "{}", fs::read_to_string(log)?);
            }
            Ok(())
        };
        let replaced = replaced();
        stop.store(true, Ordering::Relaxed);
        // Those whose requests wait for it.
        let serve = bed.start("1h")?;
        let counts = clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let counts = counts.collect::<Result<Vec<_>>>();
        replaced?;
        ensure!(serve.end(Signal::TERM)?.success());
        counts
    })?;
    let [allowed, refused] = [0, 1].map(|n| counts.iter().map(|count| count[n]).sum::<u64>());
    ensure!(allowed == LIMIT && refused > 0, "{allowed} allowed, {refused} refused");
    Ok(())
}

/// A unix socket is passed as well, stays where it is, and does not keep out other addresses.
#[test]
fn a_unix_socket_is_passed_beside_an_address_of_its_own() -> Result<()> {
    let bed = Bed::new("serve-unix", 100)?;
    let path = bed.dir.path().join("s");
    let listener = UnixListener::bind(&path)?;
    for used in [1, 3] {
        let socket = listener.try_clone()?.into();
        let serve = bed.start_at(socket, "s", &["--listen", "127.0.0.1:0"])?;
        let stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        ensure!(answer(stream)? == (200, 100 - used));
        let own = "answered at http://";
        until("its address is in the log", || Ok(serve.said()?.contains(own)))?;
        let said = serve.said()?;
        let address = said.lines().find_map(|line| line.split_once(own)).context("no address")?.1;
        ensure!(ask(address.parse()?)? == (200, 99 - used));
        ensure!(serve.end(Signal::TERM)?.success());
        ensure!(path.exists(), "it is not this process's");
    }
    Ok(())
}

/// At a socket that is passed under the name `resp`, Redis' protocol is spoken.
#[test]
fn a_socket_for_the_protocol_of_redis_is_passed_by_its_name() -> Result<()> {
    let bed = Bed::new("serve-resp", 100)?;
    let socket = bed.listener.try_clone()?.into();
    let serve = bed.start_at(socket, "resp", &["--listen", "127.0.0.1:0"])?;
    let mut stream = connect(bed.listener.local_addr()?)?;
    stream.write_all(b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer == "+PONG\r\n+OK\r\n", "{answer:?}");
    until("its address is in the log", || Ok(serve.said()?.contains("answered at redis://")))?;
    ensure!(serve.end(Signal::TERM)?.success());
    Ok(())
}

/// A process that is killed forgets what was used since the last snapshot, and nothing before.
#[test]
fn a_killed_process_forgets_what_came_after_its_last_snapshot() -> Result<()> {
    let bed = Bed::new("serve-killed", 100)?;
    let serve = bed.start("1s")?;
    for used in 1..=60 {
        ensure!(bed.ask()? == (200, 100 - used));
    }
    bed.wait_until_saved()?;
    ensure!(!serve.end(Signal::KILL)?.success());

    let serve = bed.start("1h")?;
    for used in 61..=70 {
        ensure!(bed.ask()? == (200, 100 - used));
    }
    // Another one would overwrite the snapshots of this one.
    let mut other = bed.start("1h")?;
    let status = other.child.wait()?;
    let said = other.said()?;
    ensure!(status.code() == Some(2) && said.contains("another `limiter serve`"), "{said}");
    ensure!(!serve.end(Signal::KILL)?.success());

    let serve = bed.start("1h")?;
    ensure!(bed.ask()? == (200, 39), "ten were forgotten, and no more");
    ensure!(serve.end(Signal::TERM)?.success());
    let serve = bed.start("1h")?;
    ensure!(bed.ask()? == (200, 38), "one that ends forgets nothing");
    ensure!(serve.end(Signal::TERM)?.success());
    Ok(())
}

/// A snapshot that is not what was written is reported, kept for a look, and not used.
#[test]
fn a_damaged_snapshot_is_set_aside() -> Result<()> {
    let bed = Bed::new("serve-damaged", 100)?;
    let serve = bed.start("1h")?;
    ensure!(bed.ask()? == (200, 99));
    ensure!(serve.end(Signal::TERM)?.success());
    let path = bed.state().join("snapshot");
    let mut bytes = fs::read(&path)?;
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    fs::write(&path, &bytes)?;
    let serve = bed.start("1h")?;
    ensure!(bed.ask()? == (200, 99), "buckets begin full");
    let said = serve.said()?;
    ensure!(said.contains("its digest is of other content: buckets begin full"), "{said}");
    ensure!(!path.exists() && fs::read(path.with_extension("broken"))? == bytes);
    ensure!(serve.end(Signal::TERM)?.success());
    ensure!(path.exists());
    Ok(())
}
