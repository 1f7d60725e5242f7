//! Servers of Envoy's rate limit service, each a process with one thread: `limiter serve`, and one
//! small server of tonic with each of the others behind it.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};
use std::{env, fmt, fs, thread};

use anyhow::{Context as _, Error, Result, anyhow, ensure};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use limiter_tests::{cpu, limiter};
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::runtime;
use tonic::transport::Server as Tonic;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::contender::{Contender, Decide, RATE};

/// Users that the limiters have room for.
const ROOM: usize = 100_000;

/// The longest time for a server to listen.
const START: Duration = Duration::from_secs(20);

/// The rate of limits that are shared: so high that nodes fetch many units at once.
const SHARED_RATE: u32 = 100_000;

/// Seconds of the windows that the server with a call for each request counts in.
const WINDOW: i64 = 1;

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `limiter serve`.
    Serve,
    /// `limiter serve`, with limits that nodes share over Redis.
    Shared,
    /// The small server, which lets everything pass: the least that a server costs.
    Nothing,
    /// The small server with a limiter in its memory.
    Memory(Contender),
    /// The small server with a call of Redis for each request, as envoyproxy/ratelimit makes it.
    Call,
}

impl Peer {
    pub(super) const ALL: [Self; 7] = [
        Self::Serve,
        Self::Nothing,
        Self::Memory(Contender::Limiter),
        Self::Memory(Contender::Limitador),
        Self::Memory(Contender::Governor),
        Self::Shared,
        Self::Call,
    ];

    pub(super) const fn shown(self) -> &'static str {
        match self {
            Self::Serve => "`limiter serve`",
            Self::Shared => "`limiter serve`, limits shared over Redis",
            Self::Nothing => "small server, passes everything",
            Self::Memory(Contender::Limiter) => "small server, limiter's crate",
            Self::Memory(Contender::Limitador) => "small server, limitador",
            Self::Memory(Contender::Governor) => "small server, governor",
            Self::Call => "small server, a call of Redis for each request",
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Serve => "serve",
            Self::Shared => "shared",
            Self::Nothing => "nothing",
            Self::Memory(contender) => contender.name(),
            Self::Call => "call",
        })
    }
}

impl FromStr for Peer {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|peer| peer.to_string() == name);
        found.with_context(|| format!("no server is called {name}"))
    }
}

/// A process that answers; ended when dropped.
pub(super) struct Served {
    child: Child,
    pub(super) address: SocketAddr,
    _directory: TempDir,
}

