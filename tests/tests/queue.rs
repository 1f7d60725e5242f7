//! The send queue of docs/queue.md, with its rule file and its workers: how fast it is, and what a
//! process of limiter that is killed leaves behind.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::cluster::redis_cluster::{ADDRESS, RedisCluster};
use limiter_tests::cluster::redis_server::RedisServer;
use limiter_tests::limiter::binary;
use limiter_tests::netns::Netns;
use limiter_tests::root::require_root;
use limiter_tests::work_dir::WorkDir;

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(2);

const PAGE: &str = include_str!("../../docs/queue.md");

/// Messages a second, a tenth of the page's rate: a busy machine sends fewer than that.
const RATE: u64 = 100;

/// The burst where the file gives none: what the rate lets pass in a second.
const BURST: u64 = RATE;

/// The page's file, with the rate of these tests.
fn rules() -> Result<String> {
    let page = documented("yaml")?;
    let rules = page.replace("rate: 1000/s", &format!("rate: {RATE}/s"));
    ensure!(rules != page, "the page's rate is another one");
    Ok(rules)
}

/// The first block of the page in a language.
fn documented(language: &str) -> Result<&'static str> {
    let (_, rest) = PAGE.split_once(&format!("```{language}\n")).context("no block")?;
    Ok(rest.split_once("```").context("it ends")?.0)
}

/// A process, killed on drop.
struct Process(Child);

