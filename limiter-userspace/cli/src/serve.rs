//! `limiter serve`.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use limiter_api::arguments::{interval, length};
use limiter_api::client::Client;
use limiter_cluster::Config;
use limiter_requests::{Listen, Options, OverSocket, ServeError, StateOptions};

use super::answer::Answer;
use super::failure::Failure;

/// Threads that answer, unless the arguments say how many: a proxy beside them needs the others.
const MOST_THREADS: usize = 4;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Serve {
    /// A rule file for requests, or a directory of them; may be repeated. Each has a domain of its
    /// own. Needed without --resp
    #[arg(long, value_name = "FILE|DIR", required_unless_present = "resp")]
    rules: Vec<PathBuf>,
    /// Where to listen: an address and a port, or unix:PATH; may be repeated [default: the sockets
    /// that the service manager passes, or 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    listen: Vec<Listen>,
    /// Where to speak the protocol of Redis (CL.THROTTLE, LIMITER.ASK), beside the sockets that the
    /// service manager passes under the name `resp`; may be repeated
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    resp: Vec<Listen>,
    /// Keep what is used of the limits in this directory, for the next start; the last one given
    /// counts
    #[arg(long, value_name = "DIR", overrides_with = "state_dir")]
    state_dir: Option<PathBuf>,
    /// Time between two snapshots in --state-dir: as much is forgotten if the process is killed
    #[arg(
        long, value_name = "TIME", default_value = "1m", requires = "state_dir",
        value_parser = interval,
    )]
    save_every: Duration,
    /// Share the limits with `scope: cluster` with other nodes, and have queues, by the Redis that
    /// this file names; the last one given counts
    #[arg(long, value_name = "FILE", overrides_with = "cluster")]
    cluster: Option<PathBuf>,
    /// Longest time that a request waits for the other nodes; then `on_partition` of its rule
    /// decides
    #[arg(
        long, value_name = "TIME", default_value = "100ms", requires = "cluster",
        value_parser = deadline,
    )]
    deadline: Duration,
    /// Requests that wait for the other nodes at once; of one more, `on_partition` decides
    #[arg(
        long, value_name = "N", default_value_t = 1024, requires = "cluster",
        value_parser = clap::value_parser!(u32).range(0..=1 << 20),
    )]
    max_waiting: u32,
    /// Keys that there is room for, at most 100 bytes each for one token bucket
    #[arg(
        long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=1 << 32),
    )]
    max_keys: u64,
    /// Connections at once; one more ends one that is quiet or sends no whole request
    #[arg(
        long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20),
    )]
    max_connections: u32,
    /// Threads that answer [default: the processors, 4 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Answers over gRPC name the headers of a check, which Envoy then adds to its own answers
    #[arg(long)]
    response_headers: bool,
}

/// A length of time from 1 ms to a minute.
fn deadline(text: &str) -> Result<Duration, String> {
    let time = length(text)?;
    let range = Duration::from_millis(1)..=Duration::from_mins(1);
    range.contains(&time).then_some(time).ok_or_else(|| "give 1ms to 1m".to_owned())
}

impl Serve {
    fn options(&self, daemon: &Client) -> Result<Options, Failure> {
        let processors =
            || thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let cluster = self.cluster.as_deref().map(Config::load);
        Ok(Options {
            rules: self.rules.clone(),
            listen: self.listen.clone(),
            resp: self.resp.clone(),
            max_keys: usize::try_from(self.max_keys).unwrap_or(usize::MAX),
            max_connections: usize::try_from(self.max_connections).unwrap_or(usize::MAX),
            threads: self.threads.map_or_else(processors, usize::from),
            response_headers: self.response_headers,
            daemon: Some(Arc::new(OverSocket::new(daemon))),
            cluster: cluster.transpose().map_err(ServeError::from)?,
            deadline: self.deadline,
            max_waiting: usize::try_from(self.max_waiting).unwrap_or(usize::MAX),
            state: self
                .state_dir
                .clone()
                .map(|directory| StateOptions { directory, every: self.save_every }),
        })
    }
}

/// Answers requests until a signal ends it.
pub(super) fn serve(what: &Serve, daemon: &Client) -> Result<Answer, Failure> {
    limiter_requests::run(&what.options(daemon)?)?;
    Ok(Answer::default())
}