impl Served {
    /// Starts a server on a CPU; `redis` is the path of the socket of a Redis.
    pub(super) fn start(peer: Peer, cpu: usize, redis: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let address = free_address()?;
        let mut command = match peer {
            Peer::Serve | Peer::Shared => serve(peer, address, &directory, redis)?,
            _ => {
                let mut command = Command::new(env::current_exe()?);
                let (name, address) = (peer.to_string(), address.to_string());
                command.args(["--serve", &name, &address, redis]);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let served = Self::run(command, Some(cpu), address, directory);
        served.with_context(|| format!("server {peer}"))
    }

    /// Starts the command of a server, which listens at an address and has a directory: on a CPU,
    /// or on all.
    pub(super) fn run(
        mut command: Command,
        cpu: Option<usize>,
        address: SocketAddr,
        directory: TempDir,
    ) -> Result<Self> {
        // A child is born on the CPU of the thread that starts it.
        let child = thread::spawn(move || {
            cpu.map(|cpu| cpu::pin(None, cpu)).transpose()?;
            command.spawn().with_context(|| format!("cannot start {command:?}"))
        });
        let child = child.join().map_err(|_panic| anyhow!("a thread panicked"))??;
        let mut served = Self { child, address, _directory: directory };
        served.wait()?;
        Ok(served)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait(&mut self) -> Result<()> {
        let end = Instant::now() + START;
        while std::net::TcpStream::connect(self.address).is_err() {
            ensure!(self.child.try_wait()?.is_none(), "it ended before it listened");
            ensure!(Instant::now() < end, "it does not listen after {START:?}");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

pub(super) fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// `limiter serve` with so many threads, and room for so many keys.
pub(super) fn limiter_serve(threads: u16, room: usize, directory: &TempDir) -> Result<Command> {
    let mut command = Command::new(limiter::binary()?);
    let (threads, room) = (threads.to_string(), room.to_string());
    command.args(["serve", "--threads", &threads, "--max-keys", &room]);
    command.env("LIMITER_LOG", "warn");
    // No daemon takes part.
    command.arg("--socket").arg(directory.path().join("none.sock"));
    Ok(command)
}

fn serve(peer: Peer, address: SocketAddr, directory: &TempDir, redis: &str) -> Result<Command> {
    let rules = directory.path().join("rules.yaml");
    let limit = match peer {
        Peer::Shared => format!("{{rate: {SHARED_RATE}/s}}, scope: cluster"),
        _ => format!("{{rate: {RATE}/s}}"),
    };
    fs::write(
        &rules,
        format!("domain: bench\ndescriptors: [{{key: user, rate_limit: {limit}}}]\n"),
    )?;
    let mut command = limiter_serve(1, ROOM, directory)?;
    command.args(["--listen", &address.to_string(), "--rules"]).arg(rules);
    if peer == Peer::Shared {
        let node = directory.path().join("node.yaml");
        fs::write(&node, format!("redis: {{address: {redis}}}\nnode: bench\nnodes: 2\n"))?;
        command.arg("--cluster").arg(node);
    }
    Ok(command)
}

/// Answers as a server, until the process is killed.
///
/// # Errors
///
/// When it cannot listen or reach Redis.
pub fn answer(peer: Peer, address: SocketAddr, redis: &str) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let behind = match peer {
            Peer::Memory(contender) => Behind::Memory(contender.start(ROOM)?),
            Peer::Call => {
                let client = redis::Client::open(format!("unix://{redis}"))?;
                Behind::Call(client.get_multiplexed_async_connection().await?)
            }
            Peer::Nothing | Peer::Serve | Peer::Shared => Behind::Nothing,
        };
        let incoming = TcpIncoming::bind(address).map_err(|error| anyhow!("{address}: {error}"))?;
        let service = RateLimitServiceServer::new(Small { behind });
        Tonic::builder()
            .add_service(service)
            .serve_with_incoming(incoming.with_nodelay(Some(true)))
            .await?;
        Ok(())
    })
}

enum Behind {
    Nothing,
    Memory(Decide),
    Call(MultiplexedConnection),
}

struct Small {
    behind: Behind,
}

#[tonic::async_trait]
impl RateLimitService for Small {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        let entry = request.descriptors.first().and_then(|descriptor| descriptor.entries.first());
        let user = entry.map(|entry| entry.value.as_str());
        let user = user.ok_or_else(|| Status::invalid_argument("no user"))?;
        let failed = |error: Error| Status::internal(error.to_string());
        let passes = match &self.behind {
            Behind::Nothing => true,
            Behind::Memory(decide) => decide(user).map_err(failed)?,
            Behind::Call(link) => call(link.clone(), user).await.map_err(failed)?,
        };
        let code = if passes { Code::Ok } else { Code::OverLimit };
        let status = DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
        Ok(Response::new(RateLimitResponse {
            overall_code: code.into(),
            statuses: vec![status],
            ..RateLimitResponse::default()
        }))
    }
}

/// Counts a request in the window of its second.
async fn call(mut link: MultiplexedConnection, user: &str) -> Result<bool> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let key = format!("bench_user_{user}_{}", now.as_secs());
    let mut both = redis::pipe();
    both.incr(&key, 1).expire(&key, WINDOW).ignore();
    let (count,): (u32,) = both.query_async(&mut link).await?;
    Ok(count <= SHARED_RATE)
}