impl Process {
    /// Ends it as `kill -9` does.
    fn kill(mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A Redis, and what was started beside it.
struct Bed {
    redis: RedisServer,
    dir: WorkDir,
    started: AtomicU64,
}

impl Bed {
    fn new(tag: &str) -> Result<Self> {
        require_root();
        let dir = WorkDir::create(tag)?;
        let netns = Arc::new(Netns::create(tag)?);
        let redis = RedisServer::start_with(&netns, dir.path(), &["--appendonly", "yes"])?;
        dir.write("send.yaml", rules()?)?;
        let socket = redis.socket().display().to_string();
        let client = format!("\"redis-cli\", \"-s\", \"{socket}\"");
        let worker = documented("python")?.replace("\"redis-cli\"", &client);
        ensure!(worker.contains(&socket), "the page starts no redis-cli");
        dir.write("worker", worker)?;
        for name in ["a", "b"] {
            let node = format!("redis: {{address: {socket}}}\nnode: {name}\nnodes: 2\n");
            dir.write(&format!("{name}.yaml"), node)?;
        }
        Ok(Self { redis, dir, started: AtomicU64::new(0) })
    }

    /// Starts a node, and waits until it answers; its process, and its socket.
    fn serve(&self, name: &str) -> Result<(Process, PathBuf)> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let path = |name: String| self.dir.path().join(name);
        let socket = path(format!("serve-{number}.sock"));
        let mut command = Command::new(binary()?);
        command.arg("serve").arg("--rules").arg(path("send.yaml".to_owned()));
        command.arg("--cluster").arg(path(format!("{name}.yaml")));
        command.args(["--deadline", "10s", "--listen"]).arg(format!("unix:{}", socket.display()));
        command.stderr(File::create(path(format!("log-{number}")))?);
        let process = Process(command.spawn()?);
        until("it answers", || Ok(UnixStream::connect(&socket).is_ok()))?;
        Ok((process, socket))
    }

    /// Starts the three workers of the page, once limiter has made their group.
    fn workers(&self) -> Result<Vec<Process>> {
        let stream = "rl:requests:queue:{emails}:ready";
        until("there is a group", || Ok(self.redis.ask(["EXISTS", stream])? == "1"))?;
        let worker = |number: u32| -> Result<Process> {
            let mut command = Command::new("/usr/bin/python3");
            command.arg(self.dir.path().join("worker")).arg(number.to_string());
            command.stdout(File::create(self.done(number))?);
            Ok(Process(command.spawn()?))
        };
        (1..=3).map(worker).collect()
    }

    fn done(&self, worker: u32) -> PathBuf {
        self.dir.path().join(format!("done-{worker}"))
    }

    /// What all workers did: the time and number in the stream, and the payload.
    fn all_done(&self) -> Result<Vec<(u64, u64, String)>> {
        let mut all = Vec::new();
        for worker in 1..=3 {
            for line in fs::read_to_string(self.done(worker))?.lines() {
                let Some((id, payload)) = line.split_once(' ') else { continue };
                let (millis, number) = id.split_once('-').context("no id")?;
                all.push((millis.parse()?, number.parse()?, payload.to_owned()));
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    /// Waits until workers have done all of these, and checks that nothing left faster than the
    /// limit, and first deliveries in order for each sender.
    fn finish(&self, queued: &[String]) -> Result<()> {
        until("all are done", || {
            let done: HashSet<String> =
                self.all_done()?.into_iter().map(|(.., payload)| payload).collect();
            Ok(queued.iter().all(|payload| done.contains(payload)))
        })?;
        let done = self.all_done()?;
        never_faster(&done.iter().map(|(millis, ..)| *millis).collect::<Vec<_>>())?;
        let mut seen = HashSet::new();
        let first: Vec<&str> = done
            .iter()
            .filter(|(.., payload)| seen.insert(payload))
            .map(|(.., payload)| payload.as_str())
            .collect();
        for sender in 0..SENDERS {
            let of: Vec<_> =
                first.iter().filter(|payload| payload.starts_with(&format!("{sender} "))).collect();
            ensure!(of.len() > 10 && of.is_sorted(), "{sender}: {of:?}");
        }
        let left = self.redis.ask(["XLEN", "rl:requests:queue:{emails}:dead"])?;
        ensure!(left == "0", "{left} dead letters");
        let span = done.last().context("none")?.0 - done[0].0;
        println!("{} queued, {} done, within {span} ms", queued.len(), done.len());
        Ok(())
    }
}

/// No more than the burst and the rate in any time; ids have milliseconds.
fn never_faster(times: &[u64]) -> Result<()> {
    for (first, begin) in times.iter().enumerate() {
        for (count, end) in (1u64..).zip(&times[first..]) {
            let most = BURST + RATE * (end - begin + 1) / 1000;
            ensure!(count <= most, "{count} within {} ms, most {most}", end - begin);
        }
    }
    Ok(())
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The status of a request with a payload; none if nobody answers.
fn send(socket: &Path, payload: &str) -> Option<u16> {
    send_all(socket, &[payload.to_owned()])?.first().copied()
}

/// The statuses of requests with payloads, sent at once over one connection; none if not all are
/// answered.
fn send_all(socket: &Path, payloads: &[String]) -> Option<Vec<u16>> {
    let body = |payload: &String| {
        format!(
            "{{\"domain\": \"send\", \"payload\": \"{payload}\", \"id\": \"{payload}\", \
             \"descriptors\": [{{\"entries\": [{{\"key\": \"message\", \"value\": \"email\"}}]}}]}}"
        )
    };
    let answer = answer(socket, "POST /json", &payloads.iter().map(body).collect::<Vec<_>>())?;
    let statuses: Vec<u16> = answer
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| answer.get(..3)?.parse().ok())
        .collect::<Option<_>>()?;
    (statuses.len() == payloads.len()).then_some(statuses)
}

/// The status of a request; none if nobody answers.
fn ask(socket: &Path, body: String) -> Option<u16> {
    answer(socket, "POST /json", &[body])?.split(' ').nth(1)?.parse().ok()
}

/// The answers to requests of one connection; none if nobody answers.
fn answer(socket: &Path, what: &str, bodies: &[String]) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut requests = String::new();
    for (left, body) in (0..bodies.len()).rev().zip(bodies) {
        let connection = if left == 0 { "close" } else { "keep-alive" };
        let length = body.len();
        // Writing to a string cannot fail.
        let _infallible = write!(
            requests,
            "{what} HTTP/1.1\r\nhost: t\r\nconnection: {connection}\r\ncontent-length: \
             {length}\r\n\r\n{body}"
        );
    }
    stream.write_all(requests.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

const SENDERS: u32 = 4;

/// Payloads of a sender at once, and the pause after them: all senders together send less than
/// three times the rate, so that what is queued leaves within seconds.
const AT_ONCE: u32 = 16;
const PAUSE: Duration = Duration::from_millis(250);

/// Sends from several threads for a time, longer where that was not clearly over the limit; what
/// was queued, at least what was sent over the limit. `socket` gives the place to ask.
fn load(time: Duration, socket: impl Fn() -> PathBuf + Sync) -> Result<Vec<String>> {
    let begin = Instant::now();
    let end = begin + time;
    let sent = &AtomicU64::new(0);
    let over = || {
        let within = BURST + RATE * (begin.elapsed().as_secs() + 1);
        sent.load(Ordering::Relaxed).saturating_sub(within)
    };
    let one = |sender: u32| -> Result<Vec<String>> {
        let mut queued = Vec::new();
        let mut number = 0;
        while Instant::now() < end || over() < BURST {
            ensure!(Instant::now() < end + PATIENCE, "the senders are slower than the limit");
            let all = number..number + AT_ONCE;
            let payloads: Vec<_> = all.map(|number| format!("{sender} {number:06}")).collect();
            number += AT_ONCE;
            // Without an answer they are asked again, as the page says.
            let statuses = loop {
                match send_all(&socket(), &payloads) {
                    Some(statuses) if !statuses.contains(&503) => break statuses,
                    _ => thread::sleep(Duration::from_millis(10)),
                }
                ensure!(Instant::now() < end + PATIENCE, "no answer");
            };
            for (payload, status) in payloads.into_iter().zip(statuses) {
                match status {
                    202 => queued.push(payload),
                    200 => {}
                    other => bail!("status {other}"),
                }
            }
            sent.fetch_add(AT_ONCE.into(), Ordering::Relaxed);
            thread::sleep(PAUSE);
        }
        Ok(queued)
    };
    let queued = thread::scope(|scope| {
        let all: Vec<_> = (0..SENDERS).map(|sender| scope.spawn(move || one(sender))).collect();
        let mut queued = Vec::new();
        for sender in all {
            queued.extend(sender.join().map_err(|_panic| anyhow::anyhow!("a sender"))??);
        }
        Ok::<_, anyhow::Error>(queued)
    })?;
    let least = over();
    ensure!(u64::try_from(queued.len())? >= least, "{} of {least} queued", queued.len());
    Ok(queued)
}

/// Three workers get what is over the rate, at the rate, as docs/queue.md says.
#[test]
fn the_send_queue_of_the_page_has_its_rate_over_three_workers() -> Result<()> {
    let bed = Bed::new("queue-recipe")?;
    let (serve, socket) = bed.serve("a")?;
    let workers = bed.workers()?;
    let queued = load(Duration::from_secs(4), || socket.clone())?;
    bed.finish(&queued)?;
    drop((workers, serve));
    Ok(())
}

/// Of two nodes one after the other is killed under load, the mover among them. Nothing that was
/// queued is lost, and nothing leaves faster than the limit.
#[test]
fn a_node_that_is_killed_loses_nothing_and_another_goes_on() -> Result<()> {
    let bed = Bed::new("queue-killed")?;
    let nodes = Mutex::new([bed.serve("a")?, bed.serve("b")?]);
    let lock = || nodes.lock().unwrap_or_else(PoisonError::into_inner);
    let workers = bed.workers()?;
    let turn = AtomicU64::new(0);
    let next = || {
        let number = turn.fetch_add(1, Ordering::Relaxed) % 2;
        lock()[usize::from(number == 1)].1.clone()
    };
    let queued = thread::scope(|scope| -> Result<Vec<String>> {
        let sending = scope.spawn(|| load(Duration::from_secs(9), next));
        for kill in 0..4 {
            thread::sleep(Duration::from_secs(2));
            let name = ["a", "b"][kill % 2];
            let new = bed.serve(name)?;
            let (old, _) = std::mem::replace(&mut lock()[kill % 2], new);
            old.kill()?;
        }
        sending.join().map_err(|_panic| anyhow::anyhow!("the senders"))?
    })?;
    bed.finish(&queued)?;
    drop(workers);
    Ok(())
}

/// In a Redis Cluster a queue is on one server, and the accounts of shared limits are on several:
/// two nodes share a quota, and what they queue leaves once, in order.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn queues_and_shared_limits_are_kept_in_a_redis_cluster() -> Result<()> {
    require_root();
    let tag = "queue-cluster";
    let (dir, netns) = (WorkDir::create(tag)?, Arc::new(Netns::create(tag)?));
    let servers = RedisCluster::start(&netns, dir.path())?;
    let rules = dir.write(
        "rules.yaml",
        "domain: send\nqueues: [{name: emails}]\ndescriptors:\n  - {key: message, rate_limit: \
         {rate: 20/s, burst: 1}, action: {queue: emails}}\n  - {key: user, scope: cluster, \
         rate_limit: {unit: day, requests_per_unit: 6}}\n",
    )?;
    let serve = |name: &str| -> Result<(Process, PathBuf)> {
        let seeds = servers.seeds();
        let file = format!("redis: {{cluster: {seeds}}}\nnode: {name}\nnodes: 2\n");
        let node = dir.write(&format!("{name}.yaml"), file)?;
        let socket = dir.path().join(format!("{name}.sock"));
        let mut command = Command::new(binary()?);
        command.arg("serve").arg("--rules").arg(&rules).arg("--cluster").arg(node);
        command.args(["--deadline", "10s", "--listen"]).arg(format!("unix:{}", socket.display()));
        command.stderr(File::create(dir.path().join(format!("log-{name}")))?);
        let process = Process(netns.spawn(&mut command)?);
        until("there is contact", || {
            let metrics = answer(&socket, "GET /metrics", &[String::new()]);
            Ok(metrics.is_some_and(|metrics| metrics.contains("limiter_cluster_connected 1\n")))
        })?;
        Ok((process, socket))
    };
    let nodes = [serve("a")?, serve("b")?];

    let of_users = |user: u32, turn: usize| {
        let body = format!(
            "{{\"domain\": \"send\", \"descriptors\": [{{\"entries\": [{{\"key\": \"user\", \
             \"value\": \"{user}\"}}]}}]}}"
        );
        ask(&nodes[turn % 2].1, body)
    };
    for user in 0..20 {
        let alone = (0..9).filter(|_| of_users(user, 0) == Some(200)).count();
        let both = (0..30).filter(|turn| of_users(100 + user, *turn) == Some(200)).count();
        ensure!(alone == 6 && (1..=6).contains(&both), "user {user}: {alone}, {both}");
    }

    let mut queued = Vec::new();
    for number in 0..40 {
        let payload = format!("{number:02}");
        match send(&nodes[number % 2].1, &payload) {
            Some(202) => queued.push(payload),
            status => ensure!(status == Some(200), "{payload}: {status:?}"),
        }
    }
    ensure!(queued.len() > 20, "{queued:?}");
    let mut left = Vec::new();
    until("all leave", || {
        let mut command = Command::new("redis-cli");
        command.args(["-c", "-h", &ADDRESS.to_string(), "-p", "7001", "XREADGROUP", "GROUP"]);
        command.args(["workers", "w", "COUNT", "100", "STREAMS"]);
        command.args(["rl:requests:queue:{emails}:ready", ">"]);
        let output = String::from_utf8(netns.output(&mut command)?.stdout)?;
        let mut lines = output.lines();
        while lines.by_ref().any(|line| line == "payload") {
            left.extend(lines.next().map(str::to_owned));
        }
        Ok(left.len() >= queued.len())
    })?;
    ensure!(left == queued, "{left:?} of {queued:?}");
    // Servers hold their namespace.
    drop((nodes, servers));
    Ok(())
}
